"""Verifying drafts: one target call for all packed nodes of a tree, then one path of it is committed.

Models whose caches hold recurrent state follow chains only and cannot go back to the middle of one: where a draft is
not accepted whole, the state of the round's beginning is put back and the accepted tokens are fed together with the
next round's draft. If several rounds in a row end so, those tokens are fed on their own once they are many.
"""

from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.round_cache import RoundShape, has_state
from rdchat.inference.target.target import LoadedModel

_MOST_PENDING = 8  # rows that are cheaper to verify again with the next draft than to feed in a call of their own


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's output for a tree, lazy.

    Attributes:
        logits: (nodes, vocabulary), in the model's dtype: of the token that follows each node.
        hidden: (nodes, width): each node's hidden state; None where the trunk has no hook.
    """

    logits: mx.array
    hidden: mx.array | None


class Verifier:
    """Opens a round on the target's cache, and commits or rolls it back.

    Args:
        model: The target.
        cache: Its cache, with rounds; `cache.tokens` is kept in step with it.
    """

    def __init__(self, model: LoadedModel, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._stateful = has_state(cache.layers)
        self._pending: list[int] = []  # accepted tokens that the cache does not hold
        self._fed = 0  # rows of the open round

    @property
    def position(self) -> int:
        """Return the number of committed tokens: the position of the next round's root."""
        return len(self._cache.tokens) + len(self._pending)

    def verify(self, tree: PackedTree, rows: int = 0) -> Verified:
        """Feed a tree, perhaps a lazy one; the round stays open until `commit` or `rollback`.

        Args:
            tree: Its root is the last chosen token.
            rows: Pad the call up to so many rows, where that is cheaper; state that follows one chain takes no padding.
        """
        if len(self._pending) > _MOST_PENDING:
            self.catch_up()
        pending, nodes = len(self._pending), len(tree)
        tree = tree if self._stateful else tree.padded(rows)
        tokens = tree.tokens
        chain = tree.ancestors is None
        self._fed = pending + len(tree)
        shape = RoundShape(mx.arange(self._fed) if chain else tree.depths, tree.ancestors)
        for layer in self._cache.layers:
            layer.begin(shape)
        if pending:
            assert chain
            tokens = mx.concatenate([mx.array(self._pending, dtype=tokens.dtype), tokens])
        with self._model.hooks.packed(None if chain else tree.depths):
            logits = self._model.network(tokens[None], cache=self._cache.layers)
        hidden, meant = self._model.hooks.hidden, slice(pending, pending + nodes)
        return Verified(logits[0, meant], None if hidden is None else hidden[0, meant])

    def catch_up(self) -> None:
        """Feed accepted tokens that the cache does not hold yet, on their own."""
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
        for layer in self._cache.layers:
            layer.commit(rows)
        self._cache.tokens += [*self._pending, *tokens]
        self._pending = []

    def rollback(self) -> None:
        """Keep nothing of the open round."""
        for layer in self._cache.layers:
            layer.rollback()
