"""Facts about MLX on this machine for `rdchat doctor`: device, BLAS and speed."""

import ctypes
import time
from importlib.metadata import version

import mlx.core as mx

from rdchat import host
from rdchat.inference.verification.device import on_gpu

_LONG_ENOUGH_S = 0.02
_LARGEST_SIZE = 4096
_REPEATS = 3


def engine_facts() -> dict[str, str | float]:
    """Inspect MLX and measure a matrix product; takes well under a second."""
    library = _blas_library()
    return {
        # Name of the processor or GPU.
        "device": str(mx.device_info().get("device_name", "unknown")),
        # `Metal`, `CUDA` or `CPU`.
        "backend": _backend(),
        # Such as `Accelerate`, `OpenBLAS` or `reference`; matters on the CPU only.
        "blas": _blas_name(library),
        # The file that the CPU backend's matrix product comes from; empty for MLX's own.
        "blas_library": library,
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        # 10**9 operations a second of a float32 product on the device.
        "matmul_gflops": round(matmul_gflops(), 1),
    }


def matmul_gflops() -> float:
    """Measure the speed of a square float32 matrix product, large enough to be timed well."""
    size = 512
    while True:
        matrix = mx.random.normal((size, size))
        # The first product of a size includes set-up.
        mx.eval(matrix @ matrix)
        best_s = min(_product_s(matrix) for _ in range(_REPEATS))
        if best_s >= _LONG_ENOUGH_S or size >= _LARGEST_SIZE:
            return float(2 * size**3 / best_s / 1e9)
        size *= 2


def _product_s(matrix: mx.array) -> float:
    start = time.perf_counter()
    mx.eval(matrix @ matrix)
    return time.perf_counter() - start


def _backend() -> str:
    if not on_gpu():
        return "CPU"
    return "Metal" if mx.metal.is_available() else "CUDA"


def _blas_name(library: str) -> str:
    if host.MACOS:
        return "Accelerate"
    if not library:
        return "reference"
    return "OpenBLAS" if "openblas" in library else library.rsplit("/", 1)[-1]


class _SymbolInfo(ctypes.Structure):
    """`Dl_info` of <dlfcn.h>."""

    _fields_ = (
        ("file_name", ctypes.c_char_p),
        ("file_base", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("symbol_address", ctypes.c_void_p),
    )


def _blas_library() -> str:
    """Return the library from which the dynamic linker takes `cblas_sgemm` for MLX; empty for MLX's own.

    MLX's own library is loaded locally, so it is not in the global scope, which is searched first.
    """
    if host.MACOS:
        return ""
    process = ctypes.CDLL(None)
    try:
        function = process.cblas_sgemm
    except AttributeError:
        return ""
    info = _SymbolInfo()
    resolved = process.dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return info.file_name.decode() if resolved and info.file_name else ""
