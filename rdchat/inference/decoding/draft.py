"""The protocol between the decoding loop and a drafter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import mlx.core as mx

from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.loop import AlwaysDraft, Policy
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.verifier import PackedTree, Verified


class NodeSource(IntEnum):
    """Where a node of a draft comes from.

    Attributes:
        DRAFTER: The drafter that the draft names.
        CHAT: Prompt lookup in this chat.
        REPLIES: Prompt lookup in earlier replies.
        SHAPE: The only text that the answer format, or the limit of a thought, allows.
    """

    DRAFTER = 0
    CHAT = 1
    REPLIES = 2
    SHAPE = 3

    @classmethod
    def of(cls, earlier: bool) -> "NodeSource":
        """Return the source of a token that was looked up."""
        return cls.REPLIES if earlier else cls.CHAT


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens offered to the target.

    Attributes:
        tree: The tree; its root is the token that the target chose last. Its tokens and parents may be lazy.
        sources: (nodes,) the `NodeSource` of each node, perhaps lazy; None where the drafter made them all.
        rows: Rows of the target call, if padding makes it cheaper; 0 uses the measured costs.
        drafter: Who drafted it, if the reply's drafter combines several; empty for the drafter's own name.
        finite: () bool, perhaps lazy: whether the draft's scores are finite. Otherwise the draft is dropped.
    """

    tree: PackedTree
    sources: mx.array | Sequence[int] | None = None
    rows: int = 0
    drafter: str = ""
    finite: mx.array | bool = True

    @property
    def lazy_sources(self) -> mx.array | None:
        """`sources` where they may be lazy."""
        return self.sources if isinstance(self.sources, mx.array) else None

    def fetch_sources(self) -> Sequence[int]:
        """Return the `NodeSource` of each node, on the host."""
        if self.sources is None:
            return [NodeSource.DRAFTER] * len(self.tree)
        return fetch(self.sources).tolist() if isinstance(self.sources, mx.array) else self.sources


class Drafter:
    """Proposes tokens for one reply. Its drafts change how many target calls a reply takes, never its text.

    Attributes:
        policy: Decides when it drafts.
        usual: Whether the last draft's time is typical of its kind.
    """

    name: str
    policy: Policy = AlwaysDraft()
    usual = True

    @property
    def parts(self) -> Sequence["Drafter"]:
        """The drafters in it; each reads the prompt and observes every token, also those of plain steps."""
        return (self,)

    def use_cache(self, cache: KVCache) -> None:
        """Take the target's cache of the reply before anything else; it must not be written to."""

    def prefill(self, cancelled: Callable[[], bool]) -> Iterator[int]:
        """Read the prompt, if the drafter has a cache of its own; part of the reply's prefill.

        Args:
            cancelled: Looked at before each chunk; True ends the work between two chunks.

        Yields:
            Prompt tokens read so far.
        """
        del cancelled
        yield from ()

    def read(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        """Take prompt tokens that the target has read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width): the target's hidden states at these tokens; None where the trunk has no hook.
            start: Absolute position of the first.
        """

    def update(self, settings: DraftSettings) -> None:
        """Take other settings from the next round on, as far as they concern this drafter."""

    def propose(self, root: int, limit: int) -> Draft:
        """Return a tree at most `limit` deep below `root`, the last token; it may be the root alone."""
        raise NotImplementedError

    def drafts_ahead(self, limit: int) -> bool:
        """Return whether the next draft should begin before the host has read the round's result.

        Args:
            limit: Maximum number of tokens below the next root.
        """
        del limit
        return False

    def draft_ahead(self, path: LazyPath, verified: Verified) -> None:
        """Queue the next round's draft on the device, behind the target call.

        Args:
            path: The path that the call accepts, lazy.
            verified: Its output.
        """

    def leave_out(self, source: str) -> None:
        """Stop drafting with `source` for the rest of the reply: its scores are not finite.

        Where `source` is this drafter's own name, `propose` is not called any more.
        """

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """Take the result of a round or of a plain step, whoever drafted for it.

        Args:
            root: The token that the call began with: the last one before it.
            tokens: Ids of the tokens that it added to the reply.
            verified: The target's output for the whole tree; evaluated.
            path: Indices of the accepted nodes, the root first.
        """

    def close(self, length: int) -> None:
        """Trim what outlives the reply, such as a KV cache, to the length of the target's cache.

        Args:
            length: Tokens of the conversation that the target's cache holds; 0 after an error, when nothing can be
                trusted.
        """
