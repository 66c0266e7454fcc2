"""The device MLX computes on: its memory, its facts for `rdchat doctor`, its errors, and the one way to NumPy.

If `np.array` is the first wait on a lazy MLX array, a device error is lost: NumPy drops the exception of the buffer
protocol and reads the elements one by one from memory that was never written. So arrays are evaluated first.
"""

import ctypes
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, overload

from rdchat.inference import blas  # before MLX

# isort: split
import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat import host, machine
from rdchat.errors import DeviceError, DeviceStoppedError, OutOfMemoryError, RanksError, one_line
from rdchat.inference import processor
from rdchat.inference.api import MachineMemory, MemoryRoom
from rdchat.inference.wired_memory import unwire_weights, wiring

Host = npt.NDArray[Any]
# Arrays to wait for as well; see `fetch`.
Besides = Sequence[mx.array | None]
_LOG = logging.getLogger(__name__)
_OUT_OF_MEMORY = (
    # A Metal command buffer, with kIOGPUCommandBufferCallbackErrorOutOfMemory.
    "Insufficient Memory",
    # Metal, for an array that is too large, or too many arrays.
    "[metal::malloc]",
    # MLX's allocators.
    "Unable to allocate",
    # CUDA.
    "out of memory",
)
# Metal's errors where the system ended the work, or that of another program on the same GPU.
_STOPPED = re.compile("CallbackError(ImpactingInteractivity|Timeout|Hang|SubmissionsIgnored|InnocentVictim)")
# The beginnings of MLX's errors about Metal or the ring of ranks; those of `[metal_kernel]` are a model's own.
_DEVICE = re.compile(r"\[(metal(::\w+)?|Event::Event|ring)\]", re.IGNORECASE)
_TRY_AGAIN = "Try again. If it fails again, reload the model."
# MLX has some functions, such as a mixture of experts, for a CPU in one precision only.
_ONE_PRECISION = "only supports float32"
_IN_FLOAT32 = "Load the model with the precision float32: on a CPU, MLX cannot compute it in another one."
_TRY_LATER = "Try again. If it fails again, quit rdchat and open it again."
_HINT = "Close other apps, start a new chat, or choose a smaller model or precision."

# `matmul_gflops` doubles the matrix until a product takes so long, or has the largest size.
_LONG_ENOUGH_S = 0.02
_LARGEST_SIZE = 4096
_REPEATS = 3
# The sides of the matrix that `ReadingSpeed` reads: with 128 MB of float32 more than a processor's caches hold.
_ROWS = 4096
_COLUMNS = 8192
# Products in one evaluation, since a GPU takes long to begin one.
_PRODUCTS = 4


def on_gpu() -> bool:
    """Return whether MLX computes on a GPU (Metal or CUDA)."""
    return bool(mx.default_device().type == mx.DeviceType.gpu)


def device_name() -> str:
    """Return the device's name, such as `Apple M3 Max`, or `CPU` where no GPU is used."""
    if not on_gpu():
        return "CPU"
    return str(mx.device_info().get("device_name", "GPU"))


def memory_room() -> MemoryRoom:
    """Return how much memory a model may take now.

    With Metal the limit is the recommended working set, less what MLX holds. A GPU with its own memory (CUDA) counts
    that memory. On a CPU it is the free memory, within the limits of containers.
    """
    info = _gpu_info()
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
    info = _gpu_info()
    own = info.get("total_memory") if "free_memory" in info else info.get("max_recommended_working_set_size")
    return machine.total_bytes() if own is None else int(own)


def machine_memory() -> MachineMemory:
    """Return the machine's memory for the windows; may be called from any thread.

    What MLX holds counts as room: it is freed before another model is loaded.
    """
    info = _gpu_info()
    total = int(info["total_memory"]) if "free_memory" in info else machine.total_bytes()
    active = int(mx.get_active_memory())
    room = memory_room()
    held = held_bytes()
    metal = "max_recommended_working_set_size" in info and "free_memory" not in info
    # Metal's limit leaves out active buffers only.
    limit = room.limit_bytes + (active if metal else held)
    max_bytes = total_memory_bytes() if on_gpu() else int(total * machine.CPU_SHARE)
    room = MemoryRoom(limit, room.free_bytes + held)
    return MachineMemory(on_gpu(), total, room, held, max_bytes, READING.bytes_per_second)


class ReadingSpeed:
    """How fast this machine reads weights, which limits how fast a model writes.

    Attributes:
        bytes_per_second: The measured speed; 0 before it is measured, and on a busy machine.
    """

    def __init__(self) -> None:
        self.bytes_per_second = 0.0

    def measure(self, others: machine.OtherPrograms) -> None:
        """Time products of a large matrix with a vector, as a model's layers compute them, for a fraction of a second.

        Args:
            others: Other programs in the time before; if they were busy, nothing is measured.
        """
        if others.share(now=True) > machine.MAX_OTHERS:
            return
        matrix = mx.ones((_ROWS, _COLUMNS))
        vectors = mx.ones((_PRODUCTS, 1, _COLUMNS))
        mx.eval(matrix, vectors)
        best_s = min(_seconds_of(lambda: [vector @ matrix.T for vector in vectors]) for _ in range(_REPEATS))
        self.bytes_per_second = _PRODUCTS * matrix.nbytes / best_s


READING = ReadingSpeed()


def _gpu_info() -> dict[str, str | int]:
    """Return MLX's facts about the GPU; none on a CPU. One with its own memory has `free_memory`."""
    return mx.device_info() if on_gpu() else {}


def held_bytes() -> int:
    """Return the memory that MLX holds, kept buffers included."""
    return int(mx.get_active_memory()) + int(mx.get_cache_memory())


def free_memory() -> None:
    """Give the memory of a model that was dropped back to the system."""
    unwire_weights()
    mx.clear_cache()
    machine.give_freed_memory_back()


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
        # What they are for, with MLX's own; empty on a GPU.
        "cpu_kernels": cpu_kernels(),
        # The core that OpenBLAS should have, where it takes an older one; else empty.
        "better_core": processor.better_core(_core(library), processor.processor_flags()),
        # What MLX's kernels should be compiled for, where they are for any processor; else empty.
        "better_flags": "" if processor.flags_of(blas.kernel_header()) else processor.wanted_flags(),
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        # 10**9 operations a second of a float32 product on the device.
        "matmul_gflops": round(matmul_gflops(), 1),
        # Weights that macOS may not page out, such as `off`; empty without Metal.
        "wired_memory": wiring(),
    }


def matmul_gflops() -> float:
    """Measure the speed of a square float32 matrix product, large enough to be timed well."""
    size = 512
    while True:
        matrix = mx.random.normal((size, size))
        # The first product of a size includes set-up.
        mx.eval(matrix @ matrix)
        best_s = min(_seconds_of(lambda: matrix @ matrix) for _ in range(_REPEATS))  # noqa: B023  called at once
        if best_s >= _LONG_ENOUGH_S or size >= _LARGEST_SIZE:
            return float(2 * size**3 / best_s / 1e9)
        size *= 2


def _seconds_of(compute: Callable[[], mx.array | list[mx.array]]) -> float:
    start = time.perf_counter()
    mx.eval(compute())
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
    fields = Path("/proc/self/maps").read_text().split()
    return next((word for word in fields if "/libopenblas" in word), "")


def cpu_kernels() -> str:
    """Return the BLAS library's file, its core and what MLX's kernels are compiled for; empty on a GPU and on macOS.

    Times and the last digits of results depend on it. It stays the same while the process lasts.
    """
    if on_gpu() or host.MACOS:
        return ""
    library = _blas_library()
    return " ".join(filter(None, (Path(library).name, _core(library), processor.flags_of(blas.kernel_header()))))


def _core(library: str) -> str:
    """Return the processor that an OpenBLAS's kernels are for, such as `SkylakeX`; empty without one."""
    if not library:
        return ""
    name_core = ctypes.CDLL(library).openblas_get_corename
    name_core.restype = ctypes.c_char_p
    return str(name_core().decode())


@overload
def fetch(array: mx.array, /, *, besides: Besides = ()) -> Host: ...


@overload
def fetch(first: mx.array, second: mx.array, /, *more: mx.array, besides: Besides = ()) -> tuple[Host, ...]: ...


def fetch(*arrays: mx.array, besides: Besides = ()) -> Host | tuple[Host, ...]:
    """Wait for arrays together and return copies on the host: a single array, or a tuple.

    Args:
        arrays: Of any dtype but bfloat16, which NumPy does not have.
        besides: Arrays to wait for as well; they are not copied.

    Raises:
        RuntimeError: If the device could not compute one of them.
    """
    mx.eval(*arrays, *besides)
    fetched = tuple(np.array(array) for array in arrays)
    return fetched[0] if len(fetched) == 1 else fetched


def change_in_place[T](array: mx.array, function: Callable[[npt.NDArray[np.float32]], T]) -> T:
    """Wait for a float32 array on a CPU, call a function with the array's own memory, and return its result.

    The function may change the numbers there, so no other array may share this memory.

    Raises:
        RuntimeError: If the array could not be computed.
    """
    mx.eval(array)
    # Damaged weights give numbers that are not finite.
    with np.errstate(all="ignore"):
        return function(np.asarray(array))


def array_of(data: bytes) -> mx.array:
    """Return bytes as an array: (n,) uint8."""
    return mx.array(np.frombuffer(data, np.uint8))


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: MLX raises a plain RuntimeError then."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def was_stopped(error: BaseException) -> bool:
    """Return whether an error means that the system ended the GPU's work, mostly because it took too long."""
    return isinstance(error, RuntimeError) and _STOPPED.search(str(error)) is not None


def is_device_error(error: BaseException) -> bool:
    """Return whether an error comes from the device or its memory, and so says nothing about the model."""
    failed = type(error) is RuntimeError and _DEVICE.match(str(error)) is not None
    return failed or isinstance(error, DeviceError | OutOfMemoryError) or ran_out_of_memory(error) or was_stopped(error)


@contextmanager
def memory_errors(during: str) -> Iterator[None]:
    """Turn MLX's errors about memory into `OutOfMemoryError`; other errors pass.

    Args:
        during: What was happening, in words that follow "There was not enough memory".
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
        # MLX's own text has numbers only. What was done may have the name of a folder.
        _LOG.warning("Not enough memory: %s", str(error))
        _let_go(error)
        raise OutOfMemoryError(f"There was not enough memory {during}.", _HINT) from error


@contextmanager
def device_errors(during: str) -> Iterator[None]:
    """Turn MLX's errors into `DeviceError` or `RanksError`, or into `OutOfMemoryError` as `memory_errors` does.

    Args:
        during: What was happening, in words that follow "The device failed": such as "for this reply".
    """
    try:
        with memory_errors(during):
            yield
    except RuntimeError as error:
        # MLX raises no other type.
        if type(error) is not RuntimeError:
            raise
        _LOG.exception("The device failed")
        _let_go(error)
        if str(error).startswith("[ring]"):
            raise RanksError(f"The connection to another Mac was lost {during}.", "Load the model again.") from error
        if match := _STOPPED.search(str(error)):
            message = f"The system stopped the GPU's work {during} ({match[1]})."
            raise DeviceStoppedError(message, _TRY_LATER) from error
        hint = _IN_FLOAT32 if _ONE_PRECISION in str(error) else _TRY_AGAIN
        raise DeviceError(f"The device failed {during}: {one_line(error)[:200]}", hint) from error


def _let_go(error: BaseException) -> None:
    """Free what the failed work held, and clear errors that the device reports later."""
    traceback.clear_frames(error.__traceback__)
    # Metal reports a failed command buffer at the next safe point.
    with suppress(RuntimeError):
        mx.synchronize()
    mx.clear_cache()
