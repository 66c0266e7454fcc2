"""Small heads of random weights for what the protocol allows: one that remembers the text, one of short drafts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import override

import mlx.core as mx

from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel


@dataclass(eq=False)
class FakeHead(Head):
    """Scores a token by the one before it and by the mean of what it was told of the text.

    Attributes:
        max_drafted, remembers: See `Head`.
        text: (n,) token ids by position that it is sure of, as if it were well trained; None scores as described.
        lengths: Of the drafts that were begun: tokens below each root.
        ahead: How many of them were begun before the host knew their root.
        gaps: Positions before a root that the head was not told of.
    """

    max_drafted: int
    remembers: bool
    text: mx.array | None = None
    kind: HeadKind = HeadKind.BLOCK
    inverse_temperature: float = 1.0
    reads: HiddenReads = field(default_factory=HiddenReads)
    lengths: list[int] = field(default_factory=list)
    ahead: int = 0
    gaps: set[int] = field(default_factory=set)

    def bind(self, model: LoadedModel) -> "FakeHead":
        size = model.info.vocabulary_size
        self.table: mx.array = model.network.model.embed_tokens(mx.arange(size))
        self.vocabulary = mx.arange(3, size, dtype=mx.int32)
        self.candidates = size - 3
        return self

    @override
    def memory(self) -> HeadMemory:
        return _TextMemory(self) if self.remembers else _NoMemory(self)

    def begin(self, root: Root, context: mx.array) -> HeadState:
        self.lengths.append(0)
        self.ahead += root.later is not None
        position = root.position if root.later is None else root.position + root.later
        return _State(self, context, mx.array(root.token, mx.int32).reshape(1), mx.array(position))


class _TextMemory(ContextMemory):
    """Keeps the hidden states themselves as keys."""

    def __init__(self, head: FakeHead) -> None:
        super().__init__(1, looks_ahead=False)
        self._head = head

    @override
    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int], *, every: bool = False) -> None:
        self.buffers[0].append_rows([hidden[None, None]], 0)

    @override
    def root_state(self, root: Root) -> HeadState:
        self.catch_up(root)
        self._head.gaps |= set(range(root.position)) - set(self.held)
        assert self.held == sorted(set(self.held))
        (keys,) = self.buffers[0].view(0)
        assert keys.shape[2] == len(self.held)
        seen = self.visible(None, 0)
        weights = mx.ones((len(self.held), 1)) if seen is None else seen.T.astype(mx.float32)
        return self._head.begin(root, mx.sum(weights * keys[0, 0], axis=0) / mx.sum(weights))


@dataclass(frozen=True)
class _NoMemory(HeadMemory):
    head: FakeHead

    @override
    def begin_reply(self, prompt: Sequence[int]) -> None: ...

    @override
    def take_committed(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None: ...

    @override
    def root_state(self, root: Root) -> HeadState:
        return self.head.begin(root, root.hidden)


@dataclass(frozen=True)
class _State(HeadState):
    head: FakeHead
    context: mx.array
    tokens: mx.array
    position: mx.array  # of the root
    depth: int = 0

    @override
    def logits(self) -> mx.array:
        assert self.depth < self.head.max_drafted, "more tokens were wanted than the head drafts"
        self.head.lengths[-1] = self.depth + 1
        if self.head.text is not None:
            known = self.head.text[self.position + 1 + self.depth]
            return mx.broadcast_to(10.0 * (self.head.vocabulary == known), (len(self.tokens), self.head.candidates))
        features = mx.roll(self.head.table[self.tokens], 1, axis=-1) + self.context
        return (features @ self.head.table.T)[:, self.head.vocabulary].astype(mx.float32)

    @override
    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        return _State(self.head, self.context, tokens, self.position, self.depth + 1)


def fake_head(
    model: LoadedModel, *, max_drafted: int = 7, remembers: bool = False, text: Sequence[int] | None = None
) -> tuple[FakeHead, HeadModel]:
    """Return a head, and it ready for a target."""
    padded = None if text is None else mx.array([*text, *[3] * 64])
    head = FakeHead(max_drafted, remembers, text=padded)
    return head, HeadModel(model, head.bind(model))
