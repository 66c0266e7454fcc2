"""Prefix trees of beams."""

from collections.abc import Sequence

from rdchat.inference.verification.prefix_tree import PrefixTree


def tree_of_beams(beams: Sequence[Sequence[int]]) -> PrefixTree:
    """Merge beams of token ids, which all begin with the root's; nodes are numbered beam by beam."""
    # Nodes by parent and token.
    numbers: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    for beam in beams:
        parent = -1
        for token in beam:
            node = numbers.setdefault((parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(parent)
            parent = node
    return PrefixTree.of(tokens, parents)
