"""What of the double-clickable app can be checked where there is no Mac: its configuration, icon set and plist."""

import platform
import plistlib
import struct
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

import rdchat
from rdchat import host
from tests.project.scripts import ROOT, script


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


def test_it_opens_the_files_that_can_be_loaded(app: dict[str, Any]) -> None:
    (kind,) = app["document_type"].values()
    assert kind["extension"] == "gguf"
    assert kind["icon"] == app["icon"]
    assert (kind["macOS"]["CFBundleTypeRole"], kind["macOS"]["LSHandlerRank"]) == ("Viewer", "Alternate")


def test_what_it_adds_to_the_plist_is_what_a_plist_can_hold(app: dict[str, Any]) -> None:
    assert plistlib.loads(plistlib.dumps(app["macOS"]["info"])) == app["macOS"]["info"]
    assert app["macOS"]["info"]["NSHighResolutionCapable"] is True


def test_the_icon_set_has_every_size(qtbot: QtBot, app: dict[str, Any]) -> None:
    render_icon = script("render_icon")
    content = render_icon.icns()
    mark, length = struct.unpack(">4sI", content[:8])
    assert (mark, length) == (b"icns", len(content))
    sizes, place = {}, 8
    while place < len(content):
        kind, length = struct.unpack(">4sI", content[place : place + 8])
        picture = content[place + 8 : place + length]
        assert picture.startswith(b"\x89PNG")
        sizes[kind] = struct.unpack(">II", picture[16:24])
        place += length
    assert sizes == {kind: (size, size) for kind, size in render_icon.ICNS_TYPES.items()}
    assert set(render_icon.ICNS_TYPES.values()) == {16, 32, 64, 128, 256, 512, 1024}
    assert f"--icns {app['icon']}.icns" in (ROOT / "scripts" / "build-app.sh").read_text()


@pytest.mark.skipif(platform.system() == "Darwin", reason="it would build it")
def test_elsewhere_make_app_says_that_it_needs_a_mac() -> None:
    done = subprocess.run(["make", "-s", "app"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith(
        "The app can be built on a Mac only: Briefcase puts it together with macOS's own tools."
    )
