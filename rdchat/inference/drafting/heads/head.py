"""The protocol of drafter heads: small networks that draft from the target's hidden states.

This is all that beam search (`drafting.beam_search`) knows of a head. A `Head` is one network, bound to one target. A
`HeadMemory` is what it keeps of one conversation, such as a KV cache. A `HeadState` is the live beams of one draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from rdchat.inference.api.model_facts import HeadKind as HeadKind  # noqa: PLC0414  part of the protocol
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Root:
    """Where a draft begins.

    Attributes:
        token: Token that the target chose last, perhaps lazy, ().
        position: Its absolute position.
        hidden: (width,): the target's hidden states at the token before, from which it was chosen.
        later: () int32, lazy: is added to `position`, where a round decides it; None for 0.
        latest: Upper bound of `later`.
        on_path: (nodes,) bool, lazy: nodes of the open round that come before it; None where no round is open.
        drafted: Most tokens that are drafted below it; None for as many as the head can.
    """

    token: int | mx.array
    position: int
    hidden: mx.array
    later: mx.array | None = None
    latest: int = 0
    on_path: mx.array | None = None
    drafted: int | None = None


class HeadState(Protocol):
    """The live beams of a draft, all of one length; lazy."""

    def logits(self) -> mx.array:
        """Return the logits, (beams, candidates) float32, of the token after each beam."""

    def ids(self) -> mx.array | None:
        """Return the ids of the columns of `logits`, (candidates,) int32; None for the head's vocabulary."""
        return None

    def after(self, beams: mx.array, tokens: mx.array) -> "HeadState":
        """Return the state after one more token.

        Args:
            beams: (n,) the beam that each new one extends; several may extend the same.
            tokens: (n,) the token appended to each, an id of the whole vocabulary.
        """


class HeadMemory:
    """What a head keeps of one conversation. It has rows of committed tokens only, so nothing is ever rolled back."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a reply to a prompt, (n,) token ids: keep what the last prompt shares with it, and forget the rest."""

    def use_cache(self, cache: KVCache) -> None:
        """Take the target's cache of the reply, of which a head may read rows; it is not kept beyond the reply."""

    def reset(self) -> None:
        """Forget everything, including arrays that were not computed."""

    def take(self, tokens: Sequence[int], hidden: mx.array, start: int) -> None:
        """Take committed tokens; they replace everything from the first one's position on.

        Positions may be left out: the target's own cache can hold tokens whose hidden states were never read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width) the target's hidden states at these tokens.
            start: Absolute position of the first.
        """

    def take_ahead(self, tokens: mx.array, hidden: mx.array, before: Root, root: Root) -> None:
        """Take a round's tokens before the host knows which are committed; `take` or `keep` follows.

        Args:
            tokens: (root.latest + 1,) int32, lazy: the accepted path, its first token included. Those behind index
                `root.later` are not committed.
            hidden: (root.latest + 1, width) the target's hidden states at these tokens.
            before: The round's own root, the first of the tokens.
            root: Where the next draft begins; its position is lazy.
        """

    def keep(self, tokens: Sequence[int], hidden: mx.array) -> None:
        """Keep of what `take_ahead` took what belongs to the committed tokens.

        Args:
            tokens: (n,) ids.
            hidden: (1, width) the target's hidden state at the last of them.
        """

    def take_waits(self) -> int:
        """Return how often it waited for the device since the last call."""
        return 0

    def state(self, root: Root) -> HeadState:
        """Return the state of a single beam with only the root; `take` must have had all tokens before it.

        If the root's position is lazy, `take_ahead` must have had it.
        """
        raise NotImplementedError


class Head(Protocol):
    """A drafter's network, bound to one target.

    Attributes:
        kind: Kind of the head.
        reads: Hidden states that it reads.
        vocabulary: (n,) int32: ids of the tokens that it can draft, ascending.
        candidates: Columns of a step's logits: n, or fewer where a state names its own `ids`.
        inverse_temperature: Its log-probabilities are multiplied by this before noise is added.
        max_drafted: Maximum number of tokens that it drafts below a root.
        remembers: Whether it has a memory of the text, so that it must read the prompt.
    """

    kind: HeadKind
    reads: HiddenReads
    vocabulary: mx.array
    candidates: int
    inverse_temperature: float
    max_drafted: int
    remembers: bool

    def memory(self) -> HeadMemory:
        """Return the memory of a new conversation."""
