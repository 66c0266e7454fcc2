"""Keeps a reply within rules: those of an answer's shape (`shape_matcher`), and a thought's limit (`thought_limit`).

`ReplyMatcher` masks tokens and prunes drafts by any `Rules`. Masks are applied to the logits before penalty,
temperature and filters, so the text is still a function of prompt, seed and rules alone. A drafted token changes what
is verified, never a mask along the chosen path.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import NodeSource
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.verification import PackedTree, PrefixTree

# A bit for each token, (vocabulary / 32, rounded up,): bit 1 of word 2 is token 65, as 65 >> 5 = 2 and 65 & 31 = 1.
TokenBits = npt.NDArray[np.uint32]
# Tokens that are drafted because the rules leave no other text.
_MAX_FORCED = 15


class Rules(Protocol):
    """The tokens that may come next in a reply, as a function of its tokens so far."""

    def is_free(self, count: int) -> bool:
        """Return whether any token may surely come next, and after any `count` more tokens; False if unsure."""

    def allowed(self) -> TokenBits | None:
        """Return which tokens may come next; None for any."""

    def forced(self) -> list[int]:
        """Return tokens that must come next."""

    def take(self, token: int) -> None:
        """Take the next token."""

    def back(self, count: int) -> None:
        """Go back before the last `count` tokens."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a draft within the rules.

    Attributes:
        token: Id of its token.
        parent: Index of the parent; -1 for the root.
        mask: Tokens that may follow.
        source: `NodeSource` of the node.
    """

    token: int
    parent: int
    mask: TokenBits
    source: int


class ReplyMatcher:
    """Keeps one reply within rules: masks the next token, checks drafted tokens, and finds forced ones.

    Args:
        rules: The rules, at the beginning of the reply.
        vocabulary_size: Columns of the logits.
        ends: Tokens that end a reply. The rules never get one, since they cannot go back behind it.
    """

    def __init__(self, rules: Rules, vocabulary_size: int, ends: Collection[int]) -> None:
        self._rules = rules
        self._size = vocabulary_size
        self._ends = ends

    def is_free(self, count: int) -> bool:
        """Return whether the rules surely allow any token for the next one and `count` more."""
        return self._rules.is_free(count)

    def take(self, token: int) -> None:
        """Take the reply's next token."""
        if token not in self._ends:
            self._rules.take(token)

    def mask(self) -> mx.array | None:
        """Return which tokens may come next, (1, vocabulary) bool; None for any."""
        return None if self.is_free(0) else mask_of(self._next()[None], self._size)

    def forced(self, limit: int) -> list[int]:
        """Return tokens of the text that must come next, at most `limit`; the model may still split it otherwise."""
        forced = self._rules.forced() if limit > 0 else []
        return forced[: min(limit, _MAX_FORCED)]

    def within(self, draft: Draft, limit: int, *, trees: bool) -> tuple[Draft, mx.array]:
        """Drop the nodes of a draft that the rules forbid, and draft what they force below the root.

        It waits for the draft.

        Args:
            draft: The draft; its root is the last token, which `take` had.
            limit: Maximum number of drafted tokens below the root.
            trees: Whether the target verifies trees; otherwise a forced chain that is longer replaces the draft.

        Returns:
            The draft, the same object where nothing was dropped or added, and (nodes, vocabulary) bool: which tokens
            may come after each of its nodes.
        """
        tree = draft.tree.fetch()
        sources = draft.fetch_sources()
        nodes = [_Node(int(tree.tokens[0]), -1, self._next(), sources[0])]
        # New index of each node that stays.
        new_index = {0: 0}
        # Nodes below the root that the rules have taken.
        path: list[int] = []
        for node in range(1, len(tree)):
            parent = int(tree.parents[node])
            token = int(tree.tokens[node])
            above = new_index.get(parent)
            if above is None or nodes[above].token in self._ends or not self._allows(nodes[above], token):
                continue
            mask = nodes[above].mask
            # Nothing follows an end.
            if token not in self._ends:
                path = self._go_to(tree, path, parent)
                below = self._mask_after(token)
                if below is None:
                    continue
                path.append(node)
                mask = below
            new_index[node] = len(nodes)
            nodes.append(_Node(token, above, mask, sources[node]))
        self._go_to(tree, path, 0)
        old_count = len(nodes)
        added = self._add_forced(nodes, limit, trees=trees)
        mask_of_all = mask_of(np.stack([node.mask for node in nodes]), self._size)
        # Fewer nodes also where a chain gave way to a forced one of which no token was allowed.
        if not added and old_count == len(nodes) == len(tree):
            return draft, mask_of_all
        allowed = PrefixTree.from_tokens([node.token for node in nodes], [node.parent for node in nodes])
        sources = [node.source for node in nodes]
        return replace(draft, tree=PackedTree.pack(allowed), sources=sources, rows=0), mask_of_all

    def _add_forced(self, nodes: list[_Node], limit: int, *, trees: bool) -> bool:
        """Add a chain of forced tokens below the root to `nodes`; return whether it added any.

        Where the target verifies trees, the chain follows drafted nodes as far as they have its tokens, and then
        branches off. Where it verifies chains only, a forced chain that is longer replaces the drafted one; otherwise
        the draft stays as it is.
        """
        forced = self.forced(limit)
        above = 0
        taken = 0
        if not trees:
            # The root, which is no drafted token, is among the nodes.
            if len(forced) <= len(nodes) - 1:
                return False
            del nodes[1:]
        added = False
        for token in forced:
            if token in self._ends or not self._allows(nodes[above], token):
                break
            mask = self._mask_after(token)
            if mask is None:
                break
            taken += 1
            child = next((n for n, node in enumerate(nodes) if node.parent == above and node.token == token), None)
            if child is None:
                child = len(nodes)
                added = True
                nodes.append(_Node(token, above, mask, NodeSource.SHAPE))
            above = child
        self._rules.back(taken)
        return added

    def _go_to(self, tree: PrefixTree, path: list[int], node: int) -> list[int]:
        """Move the matcher from the end of a path to a node; return the path to it."""
        new_path = list[int]()
        while node > 0:
            new_path.append(node)
            node = int(tree.parents[node])
        new_path.reverse()
        differing = (n for n, pair in enumerate(zip(path, new_path, strict=False)) if pair[0] != pair[1])
        shared = next(differing, min(len(path), len(new_path)))
        self._rules.back(len(path) - shared)
        for below in new_path[shared:]:
            self._rules.take(int(tree.tokens[below]))
        return new_path

    def _mask_after(self, token: int) -> TokenBits | None:
        """Take a drafted token, and return which may follow; None, and it is not taken, where the rules fail there."""
        try:
            self._rules.take(token)
            return self._next()
        except ShapeRefusedError:
            self._rules.back(1)
            return None

    def _next(self) -> TokenBits:
        """Return which tokens may come next, as bits; all bits are set where any token may."""
        allowed = self._rules.allowed()
        return np.full((self._size + 31) // 32, 0xFFFFFFFF, np.uint32) if allowed is None else allowed

    def _allows(self, node: _Node, token: int) -> bool:
        return bool(node.mask[token >> 5] >> (token & 31) & 1)


def mask_of(bit_rows: TokenBits, size: int) -> mx.array:
    """Return (n, size) bool from the bits of (n, words).

    They are unpacked on the host: 0.3 ms for 16 rows of 150,000 tokens, where MLX on a CPU needs 57 ms to index them.
    """
    bits = np.unpackbits(bit_rows.view(np.uint8), axis=-1, count=size, bitorder="little")
    return mx.array(bits.view(np.bool_))


def marker_parts(marker: str, control: Mapping[str, int]) -> list[str | int]:
    """Split a marker into texts and the ids of control tokens, given by their texts."""
    # Some models have thousands of them.
    contained = (each for each in control if each and each in marker)
    controls = "|".join(map(re.escape, sorted(contained, key=len, reverse=True)))
    parts = re.split(f"({controls})", marker) if controls else [marker]
    return [control.get(part, part) for part in parts if part]
