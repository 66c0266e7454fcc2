"""Keeps a reply within rules: those of an answer's shape, and the limit of a thought.

`ReplyMatcher` masks tokens and prunes drafts by any `Rules`. `ShapeRules` are those of a shape; `ThoughtLimit` is here,
and can have other rules inside it.

Masks are applied to the logits before penalty, temperature and filters, so the text is still a function of prompt, seed
and rules alone. A drafted token changes what is verified, never a mask along the chosen path.

After so many tokens a thought is closed by the model's own marker, and the answer begins; which tokens are forced
depends on those before them alone. The method is that of s1's budget forcing (Muennighoff et al. 2025, arXiv
2501.19393, section 3.1), without words of its own.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import NodeSource, Opening, openings
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.verification import LoadedModel, PackedTree, PrefixTree

# A bit for each token, (vocabulary / 32, rounded up,): bit 1 of word 2 is token 65, as 65 >> 5 = 2 and 65 & 31 = 1.
TokenBits = npt.NDArray[np.uint32]
# Tokens that are drafted because the rules leave no other text.
_MAX_FORCED = 15
# Stands before a control token's text, which ordinary text may spell too; no UTF-8 has it.
_CONTROL = b"\xff"


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


@dataclass(frozen=True, slots=True)
class _State:
    """State of a `ThoughtLimit` after the tokens so far.

    Attributes:
        count: Tokens of all thoughts.
        text: In a thought its last bytes; before one the bytes that may begin its marker.
        end: The marker that ends the open thought; empty where none is open.
        close: The tokens that close it, so that the answer follows; see `Opening.close`.
        due: The forced tokens that come next: at the limit what is left of `close`, perhaps behind a line end.
        over: Whether no thought can begin any more, so that later tokens change nothing.
    """

    count: int = 0
    text: bytes = b""
    end: bytes = b""
    close: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    over: bool = False


class ThoughtLimit:
    """Rules that close a reply's thought at a limit; see `Rules`.

    A thought begins in the prompt, or at the reply's start. One that the model ends may be followed by another, and the
    limit is that of all together. After a closed one no other is looked for.

    Args:
        model: The target.
        limit: The most tokens of thoughts; those of an end marker count where the model writes it itself.
        closing: The marker that ends the thought which the prompt opens; empty if it opens none.
        begun: Tokens of the reply's beginning that are part of the prompt.
        within: Other rules, for what is not forced; they are after `begun` already.
    """

    def __init__(
        self, model: LoadedModel, limit: int, closing: str = "", begun: Iterable[int] = (), within: Rules | None = None
    ) -> None:
        self._model = model
        self._limit = limit
        self._within = within
        # Length of `TokenBits`.
        self._integers = (model.info.vocabulary_size + 31) // 32
        self._control = {text: token for token, text in model.prompts.control.items()}
        self._openings = [(self._bytes_of(each.marker), each) for each in openings()]
        state = self._opened(_State(), Opening("", closing, closing)) if closing else _State()
        # One state for each token, and the first.
        self._states = [state]
        for token in begun:
            self._states = [self._after(self._states[-1], token)]

    def is_free(self, count: int) -> bool:
        state = self._states[-1]
        ours = not state.due and (state.over or state.count + count < self._limit)
        return ours and (self._within is None or self._within.is_free(count))

    def allowed(self) -> TokenBits | None:
        if not (due := self._states[-1].due):
            return None if self._within is None else self._within.allowed()
        bits = np.zeros(self._integers, np.uint32)
        bits[due[0] >> 5] = 1 << (due[0] & 31)
        return bits

    def forced(self) -> list[int]:
        return [*self._states[-1].due] or ([] if self._within is None else self._within.forced())

    def take(self, token: int) -> None:
        self._states.append(self._after(self._states[-1], token))
        if self._within is not None:
            self._within.take(token)

    def back(self, count: int) -> None:
        if self._within is not None:
            self._within.back(count)
        del self._states[len(self._states) - count :]

    def _after(self, state: _State, token: int) -> _State:
        """Return the state after one more token. The first case that applies counts:

        - No thought can begin any more: nothing changes.
        - The token is a forced one: after the last of them, no thought can begin any more.
        - No thought is open: the text so far may be a marker that begins one, or the beginning of a marker. Otherwise
          it is the answer.
        - A thought is open: it ends here if its marker is complete. Otherwise the token counts towards the limit.
        """
        if state.over:
            return state
        if state.due:
            return replace(state, due=state.due[1:], over=len(state.due) == 1)
        text = state.text + self._data(token)
        if not (end := state.end):
            # No thought is open; the text may begin one.
            written = text.lstrip()
            for marker, opening in self._openings:
                if written.startswith(marker):
                    return self._opened(replace(state, text=written[len(marker) :]), opening)
            return replace(state, text=written, over=not any(each.startswith(written) for each, _ in self._openings))
        # As in `split_thoughts`, a marker after a backtick is quoted.
        if (at := text.find(end)) >= 0 and text[at - 1 : at] != b"`":
            return _State(state.count + 1)
        return self._limited(replace(state, count=state.count + 1, text=text[-len(end) :]))

    def _opened(self, state: _State, opening: Opening) -> _State:
        """Return the state in a thought that begins here."""
        tokens = list[int]()
        for part in marker_parts(opening.close, self._control):
            tokens += [part] if isinstance(part, int) else self._model.prompts.encode_text(part)
        if any(token >= self._model.info.vocabulary_size for token in tokens):
            # The model cannot write its marker.
            return replace(state, over=True)
        return self._limited(replace(state, end=self._bytes_of(opening.end), close=tuple(tokens)))

    def _limited(self, state: _State) -> _State:
        """Return a state in a thought, with the tokens that close it where it is at its limit."""
        if state.count < self._limit:
            return state
        # The model may have begun the marker itself: so many of its tokens are there.
        starts = range(len(state.close) - 1, 0, -1)
        begun = next((n for n in starts if state.text.endswith(b"".join(map(self._data, state.close[:n])))), 0)
        # A marker after a backtick would be quoted.
        line_end = self._model.prompts.encode_text("\n") if state.text.endswith(b"`") else ()
        return replace(state, due=(*line_end, *state.close[begun:]))

    def _data(self, token: int) -> bytes:
        """Return a token's bytes; those of a control token begin with `_CONTROL`."""
        control = self._model.prompts.control.get(token)
        return self._model.token_data(token) if control is None else _CONTROL + control.encode()

    def _bytes_of(self, marker: str) -> bytes:
        parts = marker_parts(marker, self._control)
        return b"".join(self._data(part) if isinstance(part, int) else part.encode() for part in parts)
