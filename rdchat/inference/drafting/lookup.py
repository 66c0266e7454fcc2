"""The mode of prompt lookup: offers what followed the text's ending before, or often follows in other texts.

It looks in the chat, in earlier replies, and in a table of n-grams; `LookupIndex` does the work.
"""

from typing import override

import numpy as np

from rdchat.inference.api import DraftSettings, EarlierReplies, NodeSource, Stage
from rdchat.inference.decoding.draft import BegunDraft, Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.lookup_index import LookupIndex, LookupTree, NgramModel, max_nodes
from rdchat.inference.verification import PackedTree, PrefixTree, Verified


class LookupDrafter(Drafter):
    """Drafts by prompt lookup: a tree, or a chain for a target that verifies chains only.

    A node costs a row of the target's call, so it is offered if its chance is at least 1 in `1 + draft_tokens`: about
    as many rows as chains of `draft_tokens` would take, more of them where the text surely repeats.

    Args:
        tokens: The prompt.
        draft_tokens: The setting; about as many rows are verified as for a chain of so many tokens.
        ledger: Records the time of its stages; None records nothing.
        trees: Whether the target verifies trees.
        earlier: Earlier replies, if they may be used.
        ngrams: What often follows the last tokens, by n-grams; None for nothing.
    """

    name = "lookup"

    def __init__(
        self,
        tokens: list[int],
        draft_tokens: int,
        ledger: Ledger | None = None,
        *,
        trees: bool = False,
        earlier: EarlierReplies | None = None,
        ngrams: NgramModel | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._index = LookupIndex(tokens, earlier=earlier, ngrams=ngrams)
        self._draft_tokens = draft_tokens
        self._trees = trees
        self._began = False

    @override
    def take_settings(self, settings: DraftSettings) -> None:
        self._draft_tokens = settings.draft_tokens

    @override
    def observe(
        self, root: int, tokens: list[int], verified: Verified, path: list[int], begun: BegunDraft | None = None
    ) -> None:
        self._begin(root)
        self._index.extend(tokens)

    def propose(self, root: int, limit: int) -> Draft:
        self._begin(root)
        with self._ledger.stage(Stage.LOOKUP):
            nodes = max_nodes(self._draft_tokens)
            min_chance = 1 / (1 + self._draft_tokens)
            return lookup_draft(root, self._index.draft_tree(nodes, limit, min_chance, chain=not self._trees))

    def _begin(self, root: int) -> None:
        """Take the first token, which comes from the prefill and not from a round."""
        if not self._began:
            self._index.extend([root])
            self._began = True


def lookup_draft(root: int, tree: LookupTree) -> Draft:
    """Return what was looked up as a draft below `root`."""
    tree = tree.depth_first()
    nodes = PrefixTree(
        np.array([root, *tree.tokens], np.int32),
        np.array([-1, *tree.parents], np.int32),
        np.array([0, *tree.depths], np.int32),
    )
    return Draft(PackedTree.pack(nodes), [NodeSource.DRAFTER, *tree.sources])
