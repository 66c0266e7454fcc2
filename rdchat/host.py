"""Everything that differs between macOS and Linux; macOS comes first."""

import ctypes
import fcntl
import logging
import os
import platform
import re
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)
MACOS = sys.platform == "darwin"
OLDEST_MACOS = (14, 4)
"""The oldest that Qt 6.12 supports, although its wheel is tagged 14.0 and pip installs it there."""
THREAD_STACK_BYTES = 16 * 2**20
"""For a thread that Qt starts: what CPython asks for its own on macOS, where any other gets 512 KiB."""
CHILD_OPTION = "--child"
_TF32 = "MLX_ENABLE_TF32"
_PEER = struct.Struct("iII")  # process, user, group
_DARWIN_USER_TEMP_DIR = 65537  # of `confstr`, in macOS's <unistd.h>
_OPENBLAS = ("libopenblas.so.0", "libopenblas.so")


def system_name() -> str:
    """Return the operating system, its version on a Mac, and the processor's architecture."""
    return f"{'macOS ' + platform.mac_ver()[0] if MACOS else platform.system()} {platform.machine()}"


def outdated_macos() -> str:
    """Return the version of a macOS that is too old for Qt, such as 14.2; empty where it is not, and elsewhere."""
    version = platform.mac_ver()[0]
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return version if version and numbers < OLDEST_MACOS else ""


def check_window_system() -> None:
    """Refuse to open a window where Qt is not made for it; the terminal's commands need no Qt.

    Raises:
        RdchatError: If macOS is too old.
    """
    if version := outdated_macos():
        raise RdchatError(
            f"rdchat's window needs macOS {OLDEST_MACOS[0]}.{OLDEST_MACOS[1]} or later; this Mac has {version}.",
            "Update it in System Settings > General > Software Update. `rdchat ask` works without a window.",
        )


def in_bundle() -> bool:
    """Tell whether a double-clickable app runs this: then `sys.executable` is the app's own program, not Python.

    Such a program runs the app's entry point whatever its arguments are.
    """
    program = Path(sys.executable or "")
    place = [folder.name for folder in program.parents[:2]]
    return place == ["MacOS", "Contents"] and not program.name.lower().startswith("python")


def child_command(name: str) -> list[str]:
    """Return the command that starts a child process of the app (`rdchat.children`); arguments may be added to it.

    Start it with `env=os.environ`, or with a copy: otherwise its temporary files go to the folder that
    `inference.kernel_folder` names for MLX alone.

    A bundle's program knows no `-m` or `-c`: the app's own entry point has to see what is wanted.
    """
    if in_bundle():
        return [sys.executable, CHILD_OPTION, name]
    return [sys.executable, "-P", "-m", "rdchat", CHILD_OPTION, name]  # -P: no module from the folder we are in


def name_app(name: str) -> None:
    """Have the menu bar show the app's name where Python runs it, which has a bundle of that name; before Qt starts.

    The Dock goes by the bundle alone. Not yet tried on a Mac.
    """
    if MACOS and not in_bundle():
        _attempt(lambda: _name_bundle(name), "The menu bar may say Python")


def _name_bundle(name: str) -> None:
    """Change what Qt and AppKit read the name from, the main bundle's `infoDictionary`, a mutable one."""
    runtime = _ObjectiveC()
    bundle = runtime.send(runtime.named_class("NSBundle"), "mainBundle")
    information = runtime.send(bundle, "infoDictionary")
    runtime.send(information, "setObject:forKey:", runtime.string(name), runtime.string("CFBundleName"))


def prefer_fast_blas() -> bool:
    """Make MLX's CPU backend use OpenBLAS where it is installed; True if it will.

    `mlx[cpu]` on Linux ships a reference BLAS that is 25 times slower than it need be. Symbols loaded globally before
    the first `import mlx.core` take precedence over it. On macOS MLX uses Accelerate and nothing is to be done.
    """
    if MACOS:
        return False
    for name in _OPENBLAS:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False


def switch_tf32_off() -> None:
    """Have MLX multiply float32 as float32, unless a person's environment says otherwise.

    By default it rounds the factors to 10 bits (TF32) where the GPU has units for that, as M5's and NVIDIA's do. MLX
    reads this variable once, at its first product. Not yet tried on a Mac.
    """
    if "mlx.core" not in sys.modules:
        os.environ.setdefault(_TF32, "0")


def tf32_is_off() -> bool:
    """Tell whether MLX multiplies float32 as float32 on every device."""
    return os.environ.get(_TF32) == "0"


def give_freed_memory_back() -> None:
    """Have the system get back what this process has freed; on macOS, where a model lies in Metal's buffers, it has.

    glibc keeps freed blocks of up to 32 MB for itself: of a small model's weights, nearly all.
    """
    if MACOS:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        _LOG.debug("Freed memory is kept by the C library", exc_info=True)


def peer_user(descriptor: int) -> int:
    """Return the id of the user whose process is at the other end of a Unix socket; -1 where that is not known.

    On macOS by `getpeereid`. Not yet tried on a Mac.
    """
    user, group = ctypes.c_uint32(), ctypes.c_uint32()
    if sys.platform == "darwin":
        failed = ctypes.CDLL(None).getpeereid(descriptor, ctypes.byref(user), ctypes.byref(group))
        return -1 if failed else user.value
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        facts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(facts)[1])


def runtime_folder() -> Path:
    """Return where the system has this user's sockets; others cannot enter it. It may not be there."""
    if sys.platform == "darwin":
        return Path(os.confstr(_DARWIN_USER_TEMP_DIR) or "/nowhere")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def flush_to_disk(path: Path) -> None:
    """Return when a file, or what a folder says of its files, would outlast a power loss.

    Raises:
        OSError: If it cannot be flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sys.platform == "darwin":  # where fsync leaves it in the drive's own memory
            with suppress(OSError):  # not every file system knows it
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def keep_awake() -> Iterator[None]:
    """Hold off idle sleep and App Nap during long work, a reply's too; nothing to do outside macOS.

    The work is worth more than a machine that stays awake: what goes wrong here is logged, and nothing else.
    """
    trouble = "Sleep could not be held off, or not be allowed again"
    end_activity = _attempt(_begin_activity, trouble) if MACOS else None
    try:
        yield
    finally:
        if end_activity is not None:
            _attempt(end_activity, trouble)


def _attempt[Result](action: Callable[[], Result], trouble: str) -> Result | None:
    try:
        return action()
    except Exception:  # foreign code through ctypes
        _LOG.warning(trouble, exc_info=True)
        return None


def _begin_activity() -> Callable[[], None]:
    """Return what ends the activity.

    Uses `-[NSProcessInfo beginActivityWithOptions:reason:]` through the Objective-C runtime. Not yet tried on a Mac.
    """
    runtime = _ObjectiveC()
    info = runtime.send(runtime.named_class("NSProcessInfo"), "processInfo")
    reason = runtime.string("rdchat is working")
    token = runtime.send(info, "beginActivityWithOptions:reason:", ctypes.c_uint64(_USER_INITIATED), reason)
    runtime.send(token, "retain")

    def end() -> None:
        runtime.send(info, "endActivity:", token)
        runtime.send(token, "release")

    return end


_USER_INITIATED = 0x00FFFFFF | 1 << 20  # NSActivityUserInitiated, which includes NSActivityIdleSystemSleepDisabled


class _ObjectiveC:
    """As much of the Objective-C runtime as one message send needs."""

    def __init__(self) -> None:
        ctypes.CDLL("/System/Library/Frameworks/Foundation.framework/Foundation")
        self._library = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        self._library.objc_getClass.restype = ctypes.c_void_p
        self._library.sel_registerName.restype = ctypes.c_void_p

    def named_class(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._library.objc_getClass(name.encode()))

    def send(self, receiver: ctypes.c_void_p, selector: str, *arguments: "ctypes._SimpleCData[Any]") -> ctypes.c_void_p:
        kinds: list[Any] = [type(argument) for argument in arguments]
        message = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *kinds)(
            ("objc_msgSend", self._library)
        )
        name = ctypes.c_void_p(self._library.sel_registerName(selector.encode()))
        return ctypes.c_void_p(message(receiver, name, *arguments))

    def string(self, text: str) -> ctypes.c_void_p:
        return self.send(self.named_class("NSString"), "stringWithUTF8String:", ctypes.c_char_p(text.encode()))
