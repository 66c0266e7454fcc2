"""The trace of a reply's events: the target's log-probabilities, and the prefix tree of each round with its texts.

The log-probabilities are asked for in the graph that chooses the tokens, so a trace costs no synchronisation: one pass
over the logits for each row's sum, and a gather. They are exact to 1e-3, more than is displayed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from rdchat.inference.api.events import RoundTree
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree


@dataclass(frozen=True, slots=True)
class TreeLogProbs:
    """The target's log-probabilities along a verified tree, lazy until they are evaluated with it.

    Attributes:
        nodes: (nodes,) float32: of each node's token after its parent; without meaning for the root.
        chosen: (nodes,) float32: of the token that is chosen after each node.
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
        after, parents = token_log_probs(logits, chosen), mx.maximum(tree.parents, 0)
        offered, taken = logits[parents, tree.tokens], logits[parents, chosen[parents]]
        return cls(offered.astype(mx.float32) - taken.astype(mx.float32) + after[parents], after)

    @property
    def arrays(self) -> tuple[mx.array, mx.array]:
        """Both, to be evaluated."""
        return self.nodes, self.chosen


def token_log_probs(logits: mx.array, tokens: mx.array) -> mx.array:
    """Return the log-probabilities, (n,) float32, of a token a row, before temperature and filters.

    Args:
        logits: (n, vocabulary), any floating dtype: what the target returned.
        tokens: (n,) integers, perhaps lazy; the logit of each less than 10 below the largest of its row.
    """
    rows, vocabulary = logits.shape
    logits = logits.astype(mx.float32)
    powers = _exp(logits, logits[mx.arange(rows), tokens][:, None])
    blocks = powers.reshape(rows, -1, math.gcd(vocabulary, 32))  # MLX sums short rows faster than long ones
    return -mx.log(mx.sum(mx.sum(blocks, axis=-1), axis=-1))


@partial(mx.compile, shapeless=False)
def _exp(logits: mx.array, reference: mx.array) -> mx.array:
    """Return exp(logits - reference): Taylor's fourth order at a 32nd of it, squared five times.

    To 1e-4 for differences from -5 to 5 and 1e-3 from -10 to 10, in half the time of `sampling`'s, which is exact to
    1e-6. The reference need not be the largest logit, so that no pass goes into finding it.
    """
    y = mx.clip(logits - reference, -32.0, 64.0) * (1 / 32)
    power = 1 + y * (1 + y * (1 / 2 + y * (1 / 6 + y / 24)))
    for _ in range(5):
        power = power * power
    return power


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
