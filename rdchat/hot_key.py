"""A shortcut that works over other programs, by macOS's Carbon hot keys. Not tried on a Mac.

A hot key is registered with the system and needs no permission. An event tap or a monitor would see every key that is
typed in any program. Constants are those of Carbon's `HIToolbox/Events.h` and `CarbonEvents.h`.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from rdchat import host

_CARBON = "/System/Library/Frameworks/Carbon.framework/Carbon"
# kEventClassKeyboard, kEventHotKeyPressed, and a signature of our own.
_KEYBOARD = int.from_bytes(b"keyb")
_PRESSED = 5
_SIGNATURE = int.from_bytes(b"rdch")
_EXISTS = -9878
# In Qt's names: cmdKey, optionKey, shiftKey and controlKey.
_MODIFIERS = {"Ctrl": 0x100, "Alt": 0x800, "Shift": 0x200, "Meta": 0x1000}
# Virtual key codes of the positions on an ANSI keyboard.
_ROWS = {
    0: "ASDFHGZXCV", 11: "BQWERYT123465", 25: "9", 26: "7", 28: "80", 31: "OU", 34: "IP", 37: "LJ", 40: "K", 45: "NM",
}  # fmt: skip
_F_KEYS = (122, 120, 99, 118, 96, 97, 98, 100, 101, 109, 103, 111, 105, 107, 113, 106, 64, 79, 80, 90)
_TAKEN = "Another program has this shortcut. Choose another one."
_WRONG = "Use a letter, a digit, Space or an F key together with Command, Option or Control."
KEYS = {
    **{key: first + index for first, row in _ROWS.items() for index, key in enumerate(row)},
    **{f"F{number}": code for number, code in enumerate(_F_KEYS, start=1)},
    "Space": 49,
}
"""Virtual key codes by Qt's names."""
_HANDLER = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Pair(ctypes.Structure):
    """An `EventTypeSpec` (class and kind), or an `EventHotKeyID` (signature and id)."""

    _fields_ = (("first", ctypes.c_uint32), ("second", ctypes.c_uint32))


class HotKey:
    """One shortcut, which is none at first. It lives on the main thread.

    Args:
        pressed: Called on the main thread, while the system waits.
        library: Carbon; by default that of the system, which is None on others than macOS.

    Attributes:
        available: Whether there are such shortcuts on this system.
        problem: Why the shortcut does not work, a sentence or two; empty if it does or there is none.
    """

    def __init__(self, pressed: Callable[[], object], library: Any = None) -> None:
        self._pressed = pressed
        self._library = library or (ctypes.CDLL(_CARBON) if host.MACOS else None)
        self._keys = ""
        self._key = ctypes.c_void_p()
        self.available = self._library is not None
        self.problem = ""
        if self._library is not None:
            self._library.GetApplicationEventTarget.restype = ctypes.c_void_p
            self._target = ctypes.c_void_p(self._library.GetApplicationEventTarget())
            # The system keeps its address.
            self._handler = _HANDLER(self._on_event)
            kind = ctypes.byref(Pair(_KEYBOARD, _PRESSED))
            self._library.InstallEventHandler(self._target, self._handler, ctypes.c_ulong(1), kind, None, None)

    def _on_event(self, _call: int, _event: int, _data: int) -> int:
        self._pressed()
        return 0

    def set(self, keys: str) -> None:
        """Replace the shortcut by another one, as Qt writes it on all platforms; empty for none."""
        if self._library is None or keys == self._keys:
            return
        if self._key:
            self._library.UnregisterEventHotKey(self._key)
        self._keys = keys
        self._key = ctypes.c_void_p()
        self.problem = ""
        *modifiers, key = keys.split("+")
        if key in KEYS and set(modifiers) <= _MODIFIERS.keys() and set(modifiers) - {"Shift"}:
            code = ctypes.c_uint32(KEYS[key])
            bits = ctypes.c_uint32(sum(_MODIFIERS[each] for each in modifiers))
            name = Pair(_SIGNATURE, 1)
            made = ctypes.byref(self._key)
            error = self._library.RegisterEventHotKey(code, bits, name, self._target, ctypes.c_uint32(0), made)
            self.problem = {0: "", _EXISTS: _TAKEN}.get(error, f"macOS refuses this shortcut (error {error}).")
        elif keys:
            self.problem = _WRONG
