"""The hooks by which an unmodified mlx-lm model verifies a tree: rope modules, trunk, layers with state.

Masks come from the caches (`round_cache`). Positions come from each layer's `rope`, which is called with the cache's
offset; `mx.fast.rope` takes an array of offsets, one for each batch row, so with the token axis moved to the batch axis
every packed token gets its own position. The hidden states come from a wrapper around the trunk, in the same call.

Each hooked object gets a subclass of its own class, so the model's structure and weights stay unchanged. These
subclasses refer to the hooks, which must not refer to the network: classes are only freed by Python's cycle collector,
and a model that is unloaded must free its memory at once.

A layer with recurrent or convolutional state calls a causal convolution, which is a module, and a function for its
recurrence, which is a name among the globals of its file. Both must be caught for this network alone:

- The convolution gets a subclass of its own class, whose `__call__` asks the open round first.
- The layer gets a subclass whose methods are copies of its own with other globals. `Qwen3NextGatedDeltaNet.__call__`
  looks up `gated_delta_update` in the globals of `qwen3_next.py`; its copy finds ours in their place. The file's own
  globals, and layers of other models, stay as they are.

Ours run the recurrence that they replace, and give the round what it needs to undo or to commit a draft. Outside of a
round the layer computes as before.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple
from weakref import ref

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.inference.cpu_kernels import shared_positions
from rdchat.inference.verification.round_cache import RoundArraysCache
from rdchat.inference.verification.state_round import Rows, StateRound, Sums
from rdchat.inference.verification.tree_recurrences import (
    MAX_DEPTH,
    decayed_state,
    delta_outputs,
    state_space_after,
    state_space_sums,
)

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
        gives_states: Whether the trunk gives hidden states, as far as calls have shown; see `leave_out_logits`.
        gives_trunk: Whether `trunk` is recorded.
        trunk: (1, n, width): the trunk's output in the last call; None without a hook.
        depths: Positions of packed tokens within `packed`; else None.
        timed: Times an exchange with other ranks; None where they are not timed, since each is then computed by itself.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = ref(network)
        self.depths: mx.array | None = None
        # In the open round, by the cache's offset.
        self._positions: dict[int, mx.array] = {}
        self.timed: Callable[[], AbstractContextManager[None]] | None = None
        self._reads = HiddenReads()
        # Outputs of wrapped layers in the last call, and these layers' numbers: one that was read once stays wrapped.
        # They run inside the trunk, so when its own output comes, theirs are here.
        self._outputs: dict[int, mx.array] = {}
        self._wrapped: set[int] = set()
        self.gives_states = True
        # Of the trunk's output in the last call; 0 before the first.
        self._width = 0
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
            wrap_call(trunk, self._call_trunk)

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
        """Record nothing if the last call recorded nothing, or if the trunk's output was the logits themselves."""
        if self._width in (0, vocabulary_size):
            self.gives_states = False
            self.hidden = None

    @contextmanager
    def packed(self, depths: mx.array | None) -> Iterator[None]:
        """Within the block, rope modules give packed token i the position offset + depths[i]; None changes nothing."""
        self.depths = depths
        self._positions.clear()
        try:
            yield
        finally:
            self.depths = None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """After the block, what is read is as before it."""
        reads = self._reads
        try:
            yield
        finally:
            self._reads = reads

    def _give_positions(self, module: nn.Module) -> None:
        """Have a rope module turn each packed token by its own position.

        Other inputs than (1, heads, packed tokens, width) are turned as before.
        """

        def call(plain: Callable[..., Any], x: mx.array, *arguments: Any, **options: Any) -> Any:
            depths = self.depths
            if depths is None or x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != depths.shape[0]:
                return plain(x, *arguments, **options)
            if arguments:
                arguments = (self._positions_after(arguments[0], depths), *arguments[1:])
            else:
                options["offset"] = self._positions_after(options.get("offset", 0), depths)
            return plain(x.transpose(2, 1, 0, 3), *arguments, **options).transpose(2, 1, 0, 3)

        wrap_call(module, call)

    def _positions_after(self, offset: int | mx.array, depths: mx.array) -> mx.array:
        """Return the positions of packed tokens: one array for all layers, by which `cpu_kernels.rope` knows them."""
        if not isinstance(offset, int):
            return offset + depths
        if offset not in self._positions:
            self._positions[offset] = offset + depths
        return self._positions[offset]

    def _call_trunk(self, plain: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the trunk, and record what is read of the call, at its end, from its output."""
        with shared_positions():
            result = plain(*arguments, **options)
        trunk = _output(result)
        self._width = trunk.shape[-1]
        if self.gives_trunk:
            self.trunk = trunk
        if self.gives_states:
            self.hidden = self._hidden_of(trunk)
        return result

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
        take(_output(result))
        return result

    wrap_call(module, call)


def _output(result: Any) -> mx.array:
    """Return what a module computed, of all that it returned."""
    output: mx.array = result[0] if isinstance(result, tuple) else result
    return output


def _trunk(network: nn.Module) -> nn.Module | None:
    """Return the module whose output the logits are computed from: that of the text model if there are several."""
    trunk = None
    inner = network
    while isinstance(inner := next((inner[name] for name in _TRUNKS if name in inner), None), nn.Module):
        trunk = inner
    return trunk if callable(trunk) else None


# From rows, the state before them, the other arguments of a recurrence and (rows,) bool, which of them count, to the
# state after those.
type _StateAfter = Callable[[Rows, mx.array, Mapping[str, Any], mx.array | None], mx.array]


class _Form(NamedTuple):
    """The parameters of one of mlx-lm's recurrences, and how rounds compute it.

    Attributes:
        rows: Names of the parameters with a row for each token.
        state: Name of the parameter with the state before them.
        axis: Axis of the rows, in these and in the output.
        along_paths: Whether a tree's rows are computed along its paths, unless `sums` gives the outputs. If not,
            the recurrence is Mamba-2's, and `state_space_sums` gives them.
        sums: Computes a tree's outputs in another way; see `StateRound.recur`.
        state_after: Computes the state after several rows; None where the recurrence itself does so in one launch.
        inside: Names of functions of the recurrence's file, where it first computes the parameters above from its own
            and then calls one of these functions with them. Empty where they are its own parameters.
    """

    rows: tuple[str, ...]
    state: str = "state"
    axis: int = 1
    along_paths: bool = True
    sums: Sums | None = None
    state_after: _StateAfter | None = None
    inside: tuple[str, ...] = ()

    def turned(self, array: mx.array) -> mx.array:
        """Exchange the form's axis of rows and axis 1, where rounds have them."""
        return array if self.axis == 1 else array.swapaxes(1, self.axis)


class _Call(NamedTuple):
    """A call of one of mlx-lm's recurrences in a round.

    Attributes:
        plain: The recurrence.
        form: Its parameters.
        given: Its arguments, by name.
    """

    plain: Callable[..., tuple[mx.array, mx.array]]
    form: _Form
    given: dict[str, Any]

    def run(self, rows: Rows, state: mx.array | None, **mask: mx.array) -> tuple[mx.array, mx.array]:
        """Run the recurrence with other rows, and another state before them; see `Recurrence`."""
        named_rows = dict(zip(self.form.rows, map(self.form.turned, rows), strict=True))
        out, result = self.plain(**(self.given | named_rows | {self.form.state: state} | mask))
        return self.form.turned(out), result

    def state_after(self, rows: Rows, state: mx.array | None, taken: mx.array | None) -> mx.array:
        """Return the state after rows, or after those that are taken; see `StateAfter`."""
        # mlx-lm has a kernel for one row of Mamba-2, but needs some fifteen launches for several.
        if self.form.state_after is None or state is None or rows[0].shape[1] == 1:
            mask = {} if taken is None else {"mask": taken[None]}
            return self.run(rows, state, **mask)[1]
        return self.form.state_after(rows, state, self.given, taken)


# The functions of mlx-lm that run a recurrence: gated delta rule, Mamba-2, lightning attention. The first computes each
# row's gates and calls one of two others. These are recorded, so that a commit does not compute the gates again.
_FORMS = {
    "gated_delta_update": _Form(
        ("q", "k", "v", "g", "beta"), sums=delta_outputs, inside=("gated_delta_ops", "gated_delta_kernel")
    ),
    "ssm_update": _Form(("hidden_states", "B", "C", "dt"), along_paths=False, state_after=state_space_after),
    "recurrent_gla": _Form(("q", "k", "v"), state="h", axis=2, state_after=decayed_state),
}


class StateLayers:
    """The layers of one network with recurrent or convolutional state.

    Args:
        network: An mlx-lm model; these layers and their convolutions get subclasses.

    Attributes:
        along_paths: Whether some compute a state along each path of a tree.
        solved: Whether those need not, in trees of up to `MAX_DEPTH`; known for certain after the first tree.
        recorded: Whether rounds record the layers' inputs. If not, an accepted part of a draft is fed again.
    """

    def __init__(self, network: nn.Module) -> None:
        self.recorded = True
        # A network may use the same layer at several depths.
        modules = [*{id(module): module for _, module in network.named_modules()}.values()]
        recurrent = {kind for kind in set(map(type, modules)) if methods_that_call(kind, _FORMS)}
        layers = [module for module in modules if type(module) in recurrent]
        # Their convolutions may belong to modules inside of them.
        inside = {id(module) for layer in layers for _, module in layer.named_modules()}
        layers += [m for m in modules if id(m) not in inside and any(isinstance(v, nn.Conv1d) for v in m.values())]
        along_paths = {name for name, form in _FORMS.items() if form.along_paths}
        self.along_paths = any(methods_that_call(kind, along_paths) for kind in recurrent)
        unsolved = {name for name in along_paths if _FORMS[name].sums is None}
        self.solved = not any(methods_that_call(kind, unsolved) for kind in recurrent)
        # The class that it gives the layer keeps it.
        for layer in layers:
            _StateLayer(self, layer)

    def limits_leaves(self, deepest: int) -> bool:
        """Return whether each leaf of a tree this deep costs a state."""
        return self.along_paths and not (self.solved and deepest <= MAX_DEPTH)


class _StateLayer:
    """Connects one layer with the open round of the cache that it is called with; without a round nothing changes."""

    def __init__(self, layers: StateLayers, module: nn.Module) -> None:
        self._layers = layers
        # The open round during a call of the layer; None without one, and between calls.
        self._round: StateRound | None = None
        for _, part in module.named_modules():
            if isinstance(part, nn.Conv1d):
                wrap_call(part, partial(self._convolve, int(part.weight.shape[1])))
        plain: Any = type(module)
        methods = methods_that_call(plain, _FORMS)
        if methods:
            copies = {name: with_globals(method, self._recurrences(method)) for name, method in methods.items()}
            module.__class__ = type(plain.__name__, (plain,), copies)
        wrap_call(module, self._call)

    def _call(self, plain: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the layer; what it calls inside finds the round of the cache that is among the arguments."""
        for each in (*arguments, *options.values()) if self._layers.recorded else ():
            if isinstance(each, RoundArraysCache):
                self._round = each.round
        try:
            return plain(*arguments, **options)
        finally:
            self._round = None

    def _convolve(self, kernel: int, plain: Callable[[mx.array], mx.array], inputs: mx.array) -> mx.array:
        """Call a convolution of the layer, in a round by way of it; see `StateRound.convolve`."""
        return plain(inputs) if self._round is None else self._round.convolve(plain, inputs, kernel)

    def _recurrences(self, method: FunctionType) -> dict[str, Callable[..., Any]]:
        """Return the recurrences that a method can call, with rounds, by their names in the method's file.

        A name there may stand for another of these functions; then the form of that function counts.
        """
        names = method.__globals__
        known = {name: names[name] for name in _FORMS if _is_known(names.get(name))}
        return {name: self._with_rounds(plain, _FORMS[plain.__name__]) for name, plain in known.items()}

    def _with_rounds(self, plain: FunctionType, form: _Form) -> Callable[..., Any]:
        """Return a recurrence of mlx-lm with rounds: itself wrapped, or a copy whose functions `inside` are."""
        if not form.inside:
            return self._wrapped(plain, form)
        return with_globals(plain, {name: self._wrapped(plain.__globals__[name], form) for name in form.inside})

    def _wrapped(self, plain: Callable[..., tuple[mx.array, mx.array]], form: _Form) -> Callable[..., Any]:
        """Wrap a function that has the parameters of a form."""
        signature = inspect.signature(plain)

        def update(*arguments: Any, **options: Any) -> Any:
            if self._round is None:
                return plain(*arguments, **options)
            given = signature.bind(*arguments, **options).arguments
            # These belong to batches of conversations, which have no rounds.
            if given.get("mask") is not None or given.get("lengths") is not None:
                return plain(*arguments, **options)
            call = _Call(plain, form, given)
            rows = tuple(form.turned(given[name]) for name in form.rows)
            # `delta_outputs` takes no gates by channel: such a layer needs the paths in every tree.
            if form.sums is delta_outputs and rows[3].ndim != 3:
                self._layers.solved = False
            sums = form.sums if form.along_paths else partial(state_space_sums, given)
            out, result = self._round.recur(rows, given.get(form.state), call.run, call.state_after, sums)
            return form.turned(out), result

        return update


def wrap_call(module: nn.Module, call: Callable[..., Any]) -> None:
    """Give a module a subclass of its own class that calls `call(plain call, *arguments, **options)`."""
    plain: Any = type(module)

    def wrapped(self: nn.Module, *arguments: Any, **options: Any) -> Any:
        return call(partial(plain.__call__, self), *arguments, **options)

    module.__class__ = type(plain.__name__, (plain,), {"__call__": wrapped})


def methods_that_call(layer: type, functions: Collection[str]) -> dict[str, FunctionType]:
    """Return the methods of a layer's class that call one of these functions of its file, by name."""
    methods = inspect.getmembers(layer, inspect.isfunction)
    return {name: method for name, method in methods if not set(functions).isdisjoint(method.__code__.co_names)}


def with_globals(method: FunctionType, replaced: dict[str, Any]) -> FunctionType:
    """Return a copy of a method for which some names of its file mean something else."""
    names = method.__globals__ | replaced
    copy = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    copy.__kwdefaults__ = method.__kwdefaults__
    return copy


def _is_known(recurrence: Any) -> bool:
    """Return whether a function is a recurrence with the parameters that rounds need."""
    form = _FORMS.get(getattr(recurrence, "__name__", ""))
    if form is None or not inspect.isfunction(recurrence):
        return False
    functions = [recurrence.__globals__.get(name) for name in form.inside] or [recurrence]
    needed = {*form.rows, form.state}
    return all(inspect.isfunction(each) and needed <= inspect.signature(each).parameters.keys() for each in functions)
