"""A macOS that is too old, and a refused local network, are reported."""

import platform

import pytest

from rdchat import cli, host


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
