"""Places the nodes of a round's tree: the root at the left, each further token a column to the right."""

from dataclasses import dataclass

from rdchat.inference.api.events import RoundTree
from rdchat.ui.drafts.words import depths


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node to be drawn.

    Attributes:
        text: Its token's text.
        log_prob: The target's log-probability of it; None for the root.
        drafter: Who offered it; empty for the root and the correction.
        parent: Place of its parent among the placed nodes; -1 for the root.
        column: Its distance from the root.
        row: Its height, in rows from the top; between two rows where it has an even number of children.
        accepted: Whether it is on the accepted path.
        correction: Whether it is the token that the target itself added behind that.
    """

    text: str
    log_prob: float | None
    drafter: str
    parent: int
    column: int
    row: float
    accepted: bool
    correction: bool = False


def place_nodes(tree: RoundTree) -> list[PlacedNode]:
    """Place the nodes and, behind the accepted path, the correction; leaves take a row each, from the top down.

    A parent stands at the middle of its first and last child. The accepted child comes first, and the path runs along
    the top in one line: from the root on it is in view, however wide the tree.
    """
    on_path = set(tree.path)
    end = tree.path[-1]
    count = len(tree.tokens)  # the place of the correction
    parents = [*tree.parents, end]
    children: list[list[int]] = [[] for _ in range(count + 1)]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    for node in tree.path:
        children[node].sort(key=lambda child: not (child in on_path or child == count))
    rows = _rows(children, on_path)
    columns = [*depths(tree), 0]
    columns[count] = columns[end] + 1
    placed = [
        PlacedNode(
            tree.texts[node],
            tree.log_probs[node] if node else None,
            tree.drafters[node],
            parents[node],
            columns[node],
            rows[node],
            node in on_path,
        )
        for node in range(count)
    ]
    correction = PlacedNode(
        tree.correction_text, tree.correction_log_prob, "", end, columns[count], rows[count], True, correction=True
    )
    return [*placed, correction]


def _rows(children: list[list[int]], on_path: set[int]) -> list[float]:
    """Return each node's row; walks without recursion, as trees may be 64 deep."""
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
