"""Copies of a drafter's network with its weights in 4 or 8 bits."""

import mlx.nn as nn

from rdchat.inference.target.device import on_gpu

GROUP = 64  # weights that share a scale
_BITS_ON_GPU = 4


def usual_bits() -> int:
    """Return the bits of a published drafter's weights on this device, 0 for floats.

    4 on a GPU, where a draft's time is that of reading weights; floats on a CPU, where quantised products are slow.
    That 4 bits lose hardly any acceptance is what others report (mlx-dspark); it was not measured here, nor anything on
    a Mac.
    """
    return _BITS_ON_GPU if on_gpu() else 0


def quantize_weights(network: nn.Module, bits: int, group: int = GROUP) -> None:
    """Quantise a network in place where `bits` is not 0; layers whose width is no multiple of `group` stay floats."""
    if bits:
        nn.quantize(network, group, bits, class_predicate=lambda _, module: _fits(module, group))


def _fits(module: nn.Module, group: int) -> bool:
    return isinstance(module, nn.Linear | nn.Embedding) and module.weight.shape[-1] % group == 0
