"""The one acceptance rule: a drafted node is accepted when it is the very token that the target chooses there.

What the target chooses is `TokenChooser`'s business: a function of its logits, the position and the seed. So a reply's
text does not depend on its drafts, at any temperature.
"""

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.prefix_tree import PrefixTree


def accepted_path(tree: PrefixTree, tokens: npt.NDArray[np.integer], chosen: npt.NDArray[np.integer]) -> list[int]:
    """Walk from the root along the tokens that the target chose.

    Args:
        tree: The packed tree.
        tokens: (nodes,) its tokens.
        chosen: (nodes,) the token that the target chooses after each node.

    Returns:
        Node indices of the accepted path, the root first. The children of a node differ, so there is one path.
    """
    path = [0]
    for node in range(1, len(tree)):
        if tree.parents[node] == path[-1] and tokens[node] == chosen[path[-1]]:
            path.append(node)
    return path


def seen_on_paths(seen: mx.array, tree: PrefixTree, tokens: mx.array) -> mx.array:
    """Return, for each node, which tokens occurred before the token that follows it: the repetition penalty's view.

    Args:
        seen: (vocabulary,) bool: tokens of the prompt and the reply before the root.
        tree: The packed tree.
        tokens: (nodes,) its tokens, perhaps lazy.

    Returns:
        (nodes, vocabulary) bool.
    """
    rows, columns = np.nonzero(tree.ancestors())
    mask = mx.broadcast_to(seen, (len(tree), seen.shape[0])) | False
    mask[mx.array(rows), tokens[mx.array(columns)]] = True
    return mask
