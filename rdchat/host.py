"""The differences between macOS and Linux; macOS comes first."""

import ctypes
import fcntl
import importlib
import logging
import os
import platform
import plistlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)
MACOS = sys.platform == "darwin"
FRAMEWORKS = ("Foundation", "AppKit") if MACOS else ()
"""The modules of PyObjC that are imported when they are needed."""
OLDEST_MACOS = (14, 4)
"""The oldest version that Qt 6.12 supports; its wheel is tagged 14.0, so pip installs it there too."""
ACCELERATED_MACOS = (26, 2)
"""The oldest version for which MLX has builds that use the neural accelerators in the GPUs of M5 and later."""
_ACCELERATED_CHIP = 5
THREAD_STACK_BYTES = 16 * 2**20
"""Stack size of threads that Qt starts: CPython's own on macOS, where other threads get 512 KiB."""
CHILD_OPTION = "--child"
_TF32 = "MLX_ENABLE_TF32"
_THERMAL_STATE_SERIOUS = 2
# This is rusage_info_v0 in macOS's <sys/resource.h>; the eighth number is ri_phys_footprint.
_RUSAGE = struct.Struct("16x10Q")
_SIPS_S = 15.0
_PEER = struct.Struct("iII")
# The number is an argument of `confstr`, in macOS's <unistd.h>.
_DARWIN_USER_TEMP_DIR = 65537
# macOS refuses an app the local network with error 65, EHOSTUNREACH.
_NO_ROUTE = re.compile(r"No route to host|error: 65\b")
LOCAL_NETWORK = "On a Mac, System Settings > Privacy & Security > Local Network must allow rdchat."
"""Where a person allows it, as the end of a hint."""
_SCREEN_RECORDING = "Allow it in System Settings > Privacy & Security > Screen & System Audio Recording,"
_SCREEN_RECORDING += " and open rdchat again."
# The first one that the pasteboard has is taken; macOS adds TIFF to most others.
_IMAGE_TYPES = ("public.png", "public.jpeg", "public.heic", "public.tiff")
# Photos and Mail drag such files.
_PROMISES = ("com.apple.NSFilePromiseItemMetaData", "com.apple.pasteboard.promised-file-url")
_OPENBLAS = ("libopenblas.so.0", "libopenblas.so")


def macos_version() -> str:
    """Return the version of macOS, such as 26.2; empty elsewhere. `platform` says 16 for 26 in some Pythons."""
    own = _attempt(_read_version, "The version of macOS cannot be read") if MACOS else ""
    return own or platform.mac_ver()[0]


def _read_version() -> str:
    size = ctypes.c_size_t(32)
    version = ctypes.create_string_buffer(32)
    name = b"kern.osproductversion"
    if ctypes.CDLL(None).sysctlbyname(name, version, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return ""
    return version.value.decode()


def system_name() -> str:
    """Return the operating system, its version on a Mac, and the processor's architecture."""
    return f"{'macOS ' + macos_version() if MACOS else platform.system()} {platform.machine()}"


def outdated_macos() -> str:
    """Return the version of a macOS that is too old for Qt, such as 14.2; empty otherwise."""
    version = macos_version()
    return version if version and _numbers(version) < OLDEST_MACOS else ""


def local_network_hint(error: object) -> str:
    """Return ` ` and `LOCAL_NETWORK` for an error, or its text, with which macOS refuses it; otherwise nothing."""
    return f" {LOCAL_NETWORK}" if _NO_ROUTE.search(str(error)) else ""


def mlx_variant() -> str:
    """Return the macOS that the installed build of MLX is made for, such as `14.0`; empty without Metal.

    It is read from the wheel's tag, so MLX is not loaded.
    """
    try:
        wheel = distribution("mlx-metal").read_text("WHEEL") or ""
    except PackageNotFoundError:
        return ""
    tag = re.search(r"-macosx_(\d+)_(\d+)_", wheel)
    return f"{tag[1]}.{tag[2]}" if tag else ""


def faster_mlx(variant: str, device: str) -> str:
    """Return the macOS of a build of MLX that is faster here than the installed one; empty where there is none.

    Args:
        variant: See `mlx_variant`.
        device: The GPU's name, such as `Apple M5 Pro`.
    """
    chip = re.search(r"Apple M(\d+)", device)
    if not variant or chip is None or int(chip[1]) < _ACCELERATED_CHIP:
        return ""
    able = _numbers(macos_version()) >= ACCELERATED_MACOS
    return ".".join(map(str, ACCELERATED_MACOS)) if able and _numbers(variant) < (ACCELERATED_MACOS[0],) else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_window_system() -> None:
    """Refuse to open a window where Qt cannot run; commands in the terminal do not need Qt.

    Raises:
        RdchatError: If macOS is too old.
    """
    if version := outdated_macos():
        raise RdchatError(
            f"rdchat's window needs macOS {OLDEST_MACOS[0]}.{OLDEST_MACOS[1]} or later; this Mac has {version}.",
            "Update it in System Settings > General > Software Update. `rdchat ask` works without a window.",
        )


def has_display(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment names a display, or a Qt platform that needs none; Qt ends the process otherwise.

    Args:
        environment: The variables that name the display, and the platform plugins for Qt.
    """
    plugins = (environment.get("QT_QPA_PLATFORM") or "xcb").split(";")
    needs_none = any(not plugin.startswith(("xcb", "wayland")) for plugin in plugins)
    names = ("DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET")
    return MACOS or needs_none or any(environment.get(name) for name in names)


def in_bundle() -> bool:
    """Return whether this is the double-clickable app: then `sys.executable` is the app's own program, not Python.

    Such a program runs the app's entry point whatever its arguments are.
    """
    program = Path(sys.executable or "")
    folders = [folder.name for folder in program.parents[:2]]
    return folders == ["MacOS", "Contents"] and not program.name.lower().startswith("python")


def child_command(name: str) -> list[str]:
    """Return the command that starts a child process of the app (`rdchat.children`); arguments may be added.

    Start it with `env=os.environ`, or with a copy: otherwise its temporary files go to the folder that
    `inference.blas` sets for MLX alone.

    A bundle's program ignores `-m` and `-c`, so the app's own entry point has to start the child.
    """
    if in_bundle():
        return [sys.executable, CHILD_OPTION, name]
    # With -P, nothing is imported from the current folder.
    return [sys.executable, "-P", "-m", "rdchat", CHILD_OPTION, name]


def name_app(name: str) -> None:
    """Show the app's name in the menu bar, not Python's; call this before Qt starts.

    The Dock shows the name of the bundle. Not yet tried on a Mac.
    """
    if MACOS and not in_bundle():
        _attempt(lambda: _name_bundle(name), "The menu bar may say Python")


def _name_bundle(name: str) -> None:
    """Set the name in the main bundle's `infoDictionary`, which is mutable, and which Qt and AppKit read."""
    _foundation().NSBundle.mainBundle().infoDictionary()["CFBundleName"] = name


def _foundation() -> ModuleType:
    """Return PyObjC's Foundation; only macOS has it."""
    return importlib.import_module("Foundation")


def show_over_programs(view: int, show: Callable[[], object]) -> bool:
    """Show a tool window over all programs, also over a full-screen one, and give it the keyboard; False elsewhere.

    The app does not become active: its other windows stay where they are, and the program from before has the keyboard
    again once the window is closed. Not yet tried on a Mac.

    Args:
        view: Qt's id of the window, the address of its NSView.
        show: Shows the window.
    """
    return MACOS and bool(
        _attempt(lambda: _show_panel(view, show), "The app's other windows may come to the front too")
    )


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


def prefer_fast_blas() -> bool:
    """Make MLX's CPU backend use OpenBLAS where it is installed; True if it will.

    `mlx[cpu]` on Linux ships a reference BLAS that is 25 times slower. Symbols loaded globally before the first
    `import mlx.core` take precedence over it. On macOS MLX uses Accelerate, so nothing has to be done.
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
    """Make MLX multiply float32 in full precision, unless the environment variable is already set.

    By default it rounds the factors to 10 bits (TF32) on GPUs with units for that, such as M5's and NVIDIA's. MLX reads
    this variable once, at its first product. Not yet tried on a Mac.
    """
    if "mlx.core" not in sys.modules:
        os.environ.setdefault(_TF32, "0")


def tf32_is_off() -> bool:
    """Return whether MLX multiplies float32 in full precision on every device."""
    return os.environ.get(_TF32) == "0"


def low_power_mode() -> bool:
    """Return whether macOS saves energy, with slower processors and GPU; False elsewhere. Not yet tried on a Mac."""
    return bool(_process_info("isLowPowerModeEnabled"))


def is_hot() -> bool:
    """Return whether macOS slows the machine down because of heat; False elsewhere. Not yet tried on a Mac."""
    return _process_info("thermalState") >= _THERMAL_STATE_SERIOUS


def _process_info(selector: str) -> int:
    """Return an answer of NSProcessInfo; 0 where there is none."""

    def read() -> int:
        return int(getattr(_foundation().NSProcessInfo.processInfo(), selector)())

    return (_attempt(read, f"{selector} cannot be read") or 0) if MACOS else 0


def physical_footprint(pid: int) -> int:
    """Return what macOS counts as a process's memory, compressed pages included, in bytes; 0 where unknown.

    Not yet tried on a Mac.
    """
    return (_attempt(lambda: _read_footprint(pid), "A process's memory cannot be read") or 0) if MACOS else 0


def _read_footprint(pid: int) -> int:
    usage = ctypes.create_string_buffer(_RUSAGE.size)
    if ctypes.CDLL(None).proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(0), usage):
        return 0
    return int(_RUSAGE.unpack(usage.raw)[7])


def convert_to_tiff(image: Path, tiff: Path) -> bool:
    """Write an image that only the system can read, such as HEIC, as TIFF; False where that is not possible.

    A PNG would take longer, as it is compressed. Not yet tried on a Mac.
    """
    command = ["/usr/bin/sips", "-s", "format", "tiff", str(image.absolute()), "--out", str(tiff)]
    return MACOS and bool(_attempt(lambda: _writes(command, tiff, _SIPS_S), "An image could not be converted"))


def _writes(command: list[str], file: Path, timeout_s: float | None) -> bool:
    nowhere = subprocess.DEVNULL
    done = subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=timeout_s, check=False)  # noqa: S603  the system's own program
    return done.returncode == 0 and file.is_file()


def screenshot() -> bytes:
    """Return the part of a Mac's screen that the person chooses, as PNG; empty for none. It takes as long as they do.

    Not yet tried on a Mac.

    Raises:
        RdchatError: If macOS does not let rdchat see the screen.
    """
    if not _attempt(_may_see_screen, "Whether rdchat may see the screen is not known"):
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

    return (_attempt(read, "An image could not be pasted") or b"") if MACOS else b""


def is_file_promised() -> bool:
    """Return whether a program drags a file that it writes only after the drop; macOS only. Not yet tried on a Mac."""
    find = lambda: _dragged().availableTypeFromArray_(_PROMISES)  # noqa: E731
    return MACOS and bool(_attempt(find, "What is dragged is not known"))


def _dragged() -> Any:
    kit = importlib.import_module("AppKit")
    return kit.NSPasteboard.pasteboardWithName_(kit.NSPasteboardNameDrag)


def give_freed_memory_back() -> None:
    """Return freed memory to the system; macOS needs no call, as weights are in Metal's buffers.

    glibc keeps freed blocks of up to 32 MB, which are nearly all weights of a small model.
    """
    if MACOS:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    # Another C library lacks it.
    except (OSError, AttributeError):
        _LOG.debug("Freed memory is kept by the C library", exc_info=True)


def peer_user(descriptor: int) -> int:
    """Return the id of the user at the other end of a Unix socket; -1 where unknown.

    On macOS it uses `getpeereid`. Not yet tried on a Mac.
    """
    user = ctypes.c_uint32()
    group = ctypes.c_uint32()
    if sys.platform == "darwin":
        failed = ctypes.CDLL(None).getpeereid(descriptor, ctypes.byref(user), ctypes.byref(group))
        return -1 if failed else user.value
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        facts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(facts)[1])


def runtime_folder() -> Path:
    """Return the system's folder for this user's sockets, which others cannot enter. It may not exist."""
    if sys.platform == "darwin":
        return Path(os.confstr(_DARWIN_USER_TEMP_DIR) or "/nowhere")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def flush_to_disk(path: Path) -> None:
    """Flush a file or a folder's entries to disk, so that they survive a power loss.

    Raises:
        OSError: If it cannot be flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # On macOS, fsync leaves data in the drive's memory.
        if sys.platform == "darwin":
            # Not every file system supports it.
            with suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exclude_from_backups(folder: Path) -> None:
    """Leave a folder out of Time Machine's backups; macOS only. Not yet tried on a Mac.

    It sets the attribute that `tmutil addexclusion` sets: a property list with the name of the excluding program.
    """
    if MACOS:
        value = plistlib.dumps("com.apple.backupd", fmt=plistlib.FMT_BINARY)
        name = b"com.apple.metadata:com_apple_backup_excludeItem"
        arguments = os.fsencode(folder), name, value, ctypes.c_size_t(len(value)), ctypes.c_uint32(0), ctypes.c_int(0)
        _attempt(lambda: ctypes.CDLL(None).setxattr(*arguments), "A folder of caches may be in backups")


@contextmanager
def keep_awake() -> Iterator[None]:
    """Prevent idle sleep and App Nap during replies and other long work; macOS only.

    Errors are logged only: the work matters more than staying awake.
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
    # Foreign code may raise anything.
    except Exception:
        _LOG.warning(trouble, exc_info=True)
        return None


def _begin_activity() -> Callable[[], None]:
    """Begin an activity of NSProcessInfo; return the function that ends it. Not yet tried on a Mac."""
    foundation = _foundation()
    info = foundation.NSProcessInfo.processInfo()
    options = foundation.NSActivityUserInitiated  # It includes NSActivityIdleSystemSleepDisabled.
    activity = info.beginActivityWithOptions_reason_(options, "rdchat is working")
    return lambda: info.endActivity_(activity)
