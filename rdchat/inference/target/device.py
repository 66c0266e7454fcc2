"""The device MLX computes on, and its memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from rdchat import host, memory


def on_gpu() -> bool:
    """Tell whether MLX computes on a GPU (Metal or CUDA)."""
    return bool(mx.default_device().type == mx.DeviceType.gpu)


def device_name() -> str:
    """Return such as `Apple M3 Max`, or `CPU` where no GPU is used."""
    if not on_gpu():
        return "CPU"
    return str(mx.device_info().get("device_name", "GPU"))


def available_memory_bytes() -> int:
    """Return how much memory a model may take now: what is free, on Macs at most what Metal recommends.

    A GPU with memory of its own (CUDA) counts that.
    """
    info = mx.device_info() if on_gpu() else {}
    if "free_memory" in info:
        return int(info["free_memory"])
    free = memory.available_bytes()
    return min(free, int(info.get("max_recommended_working_set_size", free)))


def total_memory_bytes() -> int:
    """Return how much memory models could take if nothing else ran: the same number at every start."""
    info = mx.device_info() if on_gpu() else {}
    own = info.get("total_memory") if "free_memory" in info else info.get("max_recommended_working_set_size")
    return memory.total_bytes() if own is None else int(own)


@contextmanager
def wired_memory() -> Iterator[None]:
    """Keep the model's memory resident while a reply is made, as mlx-lm does; nothing to do without Metal."""
    limit = mx.device_info().get("max_recommended_working_set_size")
    if limit is None or not host.MACOS:
        yield
        return
    before = mx.set_wired_limit(int(limit))
    try:
        yield
    finally:
        mx.synchronize()
        mx.set_wired_limit(before)
