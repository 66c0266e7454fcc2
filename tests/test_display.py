"""Looking for a display before Qt does, which would end the process without one."""

import os
import subprocess
import sys

import pytest

from rdchat.host import has_display

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac always has one")


@pytest.mark.parametrize(
    "environment",
    [{}, {"DISPLAY": ""}, {"QT_QPA_PLATFORM": "xcb"}, {"QT_QPA_PLATFORM": "wayland-egl;xcb:option"}],
    ids=str,
)
def test_no_display(environment: dict[str, str]) -> None:
    assert not has_display(environment)


@pytest.mark.parametrize(
    "environment",
    [
        {"DISPLAY": ":0"},
        {"DISPLAY": ":0", "QT_QPA_PLATFORM": "xcb"},
        {"WAYLAND_DISPLAY": "wayland-0"},
        {"WAYLAND_SOCKET": "7"},
        {"QT_QPA_PLATFORM": "offscreen"},
        {"QT_QPA_PLATFORM": "xcb;offscreen"},
    ],
    ids=str,
)
def test_a_display_or_a_platform_without_one(environment: dict[str, str]) -> None:
    assert has_display(environment)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [{}, {"QT_QPA_PLATFORM": "xcb"}], ids=str)
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
