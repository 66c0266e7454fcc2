"""Makes the rounds of a reply: draft, verify, accept, commit, with one target call a round.

The text is that of plain decoding up to rounding: a device that adds in another order for several rows may choose
another token where two have almost the same score. What is accepted follows the round's own logits, so nothing else
depends on that. Arrays of a round have an entry for each node of its draft's tree.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import mlx.core as mx
import numpy as np

from rdchat.inference.api import DRAFTERS, DraftKind, Mode, NodeSource, RoundStatistics, Stage, TokenEvent
from rdchat.inference.decoding.autoregressive import LikelyTokens, Step, TreeLogProbs, likely_tokens, round_tree
from rdchat.inference.decoding.draft import BegunDraft, Draft, Drafter, LazyPath, accepted_path, seen_on_paths
from rdchat.inference.decoding.loop import RoundPlan
from rdchat.inference.decoding.reductions import check_finite, finite_rows
from rdchat.inference.decoding.reply import Reply, ReplyJob
from rdchat.inference.decoding.reply_matcher import ReplyMatcher
from rdchat.inference.decoding.sampling import TokenChooser, masked
from rdchat.inference.device import fetch
from rdchat.inference.verification import Ints, PackedTree, PrefixTree, Verified, Verifier

# After this many dropped drafts of a drafter the reply continues without it.
_MAX_DROPPED = 3


@dataclass(frozen=True, slots=True)
class _Round:
    """A verified draft on the host.

    Attributes:
        tree: The draft.
        drafted: Depth of the draft; 0 if it was dropped.
        path: The accepted nodes, the root first; none where the root's row has no numbers to choose from.
        drafters: (nodes,) name of the drafter of each node.
        verified: The target's output for the draft, evaluated.
        chosen: (nodes,) the token chosen after each node; off the accepted path a quick choice may be wrong.
        log_probs: (nodes,) log-probabilities of the tokens; None if the request does not ask for it.
        likely: The most likely tokens after each node; None if the request does not ask for it.
        begun: The next draft, if it was begun.
    """

    tree: PrefixTree
    drafted: int
    path: list[int]
    drafters: list[str]
    verified: Verified
    chosen: Ints
    log_probs: TreeLogProbs | None
    likely: LikelyTokens | None
    begun: BegunDraft | None


class Rounds:
    """Makes the rounds of a reply.

    Args:
        job: Model, cache and request; the cache has rounds.
        reply: Takes the tokens.
        chooser: Chooses them.
        drafter: Proposes trees.
    """

    def __init__(self, job: ReplyJob, reply: Reply, chooser: TokenChooser, drafter: Drafter) -> None:
        self._model = job.model
        self._cache = job.cache
        self._ledger = job.ledger
        self._reply = reply
        self._chooser = chooser
        self._drafter = drafter
        self._parts = drafter.parts
        for part in self._parts:
            part.take_cache(job.cache)
        self._verifier = Verifier(job.model, job.cache)
        self._listed = job.request.top_log_probs
        self._rows_for = job.rows_for
        # Dropped drafts, by drafter.
        self._dropped = Counter[str]()

    def make_round(self, plan: RoundPlan) -> tuple[list[TokenEvent], bool]:
        """Make one target call with a draft.

        Returns:
            An event for each token that it adds, and whether its time is typical of its plan.
        """
        drafter = self._drafter.planned(plan)
        draft, mask = self._draft(drafter)
        checked = self._verify(draft, mask, drafter)
        if not checked.path and len(checked.tree) > 1:
            # A drafted token can spoil the rows before it: zero times a number that is not finite is none. A next draft
            # that was queued already is used only if the reply goes on as it assumes.
            self._verifier.rollback()
            root = Draft(PackedTree.chain(draft.tree.tokens[:1]))
            checked = self._verify(root, None if mask is None else mask[:1], drafter)
        check_finite(checked.path, self._model)
        path, events = self._accept(checked)
        self._commit(checked, path)
        return events, draft.usual

    def catch_up(self) -> None:
        """Prepare the cache for a plain step."""
        self._verifier.catch_up()

    def observe_plain(self, step: Step) -> None:
        """Show the drafter a plain step whose token was taken."""
        root, token = self._reply.token_ids[-2:]
        with self._ledger.stage(Stage.FOLLOW):
            for part in self._parts:
                part.observe(root, [token], Verified(step.logits, step.hidden), [0])

    @property
    def _drafts(self) -> bool:
        """Whether the drafter is still in use in this reply."""
        return self._dropped[self._drafter.name] < _MAX_DROPPED

    def _draft(self, drafter: Drafter) -> tuple[Draft, mx.array | None]:
        """Offer tokens that may follow the last one.

        Returns:
            The draft; and what the matcher allows after each node, (nodes, vocabulary) bool, or None for any text.
        """
        reply = self._reply
        root = reply.token_ids[-1]
        mask = None
        with self._ledger.stage(Stage.DRAFT):
            draft = drafter.propose(root, reply.room) if self._drafts else Draft(PackedTree.chain(mx.array([root])))
            draft = replace(draft, tree=draft.tree.below(root, self._model.info.vocabulary_size))
            if reply.matcher is not None and not reply.matcher.is_free(draft.tree.deepest):
                draft, mask = self._within(reply.matcher, draft)
            lazy = (*draft.tree.arrays, draft.lazy_sources, mx.array(draft.finite))
            # The device drafts while the host builds the target's graph.
            self._ledger.queue(*lazy)
            return draft, mask

    def _within(self, matcher: ReplyMatcher, draft: Draft) -> tuple[Draft, mx.array]:
        """Return the part of a draft that the matcher allows, with its forced tokens, and the mask of each node."""
        with self._ledger.stage(Stage.SHAPE), self._ledger.waiting():
            trees = self._model.capability.kind is DraftKind.TREE
            allowed, mask = matcher.within(draft, self._reply.room, trees=trees)
        return replace(allowed, usual=draft.usual and allowed is draft), mask

    def _verify(self, draft: Draft, mask: mx.array | None, drafter: Drafter) -> _Round:
        """Have the target choose the token after each node of a draft, in one call.

        1. Queue the call, a quick choice after each node (`chosen`), and what traces show; then perhaps the next draft.
        2. Wait once for what the host needs: the tree, the choices (`quick`), whether each is `certain`, and whether
           each row has numbers to choose from (`readable`).
        3. Walk the accepted path. Where a choice on it is not certain, make it exactly (docs/adr/0006).
        """
        packed = draft.tree
        # Position of the token after the root.
        start = self._verifier.position + 1
        with self._ledger.stage(Stage.VERIFY):
            verified = self._verifier.verify(packed, draft.rows or self._rows_for(len(packed), start - 1))
            self._ledger.synchronize(verified.logits, verified.hidden)
            before = self._reply.seen
            seen = None if before is None else seen_on_paths(before, packed)
        with self._ledger.stage(Stage.CHOOSE):
            logits = masked(verified.logits, mask)
            chosen, sure = self._chooser.choose_quickly(logits, start, packed.depths, packed.deepest, seen)
            traces = self._reply.trace or self._listed is not None
            log_probs = TreeLogProbs.build(verified.logits, packed, chosen) if traces else None
            likely = likely_tokens(verified.logits, self._listed)
            read = (packed.tokens, packed.parents, packed.depths, chosen, sure, finite_rows(verified.logits))
            finite = mx.array(draft.finite)
            # All that the round and the next draft are computed from; the host reads a part of it.
            results = [*read, finite, verified.hidden, draft.lazy_sources, *(log_probs or ()), *(likely or ())]
            begun = self._draft_ahead(drafter, packed, verified, chosen, results)
            if begun is not None:
                results += [begun.path.last, begun.path.token]
            with self._ledger.waiting():
                *nodes, quick, certain, readable = fetch(*read, besides=results)
            self._reply.count(host_syncs=1)
            tree = PrefixTree(*nodes)
            is_usable = bool(finite) and tree.is_sound
            # Of a draft that is dropped only the root counts.
            offered = tree if is_usable else PrefixTree(*(column[:1] for column in nodes))
            tokens = quick.astype(np.int32)
            path = accepted_path(offered, tokens)
            # An exact choice may move the path to other nodes, whose choice may be uncertain too.
            while unsure := [node for node in path if not certain[node]]:
                tokens[unsure] = self._choose_exactly(unsure, logits, start + tree.depths[unsure], seen)
                certain[unsure] = True
                path = accepted_path(offered, tokens)
            # The log-probabilities are those of the tokens that were chosen in the end.
            if log_probs and (tokens != quick).any():
                log_probs = TreeLogProbs.build(verified.logits, packed, mx.array(tokens))
                self._ledger.wait(*log_probs)
            # The path ends before the first row with numbers that are not finite: there plain decoding would end.
            path = list(takewhile(lambda node: readable[node], path))
            name = draft.drafter or self._drafter.name
            if path and not is_usable:
                self._drop(name)
            drafters = _drafters(draft, name)
            depth = int(offered.depths.max())
            return _Round(tree, depth, path, drafters, verified, tokens, log_probs, likely, begun)

    def _choose_exactly(self, nodes: list[int], logits: mx.array, positions: Ints, seen: mx.array | None) -> Ints:
        """Choose the tokens after some nodes from the whole vocabulary, which costs a sort of it for each node.

        Args:
            nodes: Indices of n nodes.
            logits: (all nodes, vocabulary) what may be chosen.
            positions: (n,) absolute positions of the tokens to be chosen.
            seen: (all nodes, vocabulary) int32, see `TokenChooser.seen`; None without a penalty.
        """
        rows = mx.array(nodes)
        exact = self._chooser.choose(logits[rows], positions.tolist(), None if seen is None else seen[rows])
        self._reply.count(host_syncs=1)
        with self._ledger.waiting():
            return fetch(exact)

    def _drop(self, source: str) -> None:
        """Count a dropped draft; after a few, continue the reply without that drafter."""
        self._reply.count(dropped_drafts=1)
        self._dropped[source] += 1
        if self._dropped[source] == _MAX_DROPPED:
            self._drafter.stop_source(source)
            noun = DRAFTERS[Mode(source)].noun if source in DRAFTERS else "the drafter"
            self._reply.left_out = (
                f"{noun.capitalize()} computed scores that are not finite, so the reply continued "
                "without it. Try float32. If that does not help, it is damaged: get it again."
            )

    def _draft_ahead(
        self,
        drafter: Drafter,
        tree: PackedTree,
        verified: Verified,
        chosen: mx.array,
        results: Sequence[mx.array | None],
    ) -> BegunDraft | None:
        """Queue the round, and behind it the next draft if the drafter can begin it now; return that.

        The host then waits for the round alone. The device drafts while the host processes the round and builds the
        next call. With exact times each stage waits anyway.
        """
        limit = self._reply.room - 1
        if limit < 1 or self._ledger.exact or not self._drafts or not drafter.drafts_ahead(limit):
            return None
        path = LazyPath.accepted(tree, chosen, self._verifier.position + 1)
        self._ledger.queue(*results, path.last, path.token)
        with self._ledger.stage(Stage.DRAFT_AHEAD):
            return drafter.draft_ahead(path, verified)

    def _accept(self, checked: _Round) -> tuple[list[int], list[TokenEvent]]:
        """Return the accepted path, cut where the reply ends, and one event for each token the round adds."""
        reply = self._reply
        tree = checked.tree
        with self._ledger.stage(Stage.ACCEPT):
            path = checked.path
            drafters = [checked.drafters[node] for node in path[1:]]
            self._ledger.add_waits(self._cache.take_waits())
            reply.count_round(checked.drafted, len(tree), self._ledger.take_waits())
            log_probs = fetch(checked.log_probs.chosen).tolist() if checked.log_probs else [None] * len(tree)
            alternatives = checked.likely.listed(self._model.token_data) if checked.likely else [()] * len(tree)
            events = []
            # `position` is the depth of the token chosen after each node. The last token has no node on the path: it is
            # the target's own.
            for position, node in enumerate(path, start=1):
                is_drafted = position < len(path)
                if is_drafted:
                    reply.count_accepted(position, drafters[position - 1])
                event = reply.add_token(int(checked.chosen[node]), log_probs[node], alternatives[node])
                if is_drafted:
                    event = replace(event, drafter=drafters[position - 1], position=position)
                events.append(event)
                if reply.finish_reason is not None:
                    break
            accepted = sum(event.position > 0 for event in events)
            statistics = RoundStatistics(reply.counters.rounds, checked.drafted, accepted, len(events), len(tree))
            events[-1] = replace(events[-1], round=statistics)
            if checked.log_probs and reply.trace:
                traced = tree, checked.drafters, checked.log_probs, path, int(checked.chosen[path[-1]])
                events[-1] = replace(events[-1], tree=round_tree(*traced, text_of=self._model.token_text))
            return path[: len(events)], events

    def _commit(self, checked: _Round, path: list[int]) -> None:
        """Keep the path in the caches, and drop the rest."""
        with self._ledger.stage(Stage.COMMIT):
            fed = checked.tree.tokens[path].tolist()
            self._verifier.commit(fed, path)
            reply = self._reply
            if reply.seen is not None:
                reply.seen = self._chooser.with_tokens(reply.seen, mx.array(fed))
            for part in self._parts:
                part.observe(fed[0], reply.token_ids[-len(path) :], checked.verified, path, checked.begun)


def _drafters(draft: Draft, name: str) -> list[str]:
    """Return who drafted each node, empty for the root; `name` is the drafter of those without another source."""
    return ["", *(NodeSource(source).named(name) for source in draft.fetch_sources()[1:])]
