"""Turns MLX's device errors into errors for people: not enough memory, work that was stopped, or a failed device."""

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import mlx.core as mx

from rdchat.errors import DeviceError, DeviceStoppedError, OutOfMemoryError, RanksError, one_line

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
# As MLX's errors begin that name Metal or the ring; those of `[metal_kernel]` are a model's own.
_DEVICE = re.compile(r"\[(metal(::\w+)?|Event::Event|ring)\]", re.IGNORECASE)
_TRY_AGAIN = "Try again. If it fails again, reload the model."
_TRY_LATER = "Try again. If it fails again, quit rdchat and open it again."
_HINT = "Close other apps, start a new chat, or choose a smaller model or precision."


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
        _LOG.warning("Not enough memory %s: %s", during, error)
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
        _LOG.exception("The device failed %s", during)
        _let_go(error)
        if str(error).startswith("[ring]"):
            raise RanksError(f"The connection to another Mac was lost {during}.", "Load the model again.") from error
        if match := _STOPPED.search(str(error)):
            message = f"The system stopped the GPU's work {during} ({match[1]})."
            raise DeviceStoppedError(message, _TRY_LATER) from error
        raise DeviceError(f"The device failed {during}: {one_line(error)[:200]}", _TRY_AGAIN) from error


def _let_go(error: BaseException) -> None:
    """Free what the failed work held, and clear errors that the device reports later."""
    traceback.clear_frames(error.__traceback__)
    # Metal reports a failed command buffer at the next safe point.
    with suppress(RuntimeError):
        mx.synchronize()
    mx.clear_cache()
