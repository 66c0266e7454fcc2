"""Rank 0: sends every call of its network, and what happened to caches before it, to the other ranks."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import finalize

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.requests import Dtype
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import resolve_model
from rdchat.inference.ranks.messages import Kind, meet, send, timed_exchanges
from rdchat.inference.ranks.sharding import check_sum, part_of
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import Operation, Tree, first_offset
from rdchat.inference.verification.state_layers import wrap_call
from rdchat.inference.verification.target import LoadedModel

# A call of more tokens reads a prompt.
_MAX_DRAFT = 64


def load(
    group: mx.distributed.Group,
    model: str | None,
    dtype: Dtype,
    on_progress: Callable[[LoadProgress], None],
    anyway: bool = False,
) -> LoadedModel:
    """Load this rank's part of a model, as `load_model` does, and have the other ranks load theirs."""
    folder = resolve_model(model, on_progress)
    part = part_of(folder, group)
    send(group, Kind.LOAD, [list(Dtype).index(dtype), check_sum(folder)])
    try:
        loaded = load_model(model, dtype, on_progress, anyway=anyway, part=part)
    except BaseException:
        # The others meet when they have loaded theirs.
        meet(group, waits=False)
        raise
    meet(group)
    Leader(loaded.network, loaded.hooks, group)
    return loaded


class Leader:
    """The calls of a network that other ranks repeat on caches of their own.

    A call's message has the cache's number, its length before the call, the number of tokens, whether they have
    positions of their own, whether they are a tree, whether attention is computed in parts, whether the state layers
    record, the tree's deepest and leaves, and the operations on caches since the last call, each as its number, the
    cache's, the number of its arguments, and these. The tokens follow, then their positions, then their parents. These
    may be lazy, so rank 0 waits for nothing that it would not wait for alone.

    All ranks must evaluate the same sums in the same order. So each call's trunk is evaluated at once, whether rank 0
    uses the result or not, and the message before it. While a prompt is read rank 0 waits for the message first: its
    GPU would else wait for a rank that still reads the part before.

    Args:
        network: The model's part on this rank; it gets a subclass that knows this object.
        hooks: Its hooks.
        group: The ranks.
    """

    def __init__(self, network: nn.Module, hooks: ModelHooks, group: mx.distributed.Group) -> None:
        self._hooks = hooks
        hooks.gives_trunk = True
        self._group = group
        self._numbers: dict[int, int] = {}
        self._last = 0
        self._operations: list[int] = []
        # By cache, of rounds that were opened: (nodes,) parents, deepest, leaves.
        self._trees: dict[int, tuple[mx.array, int, int]] = {}
        wrap_call(network, self._call)
        # `KVCache` looks for it there.
        setattr(type(network), "mirror", self._report)  # noqa: B010  mypy knows no such attribute

    def _report(
        self, operation: Operation, layers: list[Any], arguments: Sequence[int] = (), tree: Tree | None = None
    ) -> None:
        """Queue an operation on a cache for the next message; the next call's describes its tree."""
        number = self._number(layers)
        self._trees.pop(number, None)
        if tree is not None:
            depths, ancestors, deepest, leaves = tree
            above = mx.argmax((ancestors & (depths == depths[:, None] - 1)).astype(mx.uint8), axis=1)
            # The root, and nodes of padding, have none.
            self._trees[number] = mx.where(depths > 0, above.astype(mx.int32), -1), deepest, leaves
        self._operations.extend([operation, number, len(arguments), *arguments])

    def _number(self, layers: list[Any] | None) -> int:
        """Return a cache's number; 0 for none. It is that of the first layer's, which no other cache has."""
        if layers is None:
            return 0
        key = id(layers[0])
        if key not in self._numbers:
            self._last += 1
            self._numbers[key] = self._last
            finalize(layers[0], self._drop, key).atexit = False
        return self._numbers[key]

    def _drop(self, key: int) -> None:
        number = self._numbers.pop(key)
        self._trees.pop(number, None)
        # Perhaps on another thread, on which Python collects garbage.
        self._operations.extend([Operation.DROP, number, 0])

    def _call(self, plain: Callable[..., mx.array], tokens: mx.array, cache: list[Any] | None = None) -> mx.array:
        hooks = self._hooks
        number = self._number(cache)
        *tree, deepest, leaves = self._trees.pop(number, (0, 1))
        arrays = [tokens.reshape(-1).astype(mx.int32)]
        if hooks.depths is not None:
            arrays.append(hooks.depths)
        arrays += tree
        flags = hooks.depths is not None, bool(tree), hooks.attention.in_parts, hooks.states.recorded
        operations = self._operations[:]
        del self._operations[: len(operations)]
        words = [
            number,
            first_offset(cache),
            tokens.size,
            *map(int, flags),
            deepest,
            leaves,
            len(operations),
            *operations,
        ]
        with timed_exchanges(hooks.timed) if hooks.timed else nullcontext():
            send(self._group, Kind.CALL, words, *arrays, waits=tokens.size > _MAX_DRAFT)
            output = plain(tokens, cache=cache)
        trunk = hooks.trunk
        hooks.trunk = None
        mx.async_eval(output if trunk is None else trunk)
        return output
