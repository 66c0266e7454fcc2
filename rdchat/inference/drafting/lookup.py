"""Prompt lookup: offers the tokens that followed the last occurrence of the text's ending.

Saxena 2023, "Prompt Lookup Decoding"; here over prompt and reply, with an index that is updated token by token, so the
cost of a lookup does not depend on the length of the conversation.
"""

from typing import override

import mlx.core as mx

from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.target.verifier import PackedTree, Verified


class LookupDrafter(Drafter):
    """Drafts one chain by prompt lookup.

    Args:
        tokens: The prompt.
        draft_tokens: The most tokens to offer.
        ledger: Records the time of its stages; None records nothing.
    """

    name = "lookup"

    def __init__(self, tokens: list[int], draft_tokens: int, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or Ledger()
        self._index = LookupIndex(tokens)
        self._draft_tokens = draft_tokens
        self._began = False

    @override
    def update(self, settings: DraftSettings) -> None:
        self._draft_tokens = settings.draft_tokens

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._begin(root)
        self._index.extend(tokens)

    def propose(self, root: int, limit: int) -> Draft:
        self._begin(root)
        with self._ledger.stage("lookup"):
            chain = [root, *self._index.continuation(min(self._draft_tokens, limit))]
        return Draft(PackedTree.chain(mx.array(chain)))

    def _begin(self, root: int) -> None:
        """Take the first token, which comes from the prefill and not from a round."""
        if not self._began:
            self._index.extend([root])
            self._began = True
