"""The trace of a reply: the target's log-probabilities, and the prefix tree of each round with its texts.

The log-probabilities are part of the graph that chooses the tokens, so a trace costs no synchronisation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.api.events import RoundTree
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.verifier import PackedTree


@dataclass(frozen=True, slots=True)
class TreeLogProbs:
    """The target's log-probabilities along a verified tree, lazy until evaluated."""

    nodes: mx.array  # (nodes,) float32: of each node's token after its parent; without meaning for the root
    chosen: mx.array  # (nodes,) float32: of the token chosen after each node

    @classmethod
    def of(cls, logits: mx.array, tree: PackedTree, chosen: mx.array) -> "TreeLogProbs":
        """Build them, lazily.

        Args:
            logits: (nodes, vocabulary), any floating dtype: what the target returned.
            tree: The verified tree.
            chosen: (nodes,) the tokens chosen.
        """
        after, parents = token_log_probs(logits, chosen), mx.maximum(tree.parents, 0)
        offered, taken = logits[parents, tree.tokens], logits[parents, chosen[parents]]
        return cls(offered.astype(mx.float32) - taken.astype(mx.float32) + after[parents], after)

    @property
    def arrays(self) -> tuple[mx.array, mx.array]:
        """Both arrays, to be evaluated."""
        return self.nodes, self.chosen


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
    nodes, chosen = (each.tolist() for each in fetch(*log_probs.arrays))
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
