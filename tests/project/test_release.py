"""What a release consists of is built and checked by `make release`; a person does the rest."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project.scripts import ROOT, write_program

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEPS = re.findall(r"^(\d)\. ", (ROOT / "docs/releasing.md").read_text(), re.MULTILINE)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the script, its page, what earlier builds left, and stand-ins for uv and twine."""
    for name in ("scripts/release.sh", "docs/releasing.md"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "dist").mkdir()
    for name in ("rdchat-0.whl", "rdchat-0.tar.gz", "rdchat-0.dmg"):
        (tmp_path / "dist" / name).touch()
    write_program(tmp_path / ".venv/bin/uv", "touch dist/rdchat-1.whl dist/rdchat-1.tar.gz")
    write_program(tmp_path / ".venv/bin/uvx", 'echo "uvx $*"')
    return tmp_path


def _release(clone: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(clone / "scripts/release.sh")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_was_built_is_checked_and_the_next_steps_are_told(clone: Path) -> None:
    done = _release(clone)
    assert done.returncode == 0, done.stderr
    checked, *rest = done.stdout.splitlines()
    assert checked.endswith("twine check --strict dist/rdchat-1.whl dist/rdchat-1.tar.gz")
    told = [line[0] for line in rest if re.match(r"\d\. ", line)]
    assert told == STEPS[STEPS.index("3") + 1 :]
    assert (clone / "dist/rdchat-0.dmg").exists()


def test_what_the_check_refuses_is_no_release(clone: Path) -> None:
    write_program(clone / ".venv/bin/uvx", "exit 1")
    done = _release(clone)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_pythons_that_are_named_are_those_that_are_allowed() -> None:
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language")]
    least, most = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert named == [f"3.{minor}" for minor in range(int(least), int(most))]


def test_no_address_is_named_that_does_not_exist() -> None:
    assert "urls" not in PROJECT
    assert [author.keys() for author in PROJECT["authors"]] == [{"name"}]


@pytest.mark.parametrize("form", ["problem", "report"])
def test_an_issue_brings_what_doctor_prints(form: str) -> None:
    text = (ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text()
    assert "://" not in text
    (field,) = [field for field in yaml.safe_load(text)["body"] if field["id"] == "doctor"]
    assert "`rdchat doctor`" in field["attributes"]["label"]
    assert field["validations"]["required"]
