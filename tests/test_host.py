"""Calls to macOS never cost a reply, and a macOS that is too old is reported."""

import logging
import platform
import sys
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Self

import pytest

from rdchat import cli, host


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_a_reply_is_written_where_sleep_cannot_be_held_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a Mac whose frameworks are elsewhere: here they are nowhere."""
    monkeypatch.setattr(host, "MACOS", True)
    written = False
    with host.keep_awake():
        written = True
    assert written
    assert "could not be held off" in caplog.text


class ProcessInfo:
    """NSProcessInfo, which fails to end an activity."""

    reasons: list[str]

    def __init__(self) -> None:
        self.reasons = []

    def processInfo(self) -> Self:
        return self

    def beginActivityWithOptions_reason_(self, options: int, reason: str) -> str:
        self.reasons.append(reason)
        return "activity"

    def endActivity_(self, activity: str) -> None:
        assert activity == "activity"
        raise OSError("no such selector")

    def isLowPowerModeEnabled(self) -> bool:
        return True

    def thermalState(self) -> int:
        return 3


@pytest.fixture
def foundation(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyObjC's Foundation, as far as it is used."""
    information: dict[str, str] = {}
    bundle = SimpleNamespace(infoDictionary=lambda: information)
    made = SimpleNamespace(
        NSProcessInfo=ProcessInfo(), NSBundle=SimpleNamespace(mainBundle=lambda: bundle), NSActivityUserInitiated=1
    )
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setitem(sys.modules, "Foundation", made)
    return made


def test_a_failure_at_the_end_is_logged_and_hides_no_error_of_the_reply(
    foundation: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with host.keep_awake():
        assert foundation.NSProcessInfo.reasons == ["rdchat is working"]
        assert not caplog.records
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with pytest.raises(ZeroDivisionError), host.keep_awake():
        raise ZeroDivisionError


def test_the_state_of_the_machine_is_read(foundation: SimpleNamespace) -> None:
    assert host.low_power_mode()
    assert host.is_hot()


def test_the_menu_bar_gets_the_name_before_qt_starts(foundation: SimpleNamespace) -> None:
    host.name_app("rdchat")
    assert foundation.NSBundle.mainBundle().infoDictionary() == {"CFBundleName": "rdchat"}


def test_information_that_cannot_be_changed_is_left_alone(
    foundation: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    foundation.NSBundle.mainBundle().infoDictionary = lambda: MappingProxyType({})
    host.name_app("rdchat")
    assert "may say Python" in caplog.text


@pytest.mark.skipif(host.MACOS, reason="for where those frameworks are missing")
def test_an_app_without_a_name_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "MACOS", True)
    host.name_app("rdchat")
    assert "may say Python" in caplog.text


class Panel:
    """The NSPanel of a view, which notes what is done with it."""

    def __init__(self, *, old: bool = False) -> None:
        self.done: list[object] = []
        self._old = old

    def window(self) -> Self:
        return self

    def styleMask(self) -> int:
        return 0b1

    def setStyleMask_(self, mask: int) -> None:
        self.done.append(("mask", mask))

    def respondsToSelector_(self, selector: str) -> bool:
        return selector == "_setPreventsActivation:" and not self._old

    def _setPreventsActivation_(self, prevents: bool) -> None:
        self.done.append(("prevents", prevents))

    def setCollectionBehavior_(self, behavior: int) -> None:
        self.done.append(("behavior", behavior))

    def orderFrontRegardless(self) -> None:
        self.done.append("front")

    def makeKeyWindow(self) -> None:
        self.done.append("key")


@pytest.fixture
def kit(foundation: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyObjC's AppKit, as far as it is used, with AppKit's own numbers."""
    made = SimpleNamespace(
        NSWindowStyleMaskNonactivatingPanel=1 << 7,
        NSWindowCollectionBehaviorCanJoinAllSpaces=1 << 0,
        NSWindowCollectionBehaviorFullScreenAuxiliary=1 << 8,
    )
    monkeypatch.setitem(sys.modules, "AppKit", made)
    return made


@pytest.mark.parametrize("old", [False, True])
def test_a_panel_is_shown_over_programs_without_making_the_app_active(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """`NSApp.activate` brings the main window along, so it is not called: there is none here."""
    panel = Panel(old=old)
    views = {0xBEEF: panel}
    monkeypatch.setitem(sys.modules, "objc", SimpleNamespace(objc_object=lambda c_void_p: views[c_void_p]))
    assert host.show_over_programs(0xBEEF, lambda: panel.done.append("shown"))
    prevents = [] if old else [("prevents", True)]
    assert panel.done == [("mask", 0b1000_0001), *prevents, ("behavior", 0b1_0000_0001), "shown", "front", "key"]


def test_a_panel_that_appkit_refuses_is_not_shown_so_that_qt_can(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "objc", SimpleNamespace(objc_object=lambda c_void_p: Panel().missing))
    assert not host.show_over_programs(0xBEEF, lambda: None)
    assert "may come to the front too" in caplog.text


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


def test_an_image_is_converted_by_the_system_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "MACOS", False)
    assert host.convert_to_tiff(tmp_path / "a.heic", tmp_path / "a.tiff") is False
    # The program is missing here, and refuses what is no image on a Mac.
    monkeypatch.setattr(host, "MACOS", True)
    assert host.convert_to_tiff(tmp_path / "a.heic", tmp_path / "a.tiff") is False


@pytest.mark.parametrize(("is_dragged", "kinds", "taken"), [
    (False, ("public.tiff", "public.png"), "general public.png"),
    (True, ("public.tiff", "public.png"), "drag public.png"),
    (True, ("public.tiff",), "drag public.tiff"),
    (False, ("public.utf8-plain-text",), ""),
])  # fmt: skip
def test_an_image_of_the_pasteboard_is_taken_as_its_program_encoded_it(
    *, is_dragged: bool, kinds: tuple[str, ...], taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pasteboard:
        """NSPasteboard, as far as it is used."""

        def __init__(self, name: str) -> None:
            self.name = name

        def availableTypeFromArray_(self, wanted: tuple[str, ...]) -> str | None:
            return next((kind for kind in wanted if kind in kinds), None)

        def dataForType_(self, kind: str) -> bytes:
            return f"{self.name} {kind}".encode()

    boards = SimpleNamespace(pasteboardWithName_=Pasteboard, generalPasteboard=lambda: Pasteboard("general"))
    monkeypatch.setitem(sys.modules, "AppKit", SimpleNamespace(NSPasteboard=boards, NSPasteboardNameDrag="drag"))
    monkeypatch.setattr(host, "MACOS", False)
    assert host.pasteboard_image(is_dragged=is_dragged) == b""
    monkeypatch.setattr(host, "MACOS", True)
    assert host.pasteboard_image(is_dragged=is_dragged) == taken.encode()


def test_a_promised_file_is_known_by_its_pasteboard(monkeypatch: pytest.MonkeyPatch) -> None:
    board = SimpleNamespace(availableTypeFromArray_=lambda wanted: wanted[0])
    boards = SimpleNamespace(pasteboardWithName_=lambda _name: board)
    monkeypatch.setitem(sys.modules, "AppKit", SimpleNamespace(NSPasteboard=boards, NSPasteboardNameDrag="drag"))
    for is_mac in (False, True):
        monkeypatch.setattr(host, "MACOS", is_mac)
        assert host.is_file_promised() is is_mac
