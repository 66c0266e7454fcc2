"""Places the nodes of a round's tree: the root at the left, each further token a column to the right."""

from dataclasses import dataclass

from rdchat.inference.api.events import RoundTree


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node to be drawn."""

    text: str
    log_prob: float | None  # by the target; None for the root
    drafter: str  # empty for the root and the correction
    parent: int  # place of the parent among the placed nodes; -1 for the root
    column: int  # distance from the root
    row: float  # from the top; between two rows if the node has an even number of children
    accepted: bool  # whether the node is on the accepted path
    correction: bool  # whether it is the token that the target itself added after that path


def place_nodes(tree: RoundTree) -> list[PlacedNode]:
    """Place the nodes and, behind the accepted path, the correction; leaves take a row each, from the top down.

    A parent stands at the middle of its first and last child. The accepted child comes first, so that the accepted path
    is the top row, which is in view however wide the tree.
    """
    count = len(tree.tokens)  # the place of the correction
    path = {*tree.path, count}
    texts, drafters = [*tree.texts, tree.correction_text], [*tree.drafters, ""]
    log_probs = [None, *tree.log_probs[1:], tree.correction_log_prob]
    parents = [*tree.parents, tree.path[-1]]
    children: list[list[int]] = [[] for _ in parents]
    columns: list[int] = []
    for node, parent in enumerate(parents):
        columns.append(0 if parent < 0 else columns[parent] + 1)
        if parent >= 0:
            children[parent].append(node)
    for node in tree.path:
        children[node].sort(key=lambda child: child not in path)
    rows = _rows(children, path)
    fields = zip(texts, log_probs, drafters, parents, columns, rows, strict=True)
    return [PlacedNode(*each, node in path, node == count) for node, each in enumerate(fields)]


def _rows(children: list[list[int]], on_path: set[int]) -> list[float]:
    """Return each node's row; without recursion, since trees may be 64 deep."""
    rows = [0.0] * len(children)
    leaves = 0
    stack = [(0, False)]
    while stack:
        node, is_done = stack.pop()
        if not children[node]:
            rows[node], leaves = float(leaves), leaves + 1
        elif is_done:
            last = 0 if node in on_path else -1
            rows[node] = (rows[children[node][0]] + rows[children[node][last]]) / 2
        else:
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children[node])]
    return rows
