"""Verifies drafts: one target call for all packed nodes of a tree, then one path of it is committed.

Models with recurrent state follow chains only and cannot go back to the middle of one. Where only a part of a draft is
accepted, the state from before the round is restored, and the accepted tokens are fed together with the next round's
draft. If several rounds in a row end so, the pending tokens are fed in a call of their own.
"""

from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.target import LoadedModel

# Up to this many pending rows are cheaper to verify again with the next draft than to feed in their own call.
_MOST_PENDING = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's output for a tree, lazy."""

    logits: mx.array  # (nodes, vocabulary), in the model's dtype: logits of the token after each node
    hidden: mx.array | None  # (nodes, width): each node's hidden state; None where the trunk has no hook


class Verifier:
    """Opens rounds on the target's cache, and commits or rolls them back.

    Args:
        model: The target.
        cache: Its cache, with rounds; `cache.tokens` is kept up to date.
    """

    def __init__(self, model: LoadedModel, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._stateful = cache.has_state
        self._pending: list[int] = []  # accepted tokens that the cache does not hold
        self._fed = 0  # rows of the open round

    @property
    def position(self) -> int:
        """Return the number of committed tokens: the position of the next round's root."""
        return len(self._cache.tokens) + len(self._pending)

    def verify(self, tree: PackedTree, rows: int = 0) -> Verified:
        """Feed a tree, perhaps lazy; the round stays open until `commit` or `rollback`.

        Args:
            tree: Its root is the last chosen token.
            rows: Pad the call to this many rows, where that is cheaper; recurrent state takes no padding.
        """
        if len(self._pending) > _MOST_PENDING:
            self.catch_up()
        pending, nodes = len(self._pending), len(tree)
        tree = tree if self._stateful else tree.padded(rows)
        tokens = tree.tokens
        chain = tree.ancestors is None
        self._fed = pending + len(tree)
        self._cache.begin(tree.depths, tree.ancestors)
        if pending:
            assert chain
            tokens = mx.concatenate([mx.array(self._pending, dtype=tokens.dtype), tokens])
        with self._model.hooks.packed(None if chain else tree.depths):
            logits = self._model.network(tokens[None], cache=self._cache.layers)
        hidden, meant = self._model.hooks.hidden, slice(pending, pending + nodes)
        return Verified(logits[0, meant], None if hidden is None else hidden[0, meant])

    def catch_up(self) -> None:
        """Feed accepted tokens that the cache does not hold yet, in a call of their own."""
        if self._pending:
            self._model.network(mx.array([self._pending]), cache=self._cache.layers)
            self._cache.tokens += self._pending
            self._pending = []

    def commit(self, tokens: list[int], path: list[int]) -> None:
        """Keep a path of the open round.

        Args:
            tokens: The tokens along the path, root first.
            path: Their node indices.
        """
        pending = len(self._pending)
        rows = [*range(pending), *(pending + node for node in path)]
        if self._stateful and len(rows) < self._fed:
            self.rollback()
            self._pending += tokens
            return
        self._cache.commit(rows)
        self._cache.tokens += [*self._pending, *tokens]
        self._pending = []

    def rollback(self) -> None:
        """Keep nothing of the open round."""
        self._cache.rollback()
