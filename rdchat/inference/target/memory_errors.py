"""What MLX says where the device fails, as errors for people: its memory is not enough, or something else."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlx.core as mx

from rdchat.errors import DeviceError, OutOfMemoryError, one_line

_LOG = logging.getLogger(__name__)
_WORDS = (
    "Insufficient Memory",  # Metal of a command buffer, with kIOGPUCommandBufferCallbackErrorOutOfMemory
    "[metal::malloc]",  # Metal of one array that is too large, and of too many arrays
    "Unable to allocate",  # MLX's allocators
    "out of memory",  # CUDA
)
_TRY_AGAIN = "Try again; if that fails too, load the model again."
_HINT = "Close other apps, begin a new chat, or pick a smaller model or precision."


def ran_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory was not enough: MLX raises a plain RuntimeError for it."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


@contextmanager
def memory_errors(during: str) -> Iterator[None]:
    """Raise an `OutOfMemoryError` where MLX says that memory was not enough; other errors pass.

    Args:
        during: When that was, in words that follow "The memory was not enough".
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
        _LOG.warning("The memory was not enough %s: %s", during, error)
        _let_go(error)
        raise OutOfMemoryError(f"The memory was not enough {during}.", _HINT) from error


@contextmanager
def device_errors(during: str) -> Iterator[None]:
    """Raise a `DeviceError` where MLX says that something could not be computed; else as `memory_errors`.

    Args:
        during: As for `memory_errors`, in words that follow "The device failed".
    """
    try:
        with memory_errors(during):
            yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # MLX raises no other
            raise
        _LOG.exception("The device failed %s", during)
        _let_go(error)
        raise DeviceError(f"The device failed {during}: {one_line(error)[:200]}", _TRY_AGAIN) from error


def _let_go(error: BaseException) -> None:
    """Free what the broken work held, and take in what the device says of it later on."""
    traceback.clear_frames(error.__traceback__)
    with suppress(RuntimeError):  # Metal reports a failed command buffer at the next safe point
        mx.synchronize()
    mx.clear_cache()
