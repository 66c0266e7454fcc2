"""Looking for a display before Qt does, which would end the process without one."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdchat.host import has_display

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac always has one")
NOWHERE = ":59077"


@contextmanager
def xvfb(*options: str) -> Iterator[str]:
    """A virtual display of our own; the name of it."""
    if (program := shutil.which("Xvfb")) is None:
        pytest.skip("Xvfb is not installed")
    read, write = os.pipe()
    command = [program, "-displayfd", str(write), "-nolisten", "tcp", *options]
    with subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL) as process:
        os.close(write)
        with os.fdopen(read) as told:
            yield f":{told.readline().strip()}"
        process.terminate()


@pytest.fixture(scope="module")
def x_server() -> Iterator[str]:
    with xvfb() as display:
        yield display


@pytest.fixture
def compositor(tmp_path: Path) -> Iterator[str]:
    """A socket as a Wayland compositor opens it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "wayland-7"))
        listening.listen()
        yield "wayland-7"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"DISPLAY": ""},
        {"DISPLAY": NOWHERE},
        {"DISPLAY": "nonsense"},
        {"WAYLAND_DISPLAY": "wayland-nowhere", "XDG_RUNTIME_DIR": "/"},
        {"QT_QPA_PLATFORM": "xcb"},
        {"QT_QPA_PLATFORM": "xcb", "DISPLAY": NOWHERE},
        {"QT_QPA_PLATFORM": "wayland"},
        {"QT_QPA_PLATFORM": "wayland-egl;xcb:option"},
    ],
    ids=str,
)
def test_no_display(environment: dict[str, str]) -> None:
    assert not has_display(environment)


def test_an_x_server(x_server: str) -> None:
    assert has_display({"DISPLAY": x_server})
    assert has_display({"DISPLAY": x_server, "QT_QPA_PLATFORM": "xcb"})
    assert has_display({"DISPLAY": x_server, "WAYLAND_DISPLAY": "gone"})
    assert not has_display({"DISPLAY": x_server, "QT_QPA_PLATFORM": "wayland"})


def test_an_x_server_is_still_there_when_qt_connects() -> None:
    """It starts anew, or ends, as the last client leaves; under load a look in five was refused meanwhile."""
    with xvfb("-terminate") as display:
        assert has_display({"DISPLAY": display})
        assert has_display({"DISPLAY": display})


def test_a_wayland_compositor(compositor: str, tmp_path: Path) -> None:
    environment = {"WAYLAND_DISPLAY": compositor, "XDG_RUNTIME_DIR": str(tmp_path)}
    assert has_display(environment)
    assert has_display({"WAYLAND_DISPLAY": str(tmp_path / compositor)})
    assert has_display(environment | {"QT_QPA_PLATFORM": "wayland", "DISPLAY": NOWHERE})
    assert not has_display(environment | {"QT_QPA_PLATFORM": "xcb", "DISPLAY": NOWHERE})


def test_offscreen_needs_none() -> None:
    assert has_display({"QT_QPA_PLATFORM": "offscreen"})
    assert has_display({"QT_QPA_PLATFORM": "xcb;offscreen"})


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [{"DISPLAY": NOWHERE}, {"QT_QPA_PLATFORM": "xcb"}], ids=str)
def test_rdchat_says_so_instead_of_being_aborted(chosen: dict[str, str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("DISPLAY")}
    kept.pop("QT_QPA_PLATFORM", None)
    command = [sys.executable, "-m", "rdchat"]
    done = subprocess.run(command, env=kept | chosen, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "rdchat: There is no display to open a window on. "
        "Run it on a desktop, or on a virtual display: xvfb-run -a make run\n"
    )
