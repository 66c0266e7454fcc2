"""MLX's errors about memory become errors for people; other errors are unchanged."""

import gc

import mlx.core as mx
import pytest

from rdchat.errors import DeviceError, OutOfMemoryError, RanksError
from rdchat.inference.verification.device import device_errors, is_device_error, memory_errors

METAL = (
    "[METAL] Command buffer execution failed: Insufficient Memory "
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
)
ERRORS = [
    RuntimeError(METAL),
    RuntimeError(
        "[metal::malloc] Attempting to allocate 83404284800 bytes which is greater than the maximum allowed buffer "
        "size of 77309411328 bytes."
    ),
    RuntimeError("[metal::malloc] Resource limit (499000) exceeded."),
    RuntimeError("[malloc] Unable to allocate 1073741824 bytes."),
    RuntimeError("cudaMallocAsync(&data, size, stream) failed: out of memory"),
    MemoryError("std::bad_alloc"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_the_words_of_mlx(error: Exception) -> None:
    words = r"There was not enough memory for this reply\. Close other apps"
    with pytest.raises(OutOfMemoryError, match=words) as caught, memory_errors("for this reply"):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [RuntimeError("[matmul] Last dimension does not match."), ValueError("memory")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, memory_errors("for this reply"):
        raise error
    assert caught.value is error


def test_what_the_broken_work_held_is_free_at_once() -> None:
    """Else the next try would find less memory than the first, for as long as somebody holds the error."""

    def work() -> None:
        held = mx.zeros((1024, 1024))
        mx.eval(held)
        raise RuntimeError(METAL)

    gc.collect()
    before = mx.get_active_memory()
    with pytest.raises(OutOfMemoryError) as caught, memory_errors("for this reply"):
        work()
    assert caught.value.__cause__ is not None
    assert mx.get_active_memory() == before


def test_what_else_fails_on_the_device_is_said_plainly() -> None:
    error = RuntimeError("[read] Unable to read from file.")
    words = r"The device failed for this reply: \[read\] Unable to read from file\. Try again"
    with pytest.raises(DeviceError, match=words) as caught, device_errors("for this reply"):
        raise error
    assert caught.value.__cause__ is error
    with pytest.raises(OutOfMemoryError), device_errors("for this reply"):
        raise RuntimeError(METAL)


@pytest.mark.parametrize("error", [ValueError("odd"), NotImplementedError("a subclass of it"), KeyboardInterrupt()])
def test_what_is_no_error_of_the_device_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, device_errors("for this reply"):
        raise error
    assert caught.value is error


def test_a_ring_that_lost_a_rank_is_no_fault_of_the_device_or_the_model() -> None:
    error = RuntimeError("[ring] connection to a peer was lost")
    assert is_device_error(error)
    with (
        pytest.raises(RanksError, match="The connection to another Mac was lost for this reply"),
        device_errors("for this reply"),
    ):
        raise error
