"""The protocol of drafter heads: small networks that draft from the hidden states of the target.

Beam search (`drafting.beam_search`) knows no more of a head than this. A `Head` is one network, bound to one target; a
`HeadMemory` is what it keeps of one conversation, such as a KV cache; a `HeadState` stands for the live beams of one
draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from rdchat.inference.api.drafter_facts import HeadKind as HeadKind  # noqa: PLC0414  a part of the protocol
from rdchat.inference.drafting.repetition import Repetition
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel


@dataclass(frozen=True, slots=True)
class Root:
    """Where a draft begins.

    Attributes:
        token: The token the target chose last; perhaps lazy, ().
        position: Its absolute position.
        hidden: (width,) the target's hidden states that it was chosen from, those of the token before.
        repetition: What the repetition penalty is reckoned from, the root itself included; None leaves it out.
        later: () int32, lazy: by how much its position may be later still; None for not at all.
        latest: The most that this may be.
    """

    token: int | mx.array
    position: int
    hidden: mx.array
    repetition: Repetition | None = None
    later: mx.array | None = None
    latest: int = 0


class HeadState(Protocol):
    """The live beams of a draft, all of one length; lazy."""

    def logits(self) -> mx.array:
        """Return (beams, candidates) float32: of the token that follows each beam."""

    def after(self, beams: mx.array, tokens: mx.array) -> "HeadState":
        """Return the state after one more token.

        Args:
            beams: (n,) the beam that each new one grows from; several may grow from one.
            tokens: (n,) its token, an id of the whole vocabulary.
        """


class HeadMemory(Protocol):
    """What a head keeps of one conversation: rows of committed tokens alone, so nothing is ever rolled back."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget what another prompt than this one, (n,) token ids, has left behind; what both share stays."""

    def reset(self) -> None:
        """Forget everything, arrays that may not have been computed included."""

    def take(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        """Take committed tokens; what is held from the first one's position on is replaced.

        Positions may be left out: the target's own cache can hold tokens whose hidden states were never read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width) the target's hidden states at these tokens.
            start: Absolute position of the first.
        """

    def state(self, root: Root) -> HeadState:
        """Return the one beam that is the root alone; `take` was called for all before it that is to be known."""


class Head(Protocol):
    """A drafter's network, bound to one target.

    Attributes:
        kind: Which kind it is.
        reads: The hidden states that it wants of the target.
        vocabulary: (candidates,) int32 ids of the tokens that it can draft, ascending.
        candidates: Their number.
        inverse_temperature: Its log-probabilities are multiplied by this before noise is added.
        most_drafted: The most tokens that it drafts below a root.
        remembers: Whether its memory is more than the root's hidden state: then prompts have to be read.
        drafts_ahead: Whether it can draft below a root that the device still works on.
    """

    kind: HeadKind
    reads: HiddenReads
    vocabulary: mx.array
    candidates: int
    inverse_temperature: float
    most_drafted: int
    remembers: bool
    drafts_ahead: bool

    def memory(self) -> HeadMemory:
        """Return the memory of a new conversation."""


class StoredHead(Protocol):
    """A drafter in memory that is bound to no target yet."""

    def bind(self, model: LoadedModel) -> Head:
        """Return it bound to a target.

        Raises:
            ModelError: If it needs what the target does not give.
        """
