"""Prefix trees of beams."""

from collections.abc import Sequence

import numpy as np

from rdchat.inference.verification.verifier import PrefixTree


def tree_of_beams(beams: Sequence[Sequence[int]]) -> PrefixTree:
    """Merge beams of token ids, which all begin with the root's; nodes are numbered beam by beam."""
    # Nodes by parent and token.
    numbers: dict[tuple[int, int], int] = {}
    columns = list[tuple[int, int, int]]()
    for beam in beams:
        parent = -1
        for depth, token in enumerate(beam):
            node = numbers.setdefault((parent, token), len(columns))
            if node == len(columns):
                columns.append((token, parent, depth))
            parent = node
    return PrefixTree(*np.array(columns, np.int32).T)
