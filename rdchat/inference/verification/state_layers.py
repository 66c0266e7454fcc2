"""The hooks by which unmodified layers of mlx-lm with recurrent or convolutional state take part in rounds.

Such a layer calls a causal convolution, which is a module, and a function for its recurrence, which is a name among the
globals of its file. The convolution gets a subclass of its own class. The layer gets one too, whose methods are copies
with other globals, so that mlx-lm's modules and other models stay as they are. Outside of a round the layer computes as
before.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.verification.round_cache import RoundArraysCache
from rdchat.inference.verification.state_round import Rows, StateRound


class _Form(NamedTuple):
    """The parameters of a recurrence.

    Attributes:
        rows: Those with a row for each token.
        state: The state before them.
        axis: Axis of the rows, in these and in the output.
    """

    rows: tuple[str, ...]
    state: str = "state"
    axis: int = 1


# The functions of mlx-lm that run a recurrence: gated delta rule, Mamba-2, lightning attention.
_FORMS = {
    "gated_delta_update": _Form(("q", "k", "v", "a", "b")),
    "ssm_update": _Form(("hidden_states", "B", "C", "dt")),
    "recurrent_gla": _Form(("q", "k", "v"), state="h", axis=2),
}
# Shortest and longest step of Mamba-2 where a family names none, as in `ssm_update`.
_TIME_STEPS = 0.001, 100.0


class StateLayers:
    """The layers of one network with recurrent or convolutional state.

    Args:
        network: An mlx-lm model; these layers and their convolutions get subclasses.

    Attributes:
        found: Whether there are any.
        recorded: Whether rounds record the layers' inputs. If not, an accepted part of a draft is fed again.
    """

    def __init__(self, network: nn.Module) -> None:
        self.recorded = True
        # A network may use the same layer at several depths.
        modules = [*{id(module): module for _, module in network.named_modules()}.values()]
        layers = [module for module in modules if methods_that_call(type(module), _FORMS)]
        # Their convolutions may belong to modules inside of them.
        inside = {id(module) for layer in layers for _, module in layer.named_modules()}
        layers += [m for m in modules if id(m) not in inside and any(isinstance(v, nn.Conv1d) for v in m.values())]
        for layer in layers:
            _StateLayer(self, layer)
        self.found = bool(layers)


class _StateLayer:
    """Connects one layer with the open round of the cache that it is called with."""

    def __init__(self, layers: StateLayers, module: nn.Module) -> None:
        self._layers = layers
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
        for each in (*arguments, *options.values()) if self._layers.recorded else ():
            if isinstance(each, RoundArraysCache):
                self._round = each.round
        try:
            return plain(*arguments, **options)
        finally:
            self._round = None

    def _convolve(self, kernel: int, plain: Callable[[mx.array], mx.array], inputs: mx.array) -> mx.array:
        return plain(inputs) if self._round is None else self._round.convolve(plain, inputs, kernel)

    def _recurrences(self, method: FunctionType) -> dict[str, Callable[..., Any]]:
        """Return the recurrences that a method can call, with rounds."""
        names = method.__globals__
        return {name: self._wrapped(names[name]) for name in _FORMS if _is_known(names.get(name))}

    def _wrapped(self, plain: Callable[..., tuple[mx.array, mx.array]]) -> Callable[..., Any]:
        """Wrap a recurrence of mlx-lm."""
        signature, form = inspect.signature(plain), _FORMS[plain.__name__]

        def turned(array: mx.array) -> mx.array:
            return array if form.axis == 1 else array.swapaxes(1, form.axis)

        def update(*arguments: Any, **options: Any) -> Any:
            if self._round is None:
                return plain(*arguments, **options)
            given = signature.bind(*arguments, **options).arguments
            # These belong to batches of conversations.
            if given.get("mask") is not None or given.get("lengths") is not None:
                return plain(*arguments, **options)

            def run(rows: Rows, state: mx.array | None) -> tuple[mx.array, mx.array]:
                own = zip(form.rows, map(turned, rows), strict=True)
                out, result = plain(**(given | dict(own) | {form.state: state}))
                return turned(out), result

            def state_after(rows: Rows, state: mx.array | None) -> mx.array:
                # mlx-lm has a kernel for one row of Mamba-2, but needs some fifteen launches for several.
                if plain.__name__ != "ssm_update" or state is None or rows[0].shape[1] == 1:
                    return run(rows, state)[1]
                return _state_space_after(rows, state, given)

            rows = tuple(turned(given[name]) for name in form.rows)
            out, result = self._round.recur(rows, given.get(form.state), run, state_after)
            return turned(out), result

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


def with_globals(method: FunctionType, own: dict[str, Any]) -> FunctionType:
    """Return a copy of a method for which some names of its file mean something else."""
    names = method.__globals__ | own
    copy = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    copy.__kwdefaults__ = method.__kwdefaults__
    return copy


def _is_known(recurrence: Any) -> bool:
    """Return whether a function is a recurrence with the parameters that rounds need."""
    form = _FORMS.get(getattr(recurrence, "__name__", ""))
    if form is None or not inspect.isfunction(recurrence):
        return False
    return {*form.rows, form.state} <= inspect.signature(recurrence).parameters.keys()


def _state_space_after(rows: Rows, state: mx.array, given: Mapping[str, Any]) -> mx.array:
    """Return the state of Mamba-2 after some rows, in five launches; Dao and Gu 2024, arXiv 2405.21060, section 6.

    The state after row n is `exp(s[n]) state + sum_i exp(s[n] - s[i]) dt[i] x[i] b[i]^T`, where s is the running sum of
    the log-decays `-exp(A_log) dt`.

    Args:
        rows: x, (1, n, heads, head_dim); b, (1, n, groups, state_size), each group for as many consecutive heads; c,
            which the state does not need; and dt, (1, n, heads), before its bias and softplus.
        state: (1, heads, head_dim, state_size).
        given: The other arguments of `ssm_update`.
    """
    x, b, _, dt = rows
    shortest, longest = (mx.array(limit, mx.float32) for limit in given.get("time_step_limit", _TIME_STEPS))
    steps, decays = _steps(dt, given["dt_bias"], given["A_log"], shortest, longest)
    sums = mx.cumsum(decays, axis=1)
    weighted = _weighted(x, steps[..., None], sums[..., None], sums[:, -1:, :, None])
    left = weighted.reshape(*b.shape[:3], -1).transpose(0, 2, 3, 1)
    added = (left @ b.transpose(0, 2, 1, 3)).reshape(state.shape)
    return _decayed(state, sums[:, -1, :, None, None], added)


@partial(mx.compile, shapeless=False)
def _steps(
    dt: mx.array, dt_bias: mx.array, a_log: mx.array, shortest: mx.array, longest: mx.array
) -> tuple[mx.array, mx.array]:
    """Return the steps and the log-decays of Mamba-2, (1, n, heads) float32."""
    steps = mx.clip(mx.logaddexp(dt.astype(mx.float32) + dt_bias, 0), shortest, longest)
    return steps, -mx.exp(a_log.astype(mx.float32)) * steps


@partial(mx.compile, shapeless=False)
def _weighted(x: mx.array, steps: mx.array, sums: mx.array, total: mx.array) -> mx.array:
    return x * (steps * mx.exp(total - sums))


@partial(mx.compile, shapeless=False)
def _decayed(state: mx.array, total: mx.array, added: mx.array) -> mx.array:
    return (mx.exp(total) * state + added).astype(state.dtype)
