"""Decoding with drafts: draft, verify, accept, commit - one target call a round, and the text plain decoding gives.

The text is the same up to rounding: a device that adds up otherwise for several rows than for one may choose another
token where two all but tie. Nothing here depends on that: what is accepted is what the round's own logits choose.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

from rdchat.inference.api.events import PrefillProgress, TokenEvent
from rdchat.inference.api.reply_statistics import RoundStatistics
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.decoding.accepted_path import LazyPath, accepted_path, seen_on_paths
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.tracing import TreeLogProbs, round_tree, token_log_probs
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import Ints, PrefixTree
from rdchat.inference.target.verifier import Verified, Verifier

_MOST_DROPPED = 3  # drafts of a drafter; then the reply goes on without it
_WHAT = {Mode.DRAFTER.value: "The drafter", Mode.SPECULATIVE.value: "The draft model"}


@dataclass(frozen=True, slots=True)
class _Round:
    """A verified draft on the host.

    Attributes:
        tree: The draft.
        drafted: Its depth; 0 where it is dropped.
        path: The accepted nodes, the root first.
        drafters: (nodes,) name of the drafter of each node.
        verified: The target's output for it, evaluated.
        chosen: (nodes,) the token it chooses after each node; off the accepted path a quick choice may be wrong.
        log_probs: The target's log-probabilities; None without a trace.
    """

    tree: PrefixTree
    drafted: int
    path: list[int]
    drafters: list[str]
    verified: Verified
    chosen: Ints
    log_probs: TreeLogProbs | None


class RoundIterator(ReplyIterator):
    """A `TokenIterator` that verifies a drafter's trees.

    Args:
        job: Model, cache, prompt and request; the cache has rounds.
        drafter: Proposes trees.
    """

    def __init__(self, job: ReplyJob, drafter: Drafter) -> None:
        super().__init__(job)
        self._drafter = drafter
        self._verifier = Verifier(job.model, job.cache)
        self._settings = job.request.draft
        self._rows_for = job.rows_for
        self._dropped = Counter[str]()  # drafts, by what drafted them

    def update(self, settings: DraftSettings) -> None:
        self._settings = settings
        self._ledger.exact = settings.profile
        self._drafter.update(settings)

    def _prefill(self) -> Iterator[PrefillProgress]:
        read = len(self._cache.tokens)
        for progress in super()._prefill():
            self._tell_of_prompt(read, progress.processed)
            read = progress.processed
            yield progress
        with self._ledger.stage("prefill of the drafter"):
            for _ in self._drafter.prefill(self._cancel.is_set, self._ledger):
                pass

    def _tell_of_prompt(self, start: int, end: int) -> None:
        """Tell the drafter that the target's last call was these tokens of the prompt."""
        hidden = self._model.hooks.hidden
        if start < end:
            self._drafter.read(self._prompt[start:end], None if hidden is None else hidden[0], start)

    def _trim_cache(self, length: int) -> None:
        super()._trim_cache(length)
        self._drafter.close(len(self._cache.tokens))

    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        self._tell_of_prompt(len(self._prompt) - 1, len(self._prompt))
        with self._ledger.stage("first token"):
            first = self._chooser.choose(logits, mx.array([len(self._prompt)]), self._seen)
            log_probs = token_log_probs(logits, first) if self._settings.trace else None
            mx.eval(first, log_probs)
            event = reply.take(int(first))
        yield event if log_probs is None else replace(event, log_prob=float(log_probs))
        while reply.finish_reason is None and not self._cancel.is_set():
            yield from self._round()

    def _round(self) -> list[TokenEvent]:
        """Make one target call; return an event for each token that it adds."""
        with self._ledger.stage("round"):
            draft = self._draft()
            done = self._verify(draft)
            path, events = self._accept(done)
            self._commit(done, path)
            return events

    @property
    def _drafts(self) -> bool:
        """Whether the reply's drafter is still asked."""
        return self._dropped[self._drafter.name] < _MOST_DROPPED

    def _draft(self) -> Draft:
        reply = self._reply
        root = reply.token_ids[-1]
        with self._ledger.stage("draft"):
            if self._drafts:
                draft = self._drafter.propose(root, reply.last_index - len(reply.token_ids))
            else:
                draft = Draft(PackedTree.chain(mx.array([root])))
            draft = replace(draft, tree=draft.tree.below(root, self._model.info.vocabulary_size))
            lazy = (*draft.tree.arrays, draft.looked_up, mx.array(draft.finite))
            self._ledger.queue(*lazy)  # it drafts while the target's graph is built
            self._ledger.synchronize(*lazy)
            return draft

    def _verify(self, draft: Draft) -> _Round:
        packed, start = draft.tree, self._verifier.position + 1
        with self._ledger.stage("verify"):
            verified = self._verifier.verify(packed, draft.rows or self._rows_for(len(packed), start - 1))
            self._ledger.synchronize(verified.logits, verified.hidden)
            seen = None if self._seen is None else seen_on_paths(self._seen, packed)
        with self._ledger.stage("choose"):
            chosen, sure = self._chooser.choose_quickly(verified.logits, start, packed.depths, packed.deepest, seen)
            log_probs = TreeLogProbs.of(verified.logits, packed, chosen) if self._settings.trace else None
            traced = log_probs.arrays if log_probs else ()
            shape, finite = (packed.tokens, packed.parents, packed.depths), mx.array(draft.finite)
            wanted = [*shape, chosen, sure, finite, verified.hidden, draft.looked_up, *traced]
            wanted += self._draft_ahead(packed, verified, chosen, wanted)
            with self._ledger.waiting():
                *nodes, quick, certain = fetch(*shape, chosen, sure, besides=wanted)
            self._reply.counters.host_syncs += 1
            tree, tokens = PrefixTree.of_nodes(*nodes), quick.astype(np.int32)
            counts = bool(finite) and tree.is_sound
            path = accepted_path(tree, tokens) if counts else [0]
            while unsure := [node for node in path if not certain[node]]:
                rows = mx.array(unsure)  # of the path alone: by the definition a row costs a whole sort
                exact = self._chooser.choose(
                    verified.logits[rows], start + packed.depths[rows], None if seen is None else seen[rows]
                )
                with self._ledger.waiting():
                    tokens[unsure], certain[unsure] = fetch(exact), True
                self._reply.counters.host_syncs += 1
                path = accepted_path(tree, tokens) if counts else [0]
            if log_probs and (tokens != quick).any():
                log_probs = TreeLogProbs.of(verified.logits, packed, mx.array(tokens))
                self._ledger.wait(*log_probs.arrays)
            name = draft.drafter or self._drafter.name
            if not counts:
                self._drop(name)
            drafted = int(tree.depths.max()) if counts else 0
            return _Round(tree, drafted, path, _drafters(draft, name), verified, tokens, log_probs)

    def _drop(self, source: str) -> None:
        """Count a draft whose scores are not finite; after a few, the reply goes on without what drafted it."""
        self._reply.counters.dropped_drafts += 1
        self._dropped[source] += 1
        if self._dropped[source] == _MOST_DROPPED:
            self._drafter.leave_out(source)
            self._reply.left_out = (
                f"{_WHAT.get(source, 'What drafts')} computed scores that are not finite, so the reply went on without "
                "it. It is damaged, or the precision is too small for it: get it again, or try float32."
            )

    def _draft_ahead(
        self, tree: PackedTree, verified: Verified, chosen: mx.array, wanted: Sequence[mx.array | None]
    ) -> Sequence[mx.array]:
        """Queue the round, and behind it the next draft, if the drafter can begin it now.

        The host then waits for the round alone, and the device drafts while the host takes the round in and builds the
        next call. With exact times each stage is waited for anyway.

        Returns:
            What is to be waited for besides `wanted`.
        """
        limit = self._reply.last_index - len(self._reply.token_ids) - 1
        if limit < 1 or self._ledger.exact or not self._drafts or not self._drafter.drafts_ahead(limit):
            return ()
        path = LazyPath.of(tree, chosen, self._verifier.position + 1)
        self._ledger.queue(*wanted, path.last, path.token)
        with self._ledger.stage("draft ahead"):
            return [path.last, path.token, *self._drafter.draft_ahead(path, verified)]

    def _accept(self, done: _Round) -> tuple[list[int], list[TokenEvent]]:
        """Return the accepted path, cut where the reply ends, and one event for each token the round adds."""
        reply, counters, tree = self._reply, self._reply.counters, done.tree
        with self._ledger.stage("accept"):
            path = done.path
            drafted, accepted = done.drafted, len(path) - 1
            counters.rounds += 1
            counters.target_calls += 1
            counters.host_syncs += self._ledger.take_waits()
            counters.drafted += drafted
            counters.accepted += accepted
            counters.drafted_lengths[drafted] += 1
            counters.accepted_lengths[accepted] += 1
            counters.verified_nodes += len(tree)
            events = []
            for place, node in enumerate(path, start=1):
                event = reply.take(int(done.chosen[node]))
                if place < len(path):
                    event = replace(event, drafter=done.drafters[path[place]], position=place)
                events.append(event)
                if reply.finish_reason is not None:
                    break
            statistics = RoundStatistics(counters.rounds, drafted, accepted, len(events), len(tree))
            events[-1] = replace(events[-1], round=statistics)
            return path[: len(events)], self._traced(done, path, events)

    def _commit(self, done: _Round, path: list[int]) -> None:
        with self._ledger.stage("commit"):
            fed = done.tree.tokens[path].tolist()
            self._verifier.commit(fed, path)
            if self._seen is not None:
                self._seen = self._seen | self._chooser.seen(fed)
            self._drafter.observe(fed[0], self._reply.token_ids[-len(path) :], done.verified, path)

    def _traced(self, done: _Round, path: list[int], events: list[TokenEvent]) -> list[TokenEvent]:
        """Add log-probabilities, and the tree to the last event, where a trace is wanted."""
        if done.log_probs is None:
            return events
        chosen = fetch(done.log_probs.chosen).tolist()
        events = [replace(e, log_prob=chosen[node]) for e, node in zip(events, path, strict=False)]
        correction = int(done.chosen[path[-1]])
        tree = round_tree(done.tree, done.drafters, done.log_probs, path, correction, text_of=self._model.token_text)
        return [*events[:-1], replace(events[-1], tree=tree)]


def _drafters(draft: Draft, name: str) -> list[str]:
    looked_up = [False] * len(draft.tree) if draft.looked_up is None else fetch(draft.looked_up).tolist()
    return ["", *(Mode.LOOKUP.value if lookup else name for lookup in looked_up[1:])]
