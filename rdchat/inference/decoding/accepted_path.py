"""The one acceptance rule: a drafted node is accepted when it is the very token that the target chooses there.

`TokenChooser` makes that choice, a function of logits, position and seed alone, so a reply's text does not depend on
its drafts, at any temperature, but for what the number of rows makes of a logit's last digits.
"""

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree


def accepted_path(tree: PrefixTree, chosen: npt.NDArray[np.integer]) -> list[int]:
    """Walk from the root along the tokens that the target chose.

    Args:
        tree: The packed tree.
        chosen: (nodes,) the token that the target chooses after each node.

    Returns:
        Node indices of the accepted path, the root first. Of twins, children of one node with one token, the first is
        taken.
    """
    path = [0]
    for node in range(1, len(tree)):
        if tree.parents[node] == path[-1] and tree.tokens[node] == chosen[path[-1]]:
            path.append(node)
    return path


def seen_on_paths(seen: mx.array, tree: PackedTree) -> mx.array:
    """Return, for each node, which tokens occurred before the token that follows it: the repetition penalty's view.

    Args:
        seen: (vocabulary,) bool: tokens of the prompt and the reply before the root.
        tree: The packed tree, perhaps lazy.

    Returns:
        (nodes, vocabulary) bool.
    """
    nodes = mx.arange(len(tree))
    on_path = nodes[:, None] >= nodes if tree.ancestors is None else tree.ancestors
    counts = mx.zeros((len(tree), seen.shape[0]), mx.uint32)
    return seen | (counts.at[nodes[:, None], tree.tokens[None]].add(on_path) > 0)
