"""Prompt lookup: what followed the last occurrence of the text's own ending is offered as its continuation.

Saxena 2023, "Prompt Lookup Decoding"; here over prompt and reply, with an index that is updated token by token, so that
a lookup costs the same however long the conversation is.
"""

from typing import override

from rdchat.inference.draft import Draft, Drafter
from rdchat.inference.ledger import Ledger
from rdchat.inference.packed_tree import PackedTree
from rdchat.inference.prefix_tree import PrefixTree
from rdchat.inference.requests import DraftSettings
from rdchat.inference.verifier import Verified

LONGEST, SHORTEST = 8, 2  # tokens of an ending that is looked up


class LookupIndex:
    """Where every short run of tokens last ended.

    Args:
        tokens: The conversation so far.
    """

    def __init__(self, tokens: list[int]) -> None:
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # run -> index behind its last occurrence that has a successor
        self.extend(tokens)

    def extend(self, tokens: list[int]) -> None:
        """Add tokens at the end."""
        for token in tokens:
            self._note_endings()
            self._tokens.append(token)

    def continuation(self, length: int) -> list[int]:
        """Return what followed the longest ending that occurred before: `length` tokens, or none.

        A continuation that reaches the end of the text goes on with itself, as a loop does.
        """
        held = len(self._tokens)
        for run in range(min(LONGEST, held), SHORTEST - 1, -1):
            start = self._ends.get(tuple(self._tokens[-run:]))
            if start is not None:
                copied = self._tokens[start : start + length]
                while len(copied) < length:
                    copied.append(copied[len(copied) - (held - start)])
                return copied
        return []

    def _note_endings(self) -> None:
        held = len(self._tokens)
        for run in range(SHORTEST, min(LONGEST, held) + 1):
            self._ends[tuple(self._tokens[-run:])] = held


class LookupDrafter(Drafter):
    """Drafts one chain by prompt lookup.

    Args:
        tokens: The prompt.
        draft_tokens: The most tokens to offer.
        ledger: Takes the time of its stages; None keeps none.
    """

    name = "lookup"

    def __init__(self, tokens: list[int], draft_tokens: int, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger()
        self._index = LookupIndex(tokens)
        self._draft_tokens = draft_tokens
        self._began = False

    @override
    def update(self, settings: DraftSettings) -> None:
        """See `Drafter`."""
        self._draft_tokens = settings.draft_tokens

    @override
    def observe(self, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        self._index.extend(tokens)

    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`."""
        if not self._began:  # the first token comes from the prefill, not from a round
            self._index.extend([root])
            self._began = True
        with self._ledger.stage("lookup"):
            chain = [root, *self._index.continuation(min(self._draft_tokens, limit))]
        return Draft(PackedTree.of(PrefixTree.from_beams([chain])))
