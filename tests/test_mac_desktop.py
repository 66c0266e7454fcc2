"""Calls to a Mac's desktop, and Carbon's hot keys, do what they should, or nothing where it refuses them."""

import ctypes
import sys
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Self

import pytest

from rdchat import host, mac_desktop
from rdchat.mac_desktop import HotKey, Pair
from tests.carbon import EXISTS, Carbon


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyObjC's Foundation with the main bundle."""
    monkeypatch.setattr(host, "MACOS", True)
    made = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "Foundation", SimpleNamespace(NSBundle=SimpleNamespace(mainBundle=lambda: made)))
    return made


def test_the_menu_bar_gets_the_name_before_qt_starts(bundle: SimpleNamespace) -> None:
    information: dict[str, str] = {}
    bundle.infoDictionary = lambda: information
    mac_desktop.name_app("rdchat")
    assert information == {"CFBundleName": "rdchat"}


def test_information_that_cannot_be_changed_is_left_alone(
    bundle: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    bundle.infoDictionary = lambda: MappingProxyType({})
    mac_desktop.name_app("rdchat")
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
def kit(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyObjC's AppKit, as far as it is used, with AppKit's own numbers."""
    made = SimpleNamespace(
        NSWindowStyleMaskNonactivatingPanel=1 << 7,
        NSWindowCollectionBehaviorCanJoinAllSpaces=1 << 0,
        NSWindowCollectionBehaviorFullScreenAuxiliary=1 << 8,
    )
    monkeypatch.setattr(host, "MACOS", True)
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
    assert mac_desktop.show_over_programs(0xBEEF, lambda: panel.done.append("shown"))
    prevents = [] if old else [("prevents", True)]
    assert panel.done == [("mask", 0b1000_0001), *prevents, ("behavior", 0b1_0000_0001), "shown", "front", "key"]


def test_a_panel_that_appkit_refuses_is_not_shown_so_that_qt_can(
    kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "objc", SimpleNamespace(objc_object=lambda c_void_p: Panel().missing))
    assert not mac_desktop.show_over_programs(0xBEEF, lambda: None)
    assert "may come to the front too" in caplog.text


def test_an_image_is_converted_by_the_system_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "MACOS", False)
    assert mac_desktop.convert_to_tiff(tmp_path / "a.heic", tmp_path / "a.tiff") is False
    # The program is missing here, and refuses what is no image on a Mac.
    monkeypatch.setattr(host, "MACOS", True)
    assert mac_desktop.convert_to_tiff(tmp_path / "a.heic", tmp_path / "a.tiff") is False


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
    assert mac_desktop.pasteboard_image(is_dragged=is_dragged) == b""
    monkeypatch.setattr(host, "MACOS", True)
    assert mac_desktop.pasteboard_image(is_dragged=is_dragged) == taken.encode()


def test_a_promised_file_is_known_by_its_pasteboard(monkeypatch: pytest.MonkeyPatch) -> None:
    board = SimpleNamespace(availableTypeFromArray_=lambda wanted: wanted[0])
    boards = SimpleNamespace(pasteboardWithName_=lambda _name: board)
    monkeypatch.setitem(sys.modules, "AppKit", SimpleNamespace(NSPasteboard=boards, NSPasteboardNameDrag="drag"))
    for is_mac in (False, True):
        monkeypatch.setattr(host, "MACOS", is_mac)
        assert mac_desktop.is_file_promised() is is_mac


@pytest.fixture
def carbon() -> Carbon:
    return Carbon()


@pytest.fixture
def pressed() -> list[int]:
    return []


@pytest.fixture
def hot_key(carbon: Carbon, pressed: list[int]) -> HotKey:
    return HotKey(lambda: pressed.append(1), carbon)


def test_its_structures_are_laid_out_as_carbons() -> None:
    """EventTypeSpec and EventHotKeyID are two 32-bit numbers each."""
    assert ctypes.sizeof(Pair) == 8
    assert bytes(Pair(int.from_bytes(b"keyb"), 5)) == (0x6B657962).to_bytes(4, "little") + (5).to_bytes(4, "little")


def test_the_handler_is_installed_once(carbon: Carbon, hot_key: HotKey, pressed: list[int]) -> None:
    """A pointer does not fit the usual result of a C function."""
    assert carbon.GetApplicationEventTarget.restype is ctypes.c_void_p
    ((target, handler, count, kinds, data, reference),) = carbon.InstallEventHandler.calls
    assert (target.value, count.value, data, reference) == (0x7FFF_0000_1234, 1, None, None)
    assert (kinds._obj.first, kinds._obj.second) == (int.from_bytes(b"keyb"), 5)
    assert handler(None, None, None) == 0
    assert pressed == [1]


@pytest.mark.parametrize(
    ("keys", "code", "modifiers"),
    [
        ("Ctrl+Alt+Space", 0x31, 0x100 | 0x800),
        ("Ctrl+Shift+K", 0x28, 0x100 | 0x200),
        ("Meta+0", 0x1D, 0x1000),
        ("Alt+F12", 0x6F, 0x800),
    ],
)
def test_a_shortcut_is_registered(carbon: Carbon, hot_key: HotKey, keys: str, code: int, modifiers: int) -> None:
    hot_key.set(keys)
    assert (carbon.registered, hot_key.problem) == ((code, modifiers), "")
    _, _, name, target, options, made = carbon.RegisterEventHotKey.calls[0]
    assert (name.first, target.value, options.value) == (int.from_bytes(b"rdch"), 0x7FFF_0000_1234, 0)
    assert isinstance(made._obj, ctypes.c_void_p)


def test_another_shortcut_replaces_it_and_none_removes_it(carbon: Carbon, hot_key: HotKey) -> None:
    def register(*arguments: Any) -> int:
        arguments[-1]._obj.value = 77
        return 0

    carbon.RegisterEventHotKey = register  # type: ignore[assignment]
    hot_key.set("Ctrl+Alt+Q")
    hot_key.set("Ctrl+Alt+Q")
    assert carbon.UnregisterEventHotKey.calls == []
    hot_key.set("")
    hot_key.set("")
    assert [key.value for (key,) in carbon.UnregisterEventHotKey.calls] == [77]


@pytest.mark.parametrize("keys", ["K", "F5", "Shift+K", "Ctrl+Left", "Ctrl+Num+5", "Ctrl++", "Ctrl+"])
def test_a_shortcut_without_a_modifier_or_of_another_key_is_refused(carbon: Carbon, hot_key: HotKey, keys: str) -> None:
    hot_key.set(keys)
    assert "together with Command, Option or Control" in hot_key.problem
    assert carbon.RegisterEventHotKey.calls == []
    hot_key.set("Ctrl+Alt+Q")
    assert hot_key.problem == ""


@pytest.mark.parametrize(
    ("error", "text"), [(EXISTS, "Another program has this shortcut"), (-50, "macOS refuses this shortcut (error -50)")]
)
def test_a_shortcut_that_is_taken_is_reported(carbon: Carbon, hot_key: HotKey, error: int, text: str) -> None:
    carbon.RegisterEventHotKey.answer = error
    hot_key.set("Ctrl+Alt+Q")
    assert hot_key.problem.startswith(text)
    hot_key.set("")
    assert (hot_key.problem, carbon.UnregisterEventHotKey.calls) == ("", [])


@pytest.mark.skipif(host.MACOS, reason="it has them")
def test_elsewhere_there_are_none() -> None:
    hot_key = HotKey(lambda: None)
    hot_key.set("Ctrl+Alt+Q")
    assert (hot_key.available, hot_key.problem) == (False, "")
