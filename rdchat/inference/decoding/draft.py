"""The protocol between the decoding loop and a drafter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.verifier import Verified


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens offered to the target.

    Attributes:
        tree: Its root is the token the target chose last. Its tokens and its shape may be lazy.
        looked_up: (nodes,) bool, perhaps lazy: the nodes that prompt lookup offers, and not the drafter that is named;
            None where there are none.
        rows: Rows to verify it with, where padding makes the call cheaper; 0 leaves that to what was measured.
        drafter: What drafted it, where the reply's drafter has several; empty stands for its own name.
        finite: () bool, perhaps lazy: whether the scores that it was drafted by are finite. Else it is dropped.
    """

    tree: PackedTree
    looked_up: mx.array | None = None
    rows: int = 0
    drafter: str = ""
    finite: mx.array | bool = True


class Drafter(Protocol):
    """Proposes tokens for one reply. Its drafts change how many target calls a reply takes, never its text."""

    name: str

    def prefill(self, cancelled: Callable[[], bool], ledger: Ledger) -> Iterator[int]:
        """Read the prompt, where the drafter has a cache of its own; part of the reply's prefill.

        Args:
            cancelled: Looked at before each chunk; True ends the work between two chunks.
            ledger: Takes the host time.

        Yields:
            Prompt tokens read so far.
        """
        del cancelled, ledger
        yield from ()

    def read(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        """Take tokens of the prompt that the target has read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width): the target's hidden states at these; None where the trunk has no hook.
            start: Absolute position of the first.
        """
        del tokens, hidden, start

    def update(self, settings: DraftSettings) -> None:
        """Take other settings, as far as they concern this drafter, from the next round on."""
        del settings

    def propose(self, root: int, limit: int) -> Draft:
        """Return a tree at most `limit` deep whose root is `root`, the last token; it may be the root alone."""

    def drafts_ahead(self, limit: int) -> bool:
        """Tell whether the next draft should be begun before the host knows what came of the round.

        Args:
            limit: Tokens that may be drafted below the next root, at the most.
        """
        del limit
        return False

    def draft_ahead(self, path: LazyPath, verified: Verified) -> Sequence[mx.array]:
        """Queue the draft of the next round on the device, behind the call that it follows.

        Args:
            path: What the call will have accepted.
            verified: Its output.

        Returns:
            Arrays that are waited for together with the round's, where `propose` would wait for them otherwise.
        """
        del path, verified
        return ()

    def leave_out(self, source: str) -> None:
        """Draft no more in this reply with what is called `source`: its scores are not finite.

        Where that is this drafter's own name, `propose` is not called any more.
        """
        del source

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """Take the result of a round or of a plain step, whoever drafted for it.

        Args:
            root: The token that the call began with: the last one before.
            tokens: Ids of the tokens that it added to the reply.
            verified: The target's output for the whole tree; evaluated.
            path: Indices of the accepted nodes, the root first.
        """

    def close(self, length: int) -> None:
        """Trim what outlives the reply, such as a KV cache, to the target's cache.

        Args:
            length: Tokens of the conversation that the target's cache holds; 0 after an error, when nothing can be
                trusted.
        """
        del length
