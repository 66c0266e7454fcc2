"""The two hooks by which an unmodified mlx-lm model verifies a tree: the rope modules and the trunk.

Masks come from the caches (`round_cache`). Positions come from each layer's `rope`, which is called with the cache's
offset; `mx.fast.rope` takes an array of offsets, one for each batch row, so with the token axis moved to the batch axis
every packed token gets its own position. The hidden states come from a wrapper around the trunk, in the same call.

Objects are given a subclass of their own class, so nothing in the model's structure or weights changes. Those classes
know the hooks, which must not hold the network in turn: a class goes only when Python's cycle collector runs, and a
model that is let go of has to give its memory back at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError

_EPSILON = 1e-6  # keeps the length of a layer's output from being 0


@dataclass(frozen=True, slots=True)
class HiddenReads:
    """Which hidden states are recorded, side by side in this order.

    Attributes:
        layers: Layers, from 0, whose outputs are read.
        trunk: Whether what the trunk returns, normalised by its last layer, comes before them.
        normalised: Whether each layer's vectors are brought to a mean square of 1: inside a trunk some are ten times as
            long as others, and in a large model too long for 16 bits.
    """

    layers: tuple[int, ...] = ()
    trunk: bool = True
    normalised: bool = True


class ModelHooks:
    """The hooks of one network.

    Args:
        network: An mlx-lm model; its rope modules and its trunk get a subclass that knows this object.

    Attributes:
        hidden: (1, n, width): the hidden states of the last call that `read` asked for, at first the trunk's output;
            None before the first call.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = ref(network)
        self._depths: mx.array | None = None
        self._reads = HiddenReads()
        self._outputs: dict[int, mx.array] = {}  # of wrapped layers, in the last call
        self._wrapped: set[int] = set()
        self._recording = True
        self.hidden: mx.array | None = None
        for name, module in network.named_modules():
            if "rope" in name.rsplit(".", 1)[-1] and callable(module):
                self._give_positions(module)
        trunk = _trunk(network)
        if trunk is not None:
            self._record(trunk)

    def read(self, reads: HiddenReads) -> None:
        """Record these hidden states from the next call on; a drafter may read more than the trunk's output.

        Raises:
            ModelError: If the model has no such layers.
        """
        modules = getattr(self._network(), "layers", ())
        if any(layer >= len(modules) for layer in reads.layers):
            raise ModelError(f"The model has {len(modules)} layers that can be read, and no layer {max(reads.layers)}.")
        for layer in set(reads.layers) - self._wrapped:
            self._record_layer(modules[layer], layer)
        self._reads = reads

    def leave_out_logits(self, vocabulary_size: int) -> None:
        """Record nothing where the trunk, as the last call showed, returns the logits themselves."""
        if self.hidden is not None and self.hidden.shape[-1] == vocabulary_size:
            self._recording, self.hidden = False, None

    @contextmanager
    def packed(self, depths: mx.array | None) -> Iterator[None]:
        """Within, rope modules give packed token i the position offset + depths[i]; None leaves them alone."""
        self._depths = depths
        try:
            yield
        finally:
            self._depths = None

    def _give_positions(self, module: nn.Module) -> None:
        plain = type(module)
        hooks = self

        def call(self: nn.Module, x: mx.array, *arguments: Any, **options: Any) -> Any:
            depths = hooks._depths
            if depths is None or x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != depths.shape[0]:
                return plain.__call__(self, x, *arguments, **options)
            if "offset" in options:
                options["offset"] = options["offset"] + depths
            elif arguments:
                arguments = (arguments[0] + depths, *arguments[1:])
            else:
                options["offset"] = depths
            return plain.__call__(self, x.transpose(2, 1, 0, 3), *arguments, **options).transpose(2, 1, 0, 3)

        module.__class__ = type(plain.__name__, (plain,), {"__call__": call})

    def _record(self, trunk: nn.Module) -> None:
        plain = type(trunk)
        hooks = self

        def call(self: nn.Module, *arguments: Any, **options: Any) -> Any:
            result = plain.__call__(self, *arguments, **options)
            if hooks._recording:
                hooks.hidden = hooks._hidden_of(_first(result))
            return result

        trunk.__class__ = type(plain.__name__, (plain,), {"__call__": call})

    def _hidden_of(self, trunk: mx.array) -> mx.array:
        reads = self._reads
        outputs = [self._outputs[layer] for layer in reads.layers]
        if reads.normalised:
            outputs = [mx.fast.rms_norm(output, None, _EPSILON) for output in outputs]
        parts = [trunk, *outputs] if reads.trunk else outputs
        return mx.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]

    def _record_layer(self, module: nn.Module, layer: int) -> None:
        plain = type(module)
        hooks = self

        def call(self: nn.Module, *arguments: Any, **options: Any) -> Any:
            result = plain.__call__(self, *arguments, **options)
            hooks._outputs[layer] = _first(result)
            return result

        module.__class__ = type(plain.__name__, (plain,), {"__call__": call})
        self._wrapped.add(layer)


def _trunk(network: nn.Module) -> nn.Module | None:
    """Return the module that the logits are read from: `model`, of the text model where it is one part of several."""
    found, inner = None, network
    while isinstance(inner := inner.get("model", inner.get("language_model")), nn.Module):
        found = inner
    return found if callable(found) else None


def _first(result: Any) -> mx.array:
    output: mx.array = result[0] if isinstance(result, tuple) else result
    return output
