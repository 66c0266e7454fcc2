"""The trace of a reply: the target's log-probabilities, likely tokens, and each round's prefix tree with its texts.

The log-probabilities are part of the graph that chooses the tokens, so a trace costs no synchronisation.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import mlx.core as mx

from rdchat.inference.api.events import LikelyToken, RoundTree
from rdchat.inference.decoding.reductions import log_denominator, top_k
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.verifier import PackedTree


class TreeLogProbs(NamedTuple):
    """The target's log-probabilities along a verified tree, lazy until evaluated.

    Attributes:
        nodes: (nodes,) float32: log-probability of each node's token after its parent; without meaning for the root.
        chosen: (nodes,) float32: log-probability of the token chosen after each node.
    """

    nodes: mx.array
    chosen: mx.array

    @classmethod
    def of(cls, logits: mx.array, tree: PackedTree, chosen: mx.array) -> "TreeLogProbs":
        """Build them, lazily.

        Args:
            logits: (nodes, vocabulary), any floating dtype: what the target returned.
            tree: The verified tree.
            chosen: (nodes,) the tokens chosen.
        """
        after = token_log_probs(logits, chosen)
        parents = mx.maximum(tree.parents, 0)
        offered = logits[parents, tree.tokens]
        taken = logits[parents, chosen[parents]]
        return cls(offered.astype(mx.float32) - taken.astype(mx.float32) + after[parents], after)


class LikelyTokens(NamedTuple):
    """The most likely tokens after each of some rows, before temperature and filters; lazy until evaluated.

    Attributes:
        ids: (n, count) uint32: token ids, the most likely first.
        log_probs: (n, count) float32: their log-probabilities.
    """

    ids: mx.array
    log_probs: mx.array

    def listed(self, data_of: Callable[[int], bytes]) -> list[tuple[LikelyToken, ...]]:
        """Return the tokens of each row; `data_of` gives the text of one."""
        ids, log_probs = (each.tolist() for each in fetch(*self))
        return [
            tuple(LikelyToken(token, data_of(token), log_prob) for token, log_prob in zip(*row, strict=True))
            for row in zip(ids, log_probs, strict=True)
        ]


def likely_tokens(logits: mx.array, count: int | None) -> LikelyTokens | None:
    """Return the `count` most likely tokens of each row, lazy; None without any.

    Args:
        logits: (n, vocabulary), any floating dtype: what the target returned.
        count: At most the vocabulary is returned.
    """
    if not count:
        return None
    logits = logits.astype(mx.float32)
    ids, values = top_k(logits, min(count, logits.shape[-1]))
    return LikelyTokens(ids, values - log_denominator(logits))


def token_log_probs(logits: mx.array, tokens: mx.array) -> mx.array:
    """Return the log-probability of one token per row, (n,) float32, before temperature and filters.

    Args:
        logits: (n, vocabulary), any floating dtype: what the target returned.
        tokens: (n,) integers, perhaps lazy.
    """
    logits = logits.astype(mx.float32)
    return (mx.take_along_axis(logits, tokens[:, None], axis=-1) - log_denominator(logits))[:, 0]


def round_tree(
    tree: PrefixTree,
    drafters: Sequence[str],
    log_probs: TreeLogProbs,
    path: Sequence[int],
    correction: int,
    *,
    text_of: Callable[[int], str],
) -> RoundTree:
    """Return a round's tree as events carry it.

    Args:
        tree: The verified tree, on the host.
        drafters: (nodes,) who offered each node.
        log_probs: Evaluated.
        path: Accepted nodes, the root first.
        correction: The token that follows the last of them.
        text_of: Gives the text of one token.
    """
    nodes, chosen = (each.tolist() for each in fetch(*log_probs))
    tokens = tree.tokens.tolist()
    return RoundTree(
        tokens=tuple(tokens),
        parents=tuple(tree.parents.tolist()),
        drafters=tuple(drafters),
        log_probs=(0.0, *nodes[1:]),
        path=tuple(path),
        correction=correction,
        texts=tuple([text_of(token) for token in tokens]),
        correction_text=text_of(correction),
        correction_log_prob=chosen[path[-1]],
    )
