"""Everything that differs between macOS and Linux. Written for macOS first; Linux is development, CI and a real way to use it."""

import ctypes
import os
import sys

MACOS = sys.platform == "darwin"
_OPENBLAS = ("libopenblas.so.0", "libopenblas.so")


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


def has_display() -> bool:
    """Tell whether a window can be shown."""
    if MACOS or os.environ.get("QT_QPA_PLATFORM"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
