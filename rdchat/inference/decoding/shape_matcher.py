"""Keeps a reply within its answer format: masks the next token, checks drafted tokens, and finds forced ones.

The masks come from llguidance (MIT, https://github.com/guidance-ai/llguidance). They are applied to the logits before
penalty, temperature and filters, so the text is still a function of prompt, seed and format alone. A drafted token
changes what is verified, never a mask along the chosen path.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import llguidance
import mlx.core as mx
import numpy as np

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api.answer_shape import SHAPE_HINT, AnswerShape
from rdchat.inference.decoding.draft import Draft, NodeSource
from rdchat.inference.prompts.shape_grammar import (
    WordMasks,
    after_thought,
    grammar_of,
    limits,
    mask_words,
    problem_line,
)
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree

# Tokens that are drafted because the format leaves no other text.
_MAX_FORCED = 15


class ShapeVocabulary:
    """A model's tokens as llguidance needs them; takes about a second to make.

    Args:
        model: The target.
    """

    def __init__(self, model: LoadedModel) -> None:
        size, control, ends = model.info.vocabulary_size, model.prompts.control, sorted(model.end_tokens)
        known = min(size, len(model.tokenizer))
        self.tokens = [model.token_data(token) for token in range(known)] + [b""] * (size - known)
        for token, text in control.items():
            if token < size:
                self.tokens[token] = text.encode()
        self._control = {text: token for token, text in control.items() if token < size}
        self.special_token_ids = sorted({*control, *ends})
        self.eos_token_id, self.bos_token_id, self._ends = ends[0], None, frozenset(ends)
        self._by_data = {data: token for token, data in reversed(list(enumerate(self.tokens)))
                         if data and token not in control}  # fmt: skip
        self._longest = max(map(len, self._by_data), default=1)
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self), n_vocab=size, eos_token=ends)

    def __call__(self, text: bytes) -> list[int]:
        """Tokenise by the longest token each time. It may differ from the model's tokenizer, which is foreign code.

        Only tokens that are drafted depend on it.
        """
        ids, start = list[int](), 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._by_data), 0)
            if not end:
                return ids
            ids.append(self._by_data[text[start:end]])
            start = end
        return ids

    def matcher(self, shape: AnswerShape, closing: str = "", begun: str = "") -> "ShapeMatcher":
        """Return a matcher for a reply.

        Args:
            shape: The answer's shape.
            closing: The marker that ends the thought with which the reply begins; empty if it begins with the answer.
            begun: The text with which the reply was begun.

        Raises:
            ShapeRefusedError: If the shape cannot be used with this vocabulary, or the text does not fit.
        """
        grammar, marker = grammar_of(shape), self._parts(closing)
        grammar = after_thought(grammar, closing, marker) if closing else grammar
        llmatcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits())
        matcher, text = ShapeMatcher(llmatcher, len(self.tokens), self._ends, shape.label), begun.encode()
        thought, closed, answer = begun.partition(closing) if closing else ("", "", begun)
        parts = (thought, *(marker if closed else ()), answer)
        tokens = [token for part in parts for token in ([part] if isinstance(part, int) else self(part.encode()))]
        if not llmatcher.consume_tokens(tokens) or b"".join(self.tokens[token] for token in tokens) != text:
            raise ShapeRefusedError(
                f"The beginning of the answer does not fit the {shape.label}.", "Leave it out, or change it."
            )
        return matcher

    def _parts(self, marker: str) -> list[str | int]:
        """Split a marker into texts and the ids of control tokens."""
        controls = "|".join(map(re.escape, sorted(self._control, key=len, reverse=True)))
        parts = re.split(f"({controls})", marker) if controls else [marker]
        return [self._control.get(part, part) for part in parts if part]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a draft within the shape.

    Attributes:
        parent: Index of the parent; -1 for the root.
        mask: Tokens that may follow.
        source: `NodeSource` of the node.
    """

    token: int
    parent: int
    mask: WordMasks
    source: int


class ShapeMatcher:
    """Follows one reply through its answer format.

    Args:
        matcher: llguidance's matcher, at the beginning of the format.
        vocabulary_size: Columns of the logits.
        ends: Tokens that end a reply. The matcher never gets one, since it cannot go back behind it.
        label: The shape's name for people.
    """

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary_size: int, ends: Collection[int], label: str) -> None:
        self._matcher, self._size, self._ends, self._label = matcher, vocabulary_size, ends, label
        self._check()

    def take(self, token: int) -> None:
        """Take the reply's next token."""
        if token not in self._ends:
            self._consume(token)

    def mask(self) -> mx.array:
        """Return which tokens may come next, (1, vocabulary) bool."""
        return mask_of(self._next()[None], self._size)

    def forced(self, limit: int) -> list[int]:
        """Return tokens of the text that must come next, at most `limit`; the model may still split it otherwise."""
        forced = [int(token) for token in self._matcher.compute_ff_tokens()] if limit > 0 else []
        return forced[: min(limit, _MAX_FORCED)]

    def within(self, draft: Draft, limit: int, *, trees: bool) -> tuple[Draft, mx.array]:
        """Drop the nodes of a draft that the shape forbids, and draft what it forces below the root.

        It waits for the draft.

        Args:
            draft: The draft; its root is the last token, which `take` had.
            limit: Maximum number of drafted tokens below the root.
            trees: Whether the target verifies trees; otherwise a longer forced chain replaces the draft's.

        Returns:
            The draft, the same object where nothing was dropped or added, and (nodes, vocabulary) bool: which tokens
            may come after each of its nodes.
        """
        tree, sources = draft.tree.fetch(), draft.fetch_sources()
        nodes = [_Node(int(tree.tokens[0]), -1, self._next(), sources[0])]
        # New index of each node that stays.
        new_index = {0: 0}
        # Nodes below the root that the matcher has taken.
        path: list[int] = []
        for node in range(1, len(tree)):
            parent, token = int(tree.parents[node]), int(tree.tokens[node])
            above = new_index.get(parent)
            if above is None or nodes[above].token in self._ends or not self._allows(nodes[above], token):
                continue
            new_index[node], mask = len(nodes), nodes[above].mask
            # Nothing follows an end.
            if token not in self._ends:
                path = [*self._go_to(tree, path, parent), node]
                self._consume(token)
                mask = self._next()
            nodes.append(_Node(token, above, mask, sources[node]))
        self._go_to(tree, path, 0)
        old_count = len(nodes)
        added = self._add_forced(nodes, limit, trees=trees)
        mask_of_all = mask_of(np.stack([node.mask for node in nodes]), self._size)
        if not added and old_count == len(nodes) == len(tree):
            return draft, mask_of_all
        return replace(draft, tree=_packed(nodes), sources=[node.source for node in nodes], rows=0), mask_of_all

    def _add_forced(self, nodes: list[_Node], limit: int, *, trees: bool) -> bool:
        """Add a chain of forced tokens below the root, as far as it is not drafted yet."""
        forced, above, taken = self.forced(limit), 0, 0
        if forced and not trees and len(forced) >= len(nodes):
            del nodes[1:]
        elif not trees:
            return False
        added = False
        for token in forced:
            if not self._allows(nodes[above], token):
                break
            self._consume(token)
            taken += 1
            child = next((n for n, node in enumerate(nodes) if node.parent == above and node.token == token), None)
            if child is None:
                child, added = len(nodes), True
                nodes.append(_Node(token, above, self._next(), NodeSource.SHAPE))
            above = child
        self._back(taken)
        return added

    def _go_to(self, tree: PrefixTree, path: list[int], node: int) -> list[int]:
        """Move the matcher from the end of a path to a node; return the path to it."""
        new_path = list[int]()
        while node > 0:
            new_path.append(node)
            node = int(tree.parents[node])
        new_path.reverse()
        shared = next((n for n, pair in enumerate(zip(path, new_path, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(path), len(new_path)) if shared is None else shared
        self._back(len(path) - shared)
        for each in new_path[shared:]:
            self._consume(int(tree.tokens[each]))
        return new_path

    def _next(self) -> WordMasks:
        mask = mask_words(self._matcher)
        self._check()
        return mask

    def _allows(self, node: _Node, token: int) -> bool:
        return bool(node.mask[token >> 5] >> (token & 31) & 1)

    def _consume(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            self._check()

    def _back(self, count: int) -> None:
        if count and not self._matcher.rollback(count):
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            problem = problem_line(self._matcher.get_error())
            raise ShapeRefusedError(f"The {self._label} cannot be followed any further: {problem}.", SHAPE_HINT)


def mask_of(bit_rows: WordMasks, size: int) -> mx.array:
    """Return (n, size) bool from the bits of (n, words).

    They are unpacked on the host: 0.3 ms for 16 rows of 150,000 tokens, where MLX on a CPU needs 57 ms to index them.
    """
    bits = np.unpackbits(bit_rows.view(np.uint8), axis=-1, count=size, bitorder="little")
    return mx.array(bits.view(np.bool_))


def _packed(nodes: list[_Node]) -> PackedTree:
    depths = [0]
    for node in nodes[1:]:
        depths.append(depths[node.parent] + 1)
    columns = [node.token for node in nodes], [node.parent for node in nodes], depths
    return PackedTree.of(PrefixTree(*(np.array([*column], np.int32) for column in columns)))
