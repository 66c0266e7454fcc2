"""A macOS that is too old, a refused local network and a missing display are reported."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import cli, host
from rdchat.host import has_display


@pytest.mark.parametrize(
    ("version", "outdated"),
    [("", ""), ("13.7.1", "13.7.1"), ("14.0", "14.0"), ("14.3.1", "14.3.1"), ("14.4", ""), ("15.1", ""), ("26.0", "")],
)
def test_macos_before_14_4_is_too_old(version: str, outdated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "mac_ver", lambda: (version, ("", "", ""), "arm64"))
    assert host.outdated_macos() == outdated


def test_the_first_start_says_that_macos_is_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14.2.1", ("", "", ""), "arm64"))
    assert cli.main([]) == 1
    assert capsys.readouterr().err == (
        "rdchat: rdchat's window needs macOS 14.4 or later; this Mac has 14.2.1. "
        "Update it in System Settings > General > Software Update. `rdchat ask` works without a window.\n"
    )


@pytest.mark.parametrize(("error", "is_refusal"), [
    ("ssh: connect to host studio.local port 22: No route to host", True),
    (OSError(65, "No route to host"), True),
    ("[ring] Couldn't connect (error: 65)", True),
    ("[ring] Couldn't connect (last error: 61)", False),
    ("[ring] Couldn't connect (error: 651)", False),
    ("Permission denied (publickey).", False),
])  # fmt: skip
def test_a_refused_local_network_is_known_by_its_error(error: object, is_refusal: bool) -> None:
    assert bool(host.local_network_hint(error)) is is_refusal


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac always has one")
@pytest.mark.parametrize(
    ("environment", "has_one"),
    [
        ({}, False),
        ({"DISPLAY": ""}, False),
        ({"QT_QPA_PLATFORM": "xcb"}, False),
        ({"QT_QPA_PLATFORM": "wayland-egl;xcb:option"}, False),
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "xcb"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"WAYLAND_SOCKET": "7"}, True),
        ({"QT_QPA_PLATFORM": "offscreen"}, True),
        ({"QT_QPA_PLATFORM": "xcb;offscreen"}, True),
    ],
    ids=str,
)
def test_a_display_is_there_or_not_needed(
    environment: dict[str, str], has_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MACOS", False)
    assert has_display(environment) is has_one


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac always has one")
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
        f"Run it on a desktop, or on a virtual display: xvfb-run -a {host.own_command()}\n"
    )


def test_a_command_that_is_printed_can_be_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `make run` no shell knows `rdchat`, and after `uv tool install` nothing knows `make setup`."""
    program = tmp_path / "a folder" / "rdchat"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    assert host.own_command() == f"'{program}'"
    program.touch(0o700)
    assert host.own_command() == "rdchat"
    assert host.reinstalling() == "rm -rf .venv && make setup"
    monkeypatch.setattr(host, "__file__", str(tmp_path / "site-packages" / "rdchat" / "host.py"))
    assert "make" not in host.reinstalling()
