"""The hooks by which an unmodified mlx-lm model verifies a tree: rope modules, trunk, layers with state.

Masks come from the caches (`round_cache`). Positions come from each layer's `rope`, which is called with the cache's
offset; `mx.fast.rope` takes an array of offsets, one for each batch row, so with the token axis moved to the batch axis
every packed token gets its own position. The hidden states come from a wrapper around the trunk, in the same call.
Layers with recurrent or convolutional state are in `state_layers`.

Each hooked object gets a subclass of its own class, so the model's structure and weights stay unchanged. These
subclasses refer to the hooks, which must not refer to the network: classes are only freed by Python's cycle collector,
and a model that is unloaded must free its memory at once.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.verification.state_layers import StateLayers, wrap_call

# Names of the trunk; families with Mamba layers call it `backbone`.
_TRUNKS = ("model", "language_model", "backbone", "transformer")
# Keeps the norm of a layer's output from being 0.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class HiddenReads:
    """Which hidden states are recorded; they are concatenated in this order, the trunk's first.

    Attributes:
        layers: Layers, from 0, whose outputs are read.
        trunk: Whether the trunk's output, which its last layer normalises, comes before them.
        normalised: Whether each layer's vectors are scaled to a mean square of 1: inside a trunk some are ten times as
            long as others, and in a large model they overflow 16 bits.
    """

    layers: tuple[int, ...] = ()
    trunk: bool = True
    normalised: bool = True


class ModelHooks:
    """The hooks of one network.

    Args:
        network: An mlx-lm model; its rope modules and its trunk get a subclass that knows this object.

    Attributes:
        states: The layers with recurrent or convolutional state.
        gives_positions: Whether there are rope modules.
        hidden: (1, n, width): the hidden states of the last call, as `record_states` requested; at first the trunk's
            output. None before the first call.
        gives_trunk: Whether `trunk` is recorded.
        trunk: (1, n, width): the trunk's output in the last call; None without a hook.
        depths: Positions of packed tokens within `packed`; else None.
        timed: Times an exchange with other ranks; None where they are not timed, since each is then computed by itself.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = ref(network)
        self.depths: mx.array | None = None
        self.timed: Callable[[], AbstractContextManager[None]] | None = None
        self._reads = HiddenReads()
        # Outputs of wrapped layers in the last call.
        self._outputs: dict[int, mx.array] = {}
        self._wrapped: set[int] = set()
        self._recording = True
        self.hidden: mx.array | None = None
        self.gives_trunk = False
        self.trunk: mx.array | None = None
        self.states = StateLayers(network)
        self.gives_positions = False
        for name, module in network.named_modules():
            if "rope" in name.rsplit(".", 1)[-1] and callable(module):
                self._give_positions(module)
                self.gives_positions = True
        trunk = _trunk(network)
        if trunk is not None:
            _record(trunk, self._take)

    def record_states(self, reads: HiddenReads) -> None:
        """Record these hidden states from the next call on.

        Raises:
            ModelError: If the model has no such layers, or other ranks of a pipeline have them.
        """
        network = self._network()
        if reads.layers and network is not None and getattr(_trunk(network), "pipeline_size", 1) > 1:
            raise ModelError("The drafter reads layers that are spread over several Macs.", "Choose another one.")
        modules = getattr(network, "layers", ())
        if any(layer >= len(modules) for layer in reads.layers):
            raise ModelError(f"The model has {len(modules)} layers that can be read, but no layer {max(reads.layers)}.")
        for layer in set(reads.layers) - self._wrapped:
            _record(modules[layer], partial(self._outputs.__setitem__, layer))
            self._wrapped.add(layer)
        self._reads = reads

    def leave_out_logits(self, vocabulary_size: int) -> None:
        """Record nothing if the trunk's output in the last call was the logits themselves."""
        if self.hidden is not None and self.hidden.shape[-1] == vocabulary_size:
            self._recording = False
            self.hidden = None

    @contextmanager
    def packed(self, depths: mx.array | None) -> Iterator[None]:
        """Within the block, rope modules give packed token i the position offset + depths[i]; None changes nothing."""
        self.depths = depths
        try:
            yield
        finally:
            self.depths = None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """After the block, what is read and what the last call gave is as before it."""
        reads = self._reads
        hidden = self.hidden
        try:
            yield
        finally:
            self._reads = reads
            self.hidden = hidden

    def _give_positions(self, module: nn.Module) -> None:
        def call(plain: Callable[..., Any], x: mx.array, *arguments: Any, **options: Any) -> Any:
            if self.depths is None or x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != self.depths.shape[0]:
                return plain(x, *arguments, **options)
            depths = self.depths
            if "offset" in options:
                options["offset"] = options["offset"] + depths
            elif arguments:
                arguments = (arguments[0] + depths, *arguments[1:])
            else:
                options["offset"] = depths
            return plain(x.transpose(2, 1, 0, 3), *arguments, **options).transpose(2, 1, 0, 3)

        wrap_call(module, call)

    def _take(self, trunk: mx.array) -> None:
        if self.gives_trunk:
            self.trunk = trunk
        if self._recording:
            self.hidden = self._hidden_of(trunk)

    def _hidden_of(self, trunk: mx.array) -> mx.array:
        reads = self._reads
        if reads.trunk and not reads.layers:
            return trunk
        outputs = [self._outputs[layer] for layer in reads.layers]
        if reads.normalised:
            outputs = [mx.fast.rms_norm(output, None, _EPSILON) for output in outputs]
        parts = [trunk, *outputs] if reads.trunk else outputs
        return mx.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def _record(module: nn.Module, take: Callable[[mx.array], None]) -> None:
    """Make a module give its output to `take` in each call."""

    def call(plain: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = plain(*arguments, **options)
        take(result[0] if isinstance(result, tuple) else result)
        return result

    wrap_call(module, call)


def _trunk(network: nn.Module) -> nn.Module | None:
    """Return the module whose output the logits are computed from: that of the text model if there are several."""
    trunk = None
    inner = network
    while isinstance(inner := next((inner[name] for name in _TRUNKS if name in inner), None), nn.Module):
        trunk = inner
    return trunk if callable(trunk) else None
