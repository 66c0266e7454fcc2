"""The operating system and what it needs of a program: its version, displays, child processes, sockets, BLAS.

macOS comes first. Power and memory are in `machine`, a Mac's panels and pasteboard in `mac_desktop`.
"""

import ctypes
import importlib
import logging
import os
import platform
import re
import shlex
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

from rdchat.errors import RdchatError

_LOG = logging.getLogger(__name__)
MACOS = sys.platform == "darwin"
OLDEST_MACOS = (14, 4)
"""The oldest version that Qt 6.12 supports; its wheel is tagged 14.0, so pip installs it there too."""
ACCELERATED_MACOS = (26, 2)
"""The oldest version for which MLX has builds that use the neural accelerators in the GPUs of M5 and later."""
# The chip M5, the first one with them.
_ACCELERATED_CHIP = 5
THREAD_STACK_BYTES = 16 * 2**20
"""Stack size of threads that Qt starts: CPython's own on macOS, where other threads get 512 KiB."""
CHILD_OPTION = "--child"
# The answer of SO_PEERCRED on Linux: the ids of the process, its user and its group.
_PEER = struct.Struct("iII")
# The number is an argument of `confstr`, in macOS's <unistd.h>.
_DARWIN_USER_TEMP_DIR = 65537
# See `switch_tf32_off`.
_TF32 = "MLX_ENABLE_TF32"
# macOS refuses an app the local network with error 65, EHOSTUNREACH.
_NO_ROUTE = re.compile(r"No route to host|error: 65\b")
LOCAL_NETWORK = "On a Mac, System Settings > Privacy & Security > Local Network must allow rdchat."
"""Where a person allows it, as the end of a hint."""
OPENBLAS = ("libopenblas.so.0", "libopenblas.so")
"""Names of OpenBLAS on Linux, for the linker."""
WIRED = "RDCHAT_WIRED"
"""A variable that is 1 where a model's weights are to be wired; see `inference.wired_memory`."""


def macos_version() -> str:
    """Return the version of macOS, such as 26.2; empty elsewhere. `platform` says 16 for 26 in some Pythons."""
    return ask_macos(_read_version, "The version of macOS cannot be read") or platform.mac_ver()[0]


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
    """Return where to allow the local network, after a space, for an error that says that macOS refuses it.

    Args:
        error: An error, or its text; for any other one the answer is empty.
    """
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

    There is one on a Mac with M5 or later and macOS 26.2 or later, if the installed build is for a macOS before 26.

    Args:
        variant: See `mlx_variant`.
        device: The GPU's name, such as `Apple M5 Pro`.
    """
    chip = re.search(r"Apple M(\d+)", device)
    if not variant or chip is None or int(chip[1]) < _ACCELERATED_CHIP:
        return ""
    can_run_it = _numbers(macos_version()) >= ACCELERATED_MACOS
    is_older = _numbers(variant) < (ACCELERATED_MACOS[0],)
    return ".".join(map(str, ACCELERATED_MACOS)) if can_run_it and is_older else ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, to compare it with another one."""
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


def own_command() -> str:
    """Return what a shell calls this rdchat: its name where the PATH has one, else its whole path."""
    return "rdchat" if shutil.which("rdchat") else shlex.quote(str(Path(sys.executable).with_name("rdchat")))


def reinstalling() -> str:
    """Return how to install this rdchat anew: a command where it runs from a checkout."""
    if (Path(__file__).parents[1] / "Makefile").exists():
        return "rm -rf .venv && make setup"
    return "Install rdchat again, as its README says."


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


def foundation() -> ModuleType:
    """Return PyObjC's Foundation; only macOS has it."""
    return importlib.import_module("Foundation")


def prefer_fast_blas() -> bool:
    """Make MLX's CPU backend use OpenBLAS where it is installed; True if it will.

    `mlx[cpu]` on Linux ships a reference BLAS that is 25 times slower. Symbols loaded globally before the first
    `import mlx.core` take precedence over it. On macOS MLX uses Accelerate, so nothing has to be done.
    """
    if MACOS:
        return False
    for name in OPENBLAS:
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
    # Once MLX is imported it may have read the variable: changing it would only make `tf32_is_off` wrong.
    if "mlx.core" not in sys.modules:
        os.environ.setdefault(_TF32, "0")


def tf32_is_off() -> bool:
    """Return whether MLX multiplies float32 in full precision on every device."""
    return os.environ.get(_TF32) == "0"


def peer_user(descriptor: int) -> int:
    """Return the id of the user at the other end of a Unix socket; -1 where unknown.

    On macOS it uses `getpeereid`. Not yet tried on a Mac.
    """
    if sys.platform == "darwin":
        user = ctypes.c_uint32()
        group = ctypes.c_uint32()
        failed = ctypes.CDLL(None).getpeereid(descriptor, ctypes.byref(user), ctypes.byref(group))
        peer = -1 if failed else user.value
    else:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            facts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        peer = int(_PEER.unpack(facts)[1])
    return peer


def runtime_folder() -> Path:
    """Return the system's folder for this user's sockets, which others cannot enter. It may not exist."""
    if sys.platform == "darwin":
        folder = os.confstr(_DARWIN_USER_TEMP_DIR) or "/nowhere"
    else:
        folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Path(folder)


def ask_macos[Result](action: Callable[[], Result], trouble: str) -> Result | None:
    """Return what a call to macOS returns; None on other systems, and, with `trouble` in the log, where it fails."""
    if not MACOS:
        return None
    try:
        return action()
    # Foreign code may raise anything.
    except Exception:
        _LOG.warning(trouble, exc_info=True)
        return None
