"""The desktop of a Mac; on other systems each function says that there is none.

The app's name in the menu bar, the quick window's panel, converted images, screenshots and the pasteboard; at the end a
keyboard shortcut that works in every program, by Carbon.
"""

import ctypes
import importlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat import host
from rdchat.errors import RdchatError

FRAMEWORKS = ("Foundation", "AppKit") if host.MACOS else ()
"""The modules of PyObjC that are imported when they are needed."""
# The longest time for converting an image.
_SIPS_S = 15.0
_SCREEN_RECORDING = (
    "Allow it in System Settings > Privacy & Security > Screen & System Audio Recording, and open rdchat again."
)
# The first one that the pasteboard has is taken; macOS adds TIFF to most others.
_IMAGE_TYPES = ("public.png", "public.jpeg", "public.heic", "public.tiff")
# Photos and Mail drag such files.
_PROMISES = ("com.apple.NSFilePromiseItemMetaData", "com.apple.pasteboard.promised-file-url")


def name_app(name: str) -> None:
    """Show the app's name in the menu bar, not Python's; call this before Qt starts.

    The Dock shows the name of the bundle. Not yet tried on a Mac.
    """
    if not host.in_bundle():
        host.ask_macos(lambda: _name_bundle(name), "The menu bar may say Python")


def _name_bundle(name: str) -> None:
    """Set the name in the main bundle's `infoDictionary`, which is mutable, and which Qt and AppKit read."""
    host.foundation().NSBundle.mainBundle().infoDictionary()["CFBundleName"] = name


def show_over_programs(view: int, show: Callable[[], object]) -> bool:
    """Show a tool window over all programs, also over a full-screen one, and give it the keyboard; False elsewhere.

    The app does not become active: its other windows stay where they are, and the program from before has the keyboard
    again once the window is closed. Not yet tried on a Mac.

    Args:
        view: Qt's id of the window, the address of its NSView.
        show: Shows the window.
    """
    trouble = "The app's other windows may come to the front too"
    return bool(host.ask_macos(lambda: _show_panel(view, show), trouble))


def _show_panel(view: int, show: Callable[[], object]) -> bool:
    kit = importlib.import_module("AppKit")
    panel = importlib.import_module("objc").objc_object(c_void_p=view).window()
    panel.setStyleMask_(panel.styleMask() | kit.NSWindowStyleMaskNonactivatingPanel)
    # AppKit passes that mask on to the window server only when a panel is made, and has no other public call for it.
    if panel.respondsToSelector_("_setPreventsActivation:"):
        panel._setPreventsActivation_(True)
    everywhere = kit.NSWindowCollectionBehaviorCanJoinAllSpaces | kit.NSWindowCollectionBehaviorFullScreenAuxiliary
    # AppKit heeds this only after the mask.
    panel.setCollectionBehavior_(everywhere)
    show()
    panel.orderFrontRegardless()
    panel.makeKeyWindow()
    return True


def convert_to_tiff(image: Path, tiff: Path) -> bool:
    """Write an image that only the system can read, such as HEIC, as TIFF; False where that is not possible.

    A PNG would take longer, as it is compressed. Not yet tried on a Mac.
    """
    command = ["/usr/bin/sips", "-s", "format", "tiff", str(image.absolute()), "--out", str(tiff)]
    return bool(host.ask_macos(lambda: _writes(command, tiff, _SIPS_S), "An image could not be converted"))


def _writes(command: list[str], file: Path, timeout_s: float | None) -> bool:
    """Run a command that writes a file; return whether it did."""
    nowhere = subprocess.DEVNULL
    done = subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=timeout_s, check=False)  # noqa: S603  the system's own program
    return done.returncode == 0 and file.is_file()


def screenshot() -> bytes:
    """Return the part of a Mac's screen that the person chooses, as PNG; empty for none. It takes as long as they do.

    Not yet tried on a Mac.

    Raises:
        RdchatError: If macOS does not let rdchat see the screen.
    """
    if not host.ask_macos(_may_see_screen, "Whether rdchat may see the screen is not known"):
        raise RdchatError("macOS does not let rdchat see the screen.", _SCREEN_RECORDING)
    with tempfile.TemporaryDirectory(prefix="rdchat-image-") as folder:
        png = Path(folder) / "screenshot.png"
        return png.read_bytes() if _writes(["/usr/sbin/screencapture", "-i", str(png)], png, None) else b""


def _may_see_screen() -> bool:
    """Return whether macOS lets rdchat see other apps' windows; it asks the person once."""
    graphics = ctypes.CDLL("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics")
    calls = graphics.CGPreflightScreenCaptureAccess, graphics.CGRequestScreenCaptureAccess
    for call in calls:
        call.restype = ctypes.c_bool
    return any(call() for call in calls)


def pasteboard_image(*, is_dragged: bool) -> bytes:
    """Return a pasted or dragged image as another program encoded it; empty without one, and not on a Mac.

    Not yet tried on a Mac.
    """

    def read() -> bytes:
        board = _dragged() if is_dragged else importlib.import_module("AppKit").NSPasteboard.generalPasteboard()
        kind = board.availableTypeFromArray_(_IMAGE_TYPES)
        return bytes(board.dataForType_(kind)) if kind else b""

    return host.ask_macos(read, "An image could not be pasted") or b""


def is_file_promised() -> bool:
    """Return whether a program drags a file that it writes only after the drop; macOS only. Not yet tried on a Mac."""
    find = lambda: _dragged().availableTypeFromArray_(_PROMISES)  # noqa: E731
    return bool(host.ask_macos(find, "What is dragged is not known"))


def _dragged() -> Any:
    """Return the pasteboard of what is dragged."""
    kit = importlib.import_module("AppKit")
    return kit.NSPasteboard.pasteboardWithName_(kit.NSPasteboardNameDrag)


# The shortcut

_CARBON = "/System/Library/Frameworks/Carbon.framework/Carbon"
# In Carbon's names: kEventClassKeyboard, kEventHotKeyPressed, a signature of our own, and eventHotKeyExistsErr.
_KEYBOARD = int.from_bytes(b"keyb")
_PRESSED = 5
_SIGNATURE = int.from_bytes(b"rdch")
_EXISTS = -9878
# In Qt's names: cmdKey, optionKey, shiftKey and controlKey.
_MODIFIERS = {"Ctrl": 0x100, "Alt": 0x800, "Shift": 0x200, "Meta": 0x1000}
# Keys of an ANSI keyboard, by the virtual key code of the first one; those after it have the next codes.
_ROWS = {
    0: "ASDFHGZXCV", 11: "BQWERYT123465", 25: "9", 26: "7", 28: "80", 31: "OU", 34: "IP", 37: "LJ", 40: "K", 45: "NM",
}  # fmt: skip
# Virtual key codes of F1, F2 and so on.
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
        # In Qt's names; and the system's reference to the shortcut, null while none is registered.
        self._keys = ""
        self._key = ctypes.c_void_p()
        self.available = self._library is not None
        self.problem = ""
        if self._library is not None:
            self._library.GetApplicationEventTarget.restype = ctypes.c_void_p
            self._target = ctypes.c_void_p(self._library.GetApplicationEventTarget())
            # The system keeps its address alone, so it is held here.
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
            key_id = Pair(_SIGNATURE, 1)
            registered = ctypes.byref(self._key)
            error = self._library.RegisterEventHotKey(code, bits, key_id, self._target, ctypes.c_uint32(0), registered)
            self.problem = {0: "", _EXISTS: _TAKEN}.get(error, f"macOS refuses this shortcut (error {error}).")
        elif keys:
            self.problem = _WRONG
