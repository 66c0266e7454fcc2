"""Measures the cost of each of the two model calls of a round alone.

A reply is made once more with the same rounds, each in two halves that are evaluated one after the other: the draft,
and the target's call on the same packed rows. The rest of a real round's time is choosing, accepting, committing and
the host's work.
"""

from collections.abc import Sequence
from time import perf_counter

import mlx.core as mx
import numpy as np

from rdchat.inference.decoding.accepted_path import accepted_path
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.prefill import read_prompt
from rdchat.inference.decoding.reply import RowsFor
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verified, Verifier


class SplitRounds:
    """Makes the rounds of a reply again, each as a draft and a target call that are evaluated one after the other.

    Args:
        model: The target.
        drafter: Fresh, for this prompt; a draft model's KV cache is empty.
        prompt: Token ids.
        rows_for: As `ReplyJob` has it.
    """

    def __init__(
        self,
        model: LoadedModel,
        drafter: Drafter,
        prompt: list[int],
        rows_for: RowsFor = lambda nodes, _depth: nodes,
    ) -> None:
        self._cache = KVCache(model.network)
        self._drafter, self._rows_for = drafter, rows_for
        logits = read_prompt(model, self._cache, prompt)
        mx.eval(logits, model.hooks.hidden)  # what the first draft reads
        for _ in drafter.prefill(lambda: False, Ledger()):
            pass
        self._verifier = Verifier(model, self._cache)
        self._open: tuple[int, Draft, Verified] | None = None

    def run(self, root: int, limit: int) -> tuple[float, float]:
        """Open a round.

        Args:
            root: The reply's last token.
            limit: The most tokens that may be drafted.

        Returns:
            Milliseconds of its draft, and of its target call.
        """
        began = perf_counter()
        draft = self._drafter.propose(root, limit)
        mx.eval(*draft.tree.arrays, draft.looked_up)
        drafted = perf_counter()
        rows = draft.rows or self._rows_for(len(draft.tree), self._verifier.position)
        verified = self._verifier.verify(draft.tree, rows)
        mx.eval(verified.logits, verified.hidden)
        self._open = root, draft, verified
        return (drafted - began) * 1e3, (perf_counter() - drafted) * 1e3

    def follow(self, tokens: Sequence[int]) -> bool:
        """Close the round with the tokens that it brought; False where its tree could not have brought them."""
        assert self._open is not None
        root, draft, verified = self._open
        tree = draft.tree.fetch()
        path = _path_along(tree, tokens)
        if len(path) != len(tokens):
            return False
        self._verifier.commit([root, *tokens[:-1]], path)
        write_accepted(self._cache)
        self._drafter.observe(root, list(tokens), verified, path)
        return True


def write_accepted(cache: KVCache) -> None:
    """Write the rows that were accepted late, as the next call would do."""
    for layer in cache.layers:
        if layer.is_trimmable():
            layer.trim(0)
    cache.evaluate()


def _path_along(tree: PrefixTree, tokens: Sequence[int]) -> list[int]:
    """Return the nodes, the root first, that hold the tokens but for the last, which is the target's own."""
    known = min(len(tokens), int(tree.depths.max()) + 1)
    following = np.full(int(tree.depths.max()) + 1, -1)  # by depth
    following[:known] = tokens[:known]
    return accepted_path(tree, following[tree.depths])[: len(tokens)]
