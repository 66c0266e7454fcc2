"""Facts stated in several places of the project agree, and the scripts that check it work."""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from rdchat.cli import main
from rdchat.inference.vision.families import FAMILIES
from tests.project.scripts import ROOT, script


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    return script("constraints").read_pins(ROOT / "constraints.txt")


@pytest.mark.slow
def test_constraints_name_every_installed_package_with_its_version(pins: dict[str, str]):
    installed = {canonicalize_name(each.name): each.version for each in importlib.metadata.distributions()}
    here = pins.keys() & installed.keys() - {"pip"}  # that of the environment is Python's
    assert {name: installed[name] for name in here} == {name: pins[name] for name in here}
    assert script("bundle_parts").distributions().keys() <= pins.keys()


def test_constraints_cover_macos_from_linux(pins: dict[str, str]):
    assert pins["mlx-metal"] == pins["mlx-cpu"] == pins["mlx"]


def test_constraints_hold_pins_and_comments_only():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[a-z0-9-]+==[\w.!+-]+", line) for line in lines)


def test_the_readme_names_the_system_packages():
    readme = (ROOT / "README.md").read_text()
    command = re.search(r"sudo apt-get install -y ((?:[^\n]*\\\n)*[^\n]*)", readme)
    assert command is not None
    packages = (ROOT / "scripts" / "debian-packages.txt").read_text()
    assert command.group(1).replace("\\\n", " ").split() == re.findall(r"^[^#\n].*$", packages, re.MULTILINE)


def test_texts_say_on_how_many_tokens_the_shipped_drafter_was_trained():
    (card,) = (ROOT / "rdchat" / "drafters").glob("*/card.md")
    trained = re.search(r"of which ([\d,]+) were trained on", card.read_text())
    assert trained is not None
    millions = f"{int(trained[1].replace(',', '')) / 1e6:.1f} million tokens"
    for path in (ROOT / "docs" / "limits.md", ROOT / "rdchat" / "ui" / "models" / "training_page.py"):
        assert re.findall(r"was trained on ([\d.]+ million tokens)", path.read_text()) == [millions]


def test_the_guide_says_which_commands_want_rdchat_closed(capsys: pytest.CaptureFixture[str]):
    named = re.search(r"chats export .*# also (.*); (.*) once rdchat has quit\n", (ROOT / "docs/guide.md").read_text())
    assert named is not None
    for names, closed in zip(named.groups(), (False, True), strict=True):
        for name in names.split(" and "):
            with pytest.raises(SystemExit, match="0"):
                main(["chats", name, "--help"])
            assert ("Quit rdchat first." in " ".join(capsys.readouterr().out.split())) is closed, name


def test_a_stale_number_of_families_that_see_is_found():
    """README said five, the page seven, and the code had eight."""
    link = "[5 families](docs/families.md#models-that-see)"
    assert script("families_page").renewed(link, []) == link.replace("5", str(len(FAMILIES)))


def test_pre_commit_runs_the_commands_of_make_check():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    entries = {hook["entry"].split()[-1] for hook in hooks[0]["hooks"]}
    checks = re.search(r"^CHECKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert checks is not None
    assert entries == set(checks.group(1).split())


def commands_of_ci() -> list[str]:
    """Return the lines that CI runs, without limits of time."""
    return [re.sub(r"^timeout (--\S+ )*\d+m ", "", line) for line in (ROOT / ".ci" / "run").read_text().splitlines()]


def test_ci_runs_the_commands_of_the_readme():
    ci = ROOT / ".ci" / "run"
    assert os.access(ci, os.X_OK)
    lines = commands_of_ci()
    assert {"make setup", "make check", "make test", ".venv/bin/rdchat doctor"} <= set(lines)
    assert any(line.startswith(".venv/bin/rdchat ask ") for line in lines)
    assert ".venv/bin/python scripts/smoke.py" in lines  # xvfb-run -a make run
    assert "make git" in ci.read_text()  # what a bare Debian lacks of that


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]


def test_the_workflow_runs_the_commands_of_the_readme_on_linux_and_on_macs(workflow: dict[str, Any]):
    job = workflow["readme"]
    assert job["strategy"]["matrix"]["system"] == ["ubuntu-24.04", "macos-15", "macos-26", "xcode-27"]
    steps = [step.get("run", "") for step in job["steps"]]
    for command in (line for line in commands_of_ci() if line.startswith(("make ", ".venv/"))):
        assert command in steps
    assert any(step.startswith(".venv/bin/rdchat report --out rdchat-report-") for step in steps)


def test_of_the_workflow_a_step_that_fails_skips_no_other(workflow: dict[str, Any]):
    """A failed check skipped the tests, the window, the answer and `doctor` on each Mac."""
    steps = workflow["readme"]["steps"]
    names = [step.get("run", "").partition(" --")[0] for step in steps]
    begin = names.index(".venv/bin/python scripts/smoke.py")
    assert [step.get("name") for step in steps[begin:] if step.get("if") != "${{ !cancelled() }}"] == []
    assert names.index(".venv/bin/rdchat doctor") < names.index("make check") < names.index("make test")


def test_the_workflow_runs_each_week_with_the_newest_packages(workflow: dict[str, Any]):
    triggers = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())[True]  # YAML 1.1 reads `on` so
    assert [len(each["cron"].split()) for each in triggers["schedule"]] == [5]
    for name in ("readme", "app"):
        (step,) = [step for step in workflow[name]["steps"] if "make constraints" in step.get("run", "")]
        assert step["if"] == "${{ env.NEWEST == 'true' }}"


def test_an_image_is_kept_started_and_its_logs_kept(workflow: dict[str, Any]):
    steps = workflow["app"]["steps"]
    paths = [step.get("with", {}).get("path", step.get("run", "")).split("\n")[0] for step in steps]
    order = ["make app", "dist/rdchat-*.dmg", "bash scripts/smoke-app.sh dist/rdchat-*.dmg ${{ matrix.macos }}", "logs"]
    assert [path for path in paths if path in order] == order
    assert "logs/" in (ROOT / ".gitignore").read_text().split()


def test_the_app_is_started_where_nothing_of_the_project_is_installed(workflow: dict[str, Any]):
    job = workflow["start-app"]
    assert job["needs"] == "app"
    (run,) = (step["run"] for step in job["steps"] if "run" in step)
    assert run == "bash scripts/smoke-app.sh rdchat-*.dmg ${{ matrix.macos }}"
    assert job["strategy"]["matrix"]["exclude"] == [{"system": "macos-15", "macos": "26.2"}]
    assert {"with": {"sparse-checkout": "scripts"}}.items() <= job["steps"][0].items()


def test_names_of_what_the_workflow_keeps_are_its_own(workflow: dict[str, Any]):
    """A second artifact of a name is refused, so that each names what its job is repeated over."""
    for job in workflow.values():
        for step in job["steps"]:
            if "upload-artifact" in step.get("uses", ""):
                assert all(
                    f"matrix.{key}" in step["with"]["name"] for key in job["strategy"]["matrix"].keys() - {"exclude"}
                )


def test_the_workflows_scripts_exist(workflow: dict[str, Any]):
    named = re.findall(r"scripts/[\w.-]+\.(?:sh|py)", str(workflow))
    assert len(named) >= 3
    assert all((ROOT / name).exists() for name in named)


@pytest.fixture
def check_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which checks a folder of its own."""
    module = script("check_files")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_files_are_listed_in_another_users_clone(tmp_path: Path, check_files: ModuleType):
    """git calls its ownership dubious, and lists nothing."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "notes.md").write_text("fine")
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 65534, 65534)
    assert [path.name for path in check_files.files()] == ["notes.md"]


def test_without_git_the_check_says_so(tmp_path: Path, check_files: ModuleType, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SystemExit, match="git says: fatal: not a git repository"):
        check_files.files()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="install git"):
        check_files.files()


def test_make_alone_lists_the_commands():
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("make setup", "make run", "make test", "make check", "make bench"):
        assert command in listed


@pytest.mark.parametrize(
    "line",
    [
        "model = '/ro" + "ot/models'",
        "see /home" + "/ada/rdchat",
        "PATH=/Users" + "/Ada/bin",
        "pip install --index-" + "url https://registry.example/any rdchat",
        "https://registry.example/" + "simple/rdchat",
    ],
)
def test_a_machine_path_or_registry_address_is_found(tmp_path: Path, check_files: ModuleType, line: str):
    path = tmp_path / "notes.md"
    path.write_text(f"fine\n{line}\n")
    assert [problem.split(":")[:2] for problem in check_files.problems_of(path, frozenset())] == [["notes.md", "2"]]


@pytest.mark.parametrize(
    "line", ["see docs/work/plan.md", "https://example.org/work/plan", "~/work/notes", "a simple thing"]
)
def test_ordinary_text_is_let_through(tmp_path: Path, check_files: ModuleType, line: str):
    path = tmp_path / "notes.md"
    path.write_text(line)
    assert list(check_files.problems_of(path, frozenset({"registry.example"}))) == []


@pytest.mark.slow
def test_a_configured_registry_host_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://packages.example:8443/simp" + "le")
    assert "packages.example" in script("check_files").registry_hosts()
