"""Carbon's hot keys, as far as they can be checked without a Mac: what is handed to the library, and its answers."""

import ctypes
from typing import Any

import pytest

from rdchat import host
from rdchat.mac_desktop import KEYS, HotKey, Pair
from tests.carbon import EXISTS, Carbon


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


def test_the_codes_are_those_of_an_ansi_keyboard() -> None:
    assert len(KEYS) == 26 + 10 + 20 + 1 == len(set(KEYS.values()))
    assert {key: KEYS[key] for key in ("A", "Z", "Q", "6", "5", "9", "7", "M", "F1", "F20")} == {
        "A": 0x00, "Z": 0x06, "Q": 0x0C, "6": 0x16, "5": 0x17, "9": 0x19, "7": 0x1A, "M": 0x2E, "F1": 0x7A, "F20": 0x5A,
    }  # fmt: skip


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
