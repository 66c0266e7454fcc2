"""Drafts with a drafter head: one lazy tree a round, with a branch from prompt lookup.

Drafting ahead: while a round is verified, the search below its likely end is queued behind it (`search_ahead`), so that
the device does not wait for the host. If the round ends there, the next draft is that search's; otherwise it is
dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import override

import mlx.core as mx

from rdchat.inference.api import (
    BeamShape,
    DraftKind,
    DraftSettings,
    EarlierReplies,
    GenerationRequest,
    Mode,
    NodeSource,
    Stage,
)
from rdchat.inference.decoding.draft import BegunDraft, Draft, Drafter, LazyPath
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.beam_search import NodePool, PathScorer, best_nodes, search
from rdchat.inference.drafting.heads.head import Head, HeadMemory, Root
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from rdchat.inference.drafting.lookup import lookup_draft
from rdchat.inference.drafting.lookup_index import LookupIndex, LookupTree
from rdchat.inference.verification import KVCache, LoadedModel, PackedTree, Verified

# Minimum chance of a lookup branch's last node: a beam's last nodes are less likely.
_MIN_CHANCE = 0.1
# The share of a tree's drafted nodes that a branch may take: 12 of 15 gave 3.24 tokens a call, 8 3.19, 4 3.03, and 15
# 3.25.
_BRANCH_SHARE = 0.8
# Chance of a branch's first node from which on it replaces the beams of a chain.
_MIN_ALONE = 0.5
# Where state is computed along each path, trees have at most half as many leaves as nodes, or this many.
_MIN_LEAVES = 4
# A difference of fewer wrong tokens in a hundred between two readings may be chance.
_CLEAR_DIFFERENCE = 3.0
_NO_BRANCH = LookupTree()
# Nodes kept at each level of a tree, in beam widths; those beyond the width may still be among the best.
_LEAVES = 2


@dataclass(frozen=True, slots=True)
class _Ahead(BegunDraft):
    """A search that was begun before the host knew its root; see `BegunDraft`.

    Attributes:
        pool: Its nodes, lazy.
        shape: Width and length of its beams.
    """

    pool: NodePool
    shape: BeamShape


class HeadModel:
    """A drafter head that is bound to a loaded target; serves any number of replies, one after another.

    Args:
        model: The target.
        head: The drafter from `load_drafter`.

    Attributes:
        head: The same.

    Raises:
        ModelError: If the target does not have the layers that the drafter reads.
    """

    def __init__(self, model: LoadedModel, head: Head) -> None:
        self._model = model
        self.head = head
        self._memory = self.head.memory()
        self.record_states()

    def record_states(self) -> None:
        """Make the target record the hidden states that this head reads; another head may have requested others."""
        self._model.hooks.record_states(self.head.reads)

    def drafter(
        self,
        prompt: list[int],
        request: GenerationRequest,
        ledger: Ledger | None = None,
        *,
        apart: bool = False,
        earlier: EarlierReplies | None = None,
    ) -> "HeadDrafter":
        """Return the drafter of one reply.

        Args:
            prompt: Token ids.
            request: Sampling, reply seed and draft settings.
            ledger: Records the time of its stages; None records nothing.
            apart: Whether the reply belongs to no conversation, as in a measurement. Then the memory of the last
                conversation is left alone.
            earlier: Earlier replies, if the lookup branch may use them.
        """
        self.record_states()
        memory = self.head.memory() if apart else self._memory
        memory.begin_reply(prompt)
        return HeadDrafter(
            self._model, self.head, memory, prompt, request=request, ledger=ledger or Ledger(), earlier=earlier
        )

    def read_as(self, wrong: Mapping[Reading, float]) -> None:
        """Have MTP layers read the hidden states with which the fewest tokens were wrong, in a hundred.

        Of those that are not clearly worse the most likely is chosen. A new choice clears the memory.
        """
        head = self.head
        assert isinstance(head, BoundMtpHead)
        tested = [each for each in head.readings if each in wrong]
        if not tested:
            return
        limit = min(wrong[each] for each in tested) + _CLEAR_DIFFERENCE
        best = next(each for each in tested if wrong[each] < limit)
        worse = [wrong[each] for each in tested if wrong[each] >= limit]
        others = f"{100 - min(worse):.0f} % in the best other way" if worse else "about as many in any other way"
        head.facts = (
            f"It {best.description}: {100 - wrong[best]:.0f} % of the tokens it drafted in a test were right, {others}."
        )
        if best != head.reading:
            head.read_as(best)
            self.clear_memory()

    def clear_memory(self) -> None:
        """Clear the memory that is kept between replies."""
        self._memory = self.head.memory()


class HeadDrafter(Drafter):
    """Drafts for one reply; see `Drafter`.

    Where the target verifies chains only, the draft is a chain: the lookup branch if there is one, else the most likely
    beam.

    Args:
        model: The target.
        head: The drafter's network.
        memory: The head's memory of the conversation; it has the prompt.
        prompt: The prompt's tokens.
        request: Its sampling, reply seed and draft settings are used.
        ledger: Records the time of its stages.
        earlier: Earlier replies, if the lookup branch may use them.
    """

    name = Mode.DRAFTER.value

    def __init__(
        self,
        model: LoadedModel,
        head: Head,
        memory: HeadMemory,
        prompt: list[int],
        *,
        request: GenerationRequest,
        ledger: Ledger,
        earlier: EarlierReplies | None = None,
    ) -> None:
        self._model = model
        self._head = head
        self._memory = memory
        self._scorer = PathScorer(request.sampling, request.seed, head.vocabulary, head.inverse_temperature)
        self._settings = request.draft
        self._ledger = ledger
        self._trees = model.capability.kind is DraftKind.TREE
        # Position of the last token, once there is one.
        self._position = len(prompt)
        # (width,) the target's hidden state at the token before the last one; None until the prompt is read.
        self._hidden: mx.array | None = None
        # Whether the index has the first token.
        self._began = False
        # The draft that was begun in the last round, if that round ended with its root.
        self._ready: _Ahead | None = None
        self._index = LookupIndex(prompt, earlier=earlier)

    @override
    def take_settings(self, settings: DraftSettings) -> None:
        self._settings = settings

    @override
    def take_cache(self, cache: KVCache) -> None:
        self._memory.use_cache(cache)

    @override
    def read_prompt(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        assert hidden is not None
        if start + len(tokens) == self._position:
            self._hidden = hidden[-1]
        if self._head.remembers:
            with self._ledger.stage(Stage.READ):
                self._memory.take_committed(tokens, hidden, start)
                # The waits of the prompt are no waits of rounds.
                self._memory.take_waits()

    @override
    def propose(self, root: int, limit: int) -> Draft:
        settings = self._settings
        length = min(settings.beam_length, 1 + limit, 1 + self._head.max_drafted)
        if length == 1:
            return Draft(PackedTree.chain(mx.array([root])))
        self._begin(root)
        branch = _NO_BRANCH
        if settings.lookup_branch:
            with self._ledger.stage(Stage.LOOKUP):
                longest = min(limit, self._longest_branch(length))
                branch = self._index.draft_tree(longest, min_chance=_MIN_CHANCE, chain=True)
        nodes = nodes_of(settings, len(branch.tokens))
        return self.draft_in_shape(root, BeamShape(settings.beam_width, length), nodes, branch)

    def _longest_branch(self, length: int) -> int:
        """Return how many tokens a lookup branch may have beside beams of a length."""
        settings = self._settings
        longest = int(_BRANCH_SHARE * (nodes_of(settings, settings.beam_length) - 1))
        return longest if self._costs_rows_only(longest) else length - 1

    def _costs_rows_only(self, deepest: int) -> bool:
        """Return whether the target takes trees this deep, and computes no state for each of their leaves."""
        return self._trees and not self._model.hooks.states.limits_leaves(deepest)

    def draft_in_shape(self, root: int, shape: BeamShape, nodes: int, branch: LookupTree = _NO_BRANCH) -> Draft:
        """Draft in a given shape.

        Args:
            root: The last token.
            shape: Width and length of the beams.
            nodes: Nodes of the tree, the root included; a chain has as many as its length.
            branch: A chain to offer as well; longer than the beams only where the target takes trees.
        """
        if branch.tokens and not self._trees:
            if branch.chances[0] >= _MIN_ALONE:
                return lookup_draft(root, branch)
            branch = _NO_BRANCH
        pool = self.search_draft(root, shape)
        return self.offer_best(pool, nodes, branch)

    def offer_best(self, pool: NodePool, nodes: int, branch: LookupTree = _NO_BRANCH) -> Draft:
        """Offer the best nodes of a search, perhaps only the root; trees only if the target takes them."""
        # Two nodes are a chain whatever the scores are, and so are levels of one node.
        if not branch.tokens and (nodes <= 2 or pool.level_size == 1):
            return Draft(PackedTree.chain(pool.tokens[:nodes]), finite=pool.finite)
        with self._ledger.stage(Stage.SELECT_NODES):
            tree, looked_up = best_nodes(pool, nodes, branch.tokens)
            if self._model.hooks.states.limits_leaves(tree.deepest):
                tree = tree.with_leaves(max(-(-len(tree) // 2), _MIN_LEAVES))
            # A branch is a chain: what only it offers has the source of the branch's token at the same depth.
            by_depth = mx.array([NodeSource.DRAFTER, *branch.sources], mx.int32)
            sources = mx.where(looked_up, by_depth[mx.minimum(tree.depths, len(branch.tokens))], NodeSource.DRAFTER)
            self._ledger.synchronize(*tree.arrays, sources)
        return Draft(tree, sources, finite=pool.finite)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        """See `Drafter`; False where a path from prompt lookup would replace the draft."""
        return self._trees or not self._settings.lookup_branch

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> BegunDraft:
        return self.search_ahead(path, verified, self._settings.shape)

    def search_ahead(self, path: LazyPath, verified: Verified, shape: BeamShape) -> BegunDraft:
        """Queue the search below the last token of a running round; `search_draft` uses it if the round ends so."""
        assert verified.hidden is not None
        shape = self._possible(shape)
        root = Root(path.token, path.start, verified.hidden[path.last], path.depth, path.tree.deepest, path.nodes)
        if self._head.remembers:
            assert self._hidden is not None
            nodes = path.by_depth()
            before = Root(path.tree.tokens[0], path.start - 1, self._hidden)
            self._memory.take_ahead(path.tree.tokens[nodes], verified.hidden[nodes], before, root)
        pool = self._search(root, shape)
        mx.async_eval(pool.tokens, pool.parents, pool.finite)
        return _Ahead(path, pool, shape)

    @override
    def observe(
        self, root: int, tokens: list[int], verified: Verified, path: list[int], begun: BegunDraft | None = None
    ) -> None:
        assert verified.hidden is not None
        self._begin(root)
        self._ready = None
        if isinstance(begun, _Ahead) and begun.path.leads_to(path[-1], tokens[-1]):
            self._ready = begun
        if self._head.remembers and self._ready is not None:
            self._memory.keep([root, *tokens[:-1]], verified.hidden[path[-1]][None])
        elif self._head.remembers:
            self._memory.take_committed([root, *tokens[:-1]], verified.hidden[mx.array(path)], self._position)
        self._ledger.add_waits(self._memory.take_waits())
        self._hidden = verified.hidden[path[-1]]
        self._position += len(tokens)
        self._index.extend(tokens)

    @override
    def end_reply(self, length: int) -> None:
        if not length:
            self._memory.reset()

    def _begin(self, root: int) -> None:
        """Take the first token, which comes from the prefill and not from a round."""
        if not self._began:
            self._index.extend([root])
            self._began = True

    def search_draft(self, root: int, shape: BeamShape) -> NodePool:
        """Return the nodes of a draft, lazy, without offering them; a search begun ahead is used where it suffices."""
        assert self._hidden is not None
        shape = self._possible(shape)
        ready = self._ready
        self._ready = None
        if ready is not None and ready.shape.width == shape.width and ready.shape.length >= shape.length:
            return ready.pool.cut(shape.length - 1)
        return self._search(Root(root, self._position, self._hidden), shape)

    def _possible(self, shape: BeamShape) -> BeamShape:
        """Return a shape limited to what the target verifies and the head drafts."""
        return BeamShape(shape.width if self._trees else 1, min(shape.length, 1 + self._head.max_drafted))

    def _search(self, root: Root, shape: BeamShape) -> NodePool:
        """Search below a root; where leaves cost rows only, levels have nodes beyond the width."""
        has_leaves = shape.width > 1 or self._costs_rows_only(shape.length - 1)
        level_size = _LEAVES * shape.width if has_leaves else 1
        with self._ledger.stage(Stage.BEAM_SEARCH):
            pool = search(self._head, self._memory, self._scorer, root, shape=shape, level_size=level_size)
            self._ledger.synchronize(pool.tokens, pool.parents, pool.scores)
            return pool


def nodes_of(settings: DraftSettings, branch: int) -> int:
    """Return the nodes to verify in a round, the root included.

    It is the larger of two numbers: the root, one beam and a branch together; or about as many as all beams have.

    Args:
        settings: Width and length of the beams.
        branch: Tokens of the branch from prompt lookup; those beyond a beam's length add no nodes, but replace others.
    """
    drafted = settings.beam_length - 1
    return max(1 + drafted + min(branch, drafted), settings.beam_width * drafted)
