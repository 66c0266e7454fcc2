"""The device MLX computes on, its memory, and the facts about it that `rdchat doctor` shows."""

import ctypes
import time
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from rdchat import host, machine
from rdchat.inference.api.model_facts import MachineMemory, MemoryRoom

# Share of the memory for a model on a CPU: the rest is for the system and a browser.
_CPU_SHARE = 0.8


def on_gpu() -> bool:
    """Return whether MLX computes on a GPU (Metal or CUDA)."""
    return bool(mx.default_device().type == mx.DeviceType.gpu)


def device_name() -> str:
    """Return such as `Apple M3 Max`, or `CPU` where no GPU is used."""
    if not on_gpu():
        return "CPU"
    return str(mx.device_info().get("device_name", "GPU"))


def memory_room() -> MemoryRoom:
    """Return how much memory a model may take now.

    With Metal the limit is the recommended working set, less what MLX holds. A GPU with its own memory (CUDA) counts
    that memory. On a CPU it is the free memory, within the limits of containers.
    """
    info = mx.device_info() if on_gpu() else {}
    if "free_memory" in info:
        own = int(info["free_memory"])
        return MemoryRoom(own, own)
    free = machine.available_bytes()
    recommended = info.get("max_recommended_working_set_size")
    if recommended is None:
        return MemoryRoom(free, free)
    return MemoryRoom(max(int(recommended) - mx.get_active_memory(), 0), free)


def total_memory_bytes() -> int:
    """Return the memory that models could take if nothing else ran: the same number at every start."""
    info = mx.device_info() if on_gpu() else {}
    own = info.get("total_memory") if "free_memory" in info else info.get("max_recommended_working_set_size")
    return machine.total_bytes() if own is None else int(own)


def machine_memory() -> MachineMemory:
    """Return the machine's memory for the windows; may be called from any thread.

    What MLX holds counts as room: it is freed before another model is loaded.
    """
    info = mx.device_info() if on_gpu() else {}
    total = int(info["total_memory"]) if "free_memory" in info else machine.total_bytes()
    active = int(mx.get_active_memory())
    buffers = int(mx.get_cache_memory())
    room = memory_room()
    held = active + buffers
    metal = "max_recommended_working_set_size" in info and "free_memory" not in info
    # Metal's limit leaves out active buffers only.
    limit = room.limit_bytes + (active if metal else held)
    max_bytes = total_memory_bytes() if on_gpu() else int(total * _CPU_SHARE)
    return MachineMemory(on_gpu(), total, MemoryRoom(limit, room.free_bytes + held), held, max_bytes)


def wire_memory() -> None:
    """Keep the memory that MLX holds resident; does nothing without Metal.

    mlx-lm does this for each reply, which on some Macs takes longer than a token. Here it is done once per loaded
    model. Not yet tried on a Mac.
    """
    if host.MACOS and (limit := mx.device_info().get("max_recommended_working_set_size")) is not None:
        mx.set_wired_limit(int(limit))


def unwire_memory() -> None:
    """Let the system page out the memory that MLX holds."""
    if host.MACOS and "max_recommended_working_set_size" in mx.device_info():
        # The limit must not change under work that runs.
        mx.synchronize()
        mx.set_wired_limit(0)


def free_memory() -> None:
    """Give the memory of a model that was dropped back to the system."""
    unwire_memory()
    mx.clear_cache()
    host.give_freed_memory_back()


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
    return "OpenBLAS" if library else "reference"


def _blas_library() -> str:
    """Return the OpenBLAS from which MLX takes its matrix product (`host.prefer_fast_blas`); empty for MLX's own."""
    if host.MACOS or not hasattr(ctypes.CDLL(None), "cblas_sgemm"):
        return ""
    words = Path("/proc/self/maps").read_text().split()
    return next((word for word in words if "/libopenblas" in word), "")
