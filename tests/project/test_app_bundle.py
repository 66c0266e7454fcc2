"""What can be checked of the double-clickable app without a Mac: its configuration, icon set and plist."""

import os
import platform
import shutil
import subprocess
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL.IcnsImagePlugin import IcnsFile
from PIL.PngImagePlugin import PngImageFile
from pytestqt.qtbot import QtBot

import rdchat
from rdchat import host
from rdchat.hub import updates
from rdchat.services.app import start_request
from tests.project.scripts import ROOT, script, write_program


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def app(pyproject: dict[str, Any]) -> dict[str, Any]:
    briefcase = pyproject["tool"]["briefcase"]
    assert set(briefcase["app"]) == {"rdchat"}
    return briefcase["app"]["rdchat"]


def test_it_asks_for_the_macos_that_qt_needs_and_apple_silicon(app: dict[str, Any]) -> None:
    assert tuple(map(int, app["macOS"]["min_os_version"].split("."))) == host.OLDEST_MACOS
    assert app["macOS"]["universal_build"] is False


def test_it_holds_the_package_with_its_entry_point_and_pip(app: dict[str, Any]) -> None:
    """Briefcase runs `python -m rdchat`; the default model is fetched with pip, which a bundle has not by itself."""
    (source,) = app["sources"]
    assert ROOT / source == Path(rdchat.__file__).parent
    assert (ROOT / source / "__main__.py").exists()
    assert any(requirement.startswith("pip>=") for requirement in app["requires"])
    assert app["requirement_installer_args"] == ["--constraint", "./constraints.txt"]
    assert (ROOT / "constraints.txt").exists()


def test_of_qt_it_holds_the_essentials_only(pyproject: dict[str, Any], app: dict[str, Any]) -> None:
    wanted = pyproject["project"]["dependencies"] + app["requires"]
    assert [name for name in wanted if name.startswith("PySide6")] == ["PySide6-Essentials>=6.12"]


def test_it_removes_paths_of_its_packages_and_of_its_python_alone(app: dict[str, Any]) -> None:
    ours = ("rdchat.app/Contents/Resources/app_packages/", "rdchat.app/Contents/Frameworks/Python.framework/")
    assert all(path.startswith(ours) for path in app["macOS"]["cleanup_paths"])
    assert not any("{" in path for path in app["macOS"]["cleanup_paths"]), "Briefcase formats them"


def test_it_opens_the_files_that_can_be_loaded(app: dict[str, Any]) -> None:
    kinds = app["document_type"].values()
    assert [kind["extension"] for kind in kinds] == ["txt", "pdf", "docx", "png"]
    for kind in kinds:
        assert kind["icon"] == app["icon"]
        assert (kind["macOS"]["CFBundleTypeRole"], kind["macOS"]["LSHandlerRank"]) == ("Viewer", "Alternate")
        assert kind["macOS"]["is_core_type"] is ("LSItemContentTypes" in kind["macOS"])


def test_it_opens_the_addresses_that_the_app_reads(app: dict[str, Any]) -> None:
    (kind,) = app["macOS"]["info"]["CFBundleURLTypes"]
    assert kind["CFBundleURLSchemes"] == [start_request.SCHEME]


def test_a_signed_app_may_make_code_as_it_runs_and_ask_to_control_other_apps(app: dict[str, Any]) -> None:
    """Another app with MLX was ended without the first, also with the two that Briefcase gives by itself.

    Without the other and a reason, macOS refuses AppleScript to what a signed app starts, and asks nobody.
    """
    rights = {"com.apple.security.cs.allow-jit", "com.apple.security.automation.apple-events"}
    assert app["macOS"]["entitlement"] == dict.fromkeys(rights, True)
    assert "other apps" in app["macOS"]["info"]["NSAppleEventsUsageDescription"]


def test_the_icon_set_has_every_size(qtbot: QtBot, app: dict[str, Any]) -> None:
    render_icon = script("render_icon")
    content = render_icon.icns()
    pictures = IcnsFile(BytesIO(content)).dct
    sizes = {kind: PngImageFile(BytesIO(content[at:][:length])).size for kind, (at, length) in pictures.items()}
    assert sizes == {kind: (size, size) for kind, size in render_icon.ICNS_TYPES.items()}
    assert set(render_icon.ICNS_TYPES.values()) == {16, 32, 64, 128, 256, 512, 1024}
    assert f"--icns {app['icon']}.icns" in (ROOT / "scripts" / "build-app.sh").read_text()


@pytest.mark.skipif(platform.system() == "Darwin", reason="it would build it")
def test_elsewhere_make_app_says_that_it_needs_a_mac() -> None:
    done = subprocess.run(["make", "-s", "app"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith(
        "The app can be built on a Mac only: Briefcase puts it together with macOS's own tools."
    )


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    """A project folder with the app's scripts, and stand-ins for Python, Briefcase and macOS that say what they do."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    write_program(
        tmp_path / ".venv/bin/python", 'case "$1" in -c) echo "$PYTHON_VERSION" ;; *) echo "python $*" ;; esac'
    )
    write_program(tmp_path / ".venv/bin/briefcase", 'echo "briefcase $*"; mkdir -p dist; touch dist/rdchat-1.dmg')
    write_program(tmp_path / "bin/uname", "echo Darwin")
    (tmp_path / "rdchat").mkdir()
    (tmp_path / "rdchat" / "__init__.py").write_text('__version__ = "1"\n')
    write_program(tmp_path / "bin/plutil", "exit 3")
    write_program(tmp_path / "bin/sleep", "")
    return tmp_path


def _run(mac: Path, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{mac / 'bin'}:{os.environ['PATH']}", **variables}
    command = ["bash", str(mac / "scripts" / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def _built(mac: Path, **variables: str) -> list[str]:
    """Return the lines that a build prints."""
    done = _run(mac, "build-app.sh", PYTHON_VERSION="3.13", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_bundle_is_compiled_before_it_is_signed(mac: Path) -> None:
    """Briefcase removes compiled modules and its stub writes none, so that every child compiled everything anew."""
    steps = [line for line in _built(mac) if "compileall" in line or line.startswith("briefcase")]
    assert [step.split()[1] for step in steps] == ["create", "-m", "-m", "-m", "build", "package"]
    assert all("--invalidation-mode unchecked-hash" in step for step in steps[1:4])


@pytest.mark.parametrize(("macos", "image"), [("", "rdchat-1.dmg"), ("26.2", "rdchat-1-macos26.2.dmg")])
def test_a_second_image_is_for_the_macos_that_has_a_faster_mlx(mac: Path, macos: str, image: str) -> None:
    lines = _built(mac, RDCHAT_MACOS=macos)
    assert lines[-1] == f"dist/{image}"
    steps = [line for line in lines if line.startswith("briefcase")]
    target = ' --config min_os_version="26.2"' if macos else ""
    assert [step.partition(" --packaging")[0] for step in steps] == [
        f"briefcase {step} macOS app --no-input{target}" for step in ("create", "build", "package")
    ]


@pytest.mark.parametrize(("failures", "image", "tries"), [(2, False, 3), (9, False, 3), (9, True, 1)])
def test_an_image_is_made_again_until_it_is_there(mac: Path, failures: int, image: bool, tries: int) -> None:
    """`hdiutil` says now and then that a resource is busy; one that could not be notarised stays as it is."""
    steps = mac / "steps"
    failing = f"""[ "$1" = package ] || exit 0
        echo "$*" >>"{steps}"
        mkdir -p dist
        [ {int(image)} = 0 ] || touch dist/rdchat-1.dmg
        [ "$(grep -c . "{steps}")" -gt {failures} ] || exit 1
        touch dist/rdchat-1.dmg"""
    write_program(mac / ".venv/bin/briefcase", failing)
    done = _run(mac, "build-app.sh", PYTHON_VERSION="3.13")
    assert len(steps.read_text().splitlines()) == tries
    assert (done.returncode == 0) is (failures < tries)
    assert ("Open Anyway" in done.stderr) is (done.returncode == 0)


def test_an_image_is_mounted_again_while_it_is_busy(mac: Path) -> None:
    busy = f'echo "$1" >>"{mac}/calls"; [ "$(grep -c "$1" "{mac}/calls")" = 3 ] || exit 1; mkdir -p "$6/rdchat.app"'
    write_program(mac / "bin/hdiutil", busy)
    done = _run(mac, "smoke-app.sh", str(mac / "rdchat.dmg"))
    assert (mac / "calls").read_text().split() == ["attach"] * 3 + ["detach"] * 3
    assert "plutil" in done.stderr


@pytest.mark.parametrize("address", ["", "https://example.org/newest.json"])
def test_the_address_for_new_versions_is_written_into_the_bundle(mac: Path, address: str) -> None:
    package = mac / "build/rdchat/macos/app/rdchat.app/Contents/Resources/app/rdchat"
    making = f'[ "$1" != create ] || mkdir -p {package}; mkdir -p dist; touch dist/rdchat-1.dmg'
    write_program(mac / ".venv/bin/briefcase", making)
    _built(mac, RDCHAT_UPDATES_ADDRESS=address)
    written = package / "updates_address"
    assert (written.read_text().strip() if written.exists() else "") == address
    assert updates._FILE.name == written.name


def test_the_variants_that_are_built_are_those_that_the_resolver_is_asked_for(app: dict[str, Any]) -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    plain, accelerated = script("constraints").BUNDLES
    assert plain == app["macOS"]["min_os_version"]
    assert accelerated == ".".join(map(str, host.ACCELERATED_MACOS))
    assert f"macos: ['', '{accelerated}']" in workflow


def test_of_a_packages_wheels_the_one_for_the_newest_macos_is_taken() -> None:
    wheels = [f"https://host/mlx-1-cp313-cp313-macosx_{version}_arm64.whl" for version in ("14_0", "26_0", "15_0")]
    assert script("constraints").newest_platform(wheels) == "macosx_26_0_arm64"
    assert script("constraints").newest_platform(["https://host/a-1-py3-none-any.whl"]) == "any"


def test_a_python_whose_bundle_prints_nothing_is_refused(mac: Path) -> None:
    done = _run(mac, "build-app.sh", PYTHON_VERSION="3.14")
    assert done.returncode == 1
    assert done.stderr.startswith("The app needs Python 3.12 or 3.13, and .venv has 3.14.")
    assert done.stdout == ""


def test_the_smoke_test_says_what_failed(mac: Path) -> None:
    """It ended without a word where a program failed outside a condition."""
    done = _run(mac, "smoke-app.sh", str(mac / "rdchat.app"))
    assert done.returncode == 1
    assert "failed: " in done.stderr
    assert "plutil" in done.stderr
