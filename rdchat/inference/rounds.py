"""Decoding with drafts: draft, verify, accept, commit - one target call a round, and the text plain decoding gives."""

from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx
import numpy as np

from rdchat.inference.acceptance import accepted_path, seen_on_paths
from rdchat.inference.draft import Draft, Drafter
from rdchat.inference.prefix_tree import Ints, PrefixTree
from rdchat.inference.protocol import PrefillProgress, RoundStatistics, TokenEvent
from rdchat.inference.reply import ReplyJob
from rdchat.inference.reply_iterator import ReplyIterator
from rdchat.inference.verifier import Verified, Verifier


class RoundIterator(ReplyIterator):
    """A `TokenIterator` that verifies a drafter's trees.

    Args:
        job: What it works on; the cache has rounds.
        drafter: Proposes trees.
    """

    def __init__(self, job: ReplyJob, drafter: Drafter) -> None:
        super().__init__(job)
        self._drafter = drafter
        self._verifier = Verifier(job.model, job.cache)

    def _prefill(self) -> Iterator[PrefillProgress]:
        yield from super()._prefill()
        with self._ledger.stage("prefill"), self._ledger.stage("drafter"):
            for _ in self._drafter.prefill(self._cancel.is_set):
                pass

    def _settle(self, length: int) -> None:
        super()._settle(length)
        self._drafter.close(len(self._cache.tokens))

    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        first = self._chooser.choose(logits, mx.array([len(self._prompt)]), self._seen)
        yield reply.take(int(np.array(first)[0]))
        while reply.finish_reason is None and not self._cancel.is_set():
            draft = self._draft()
            verified, tree, chosen = self._verify(draft)
            path, events = self._accept(tree, chosen)
            self._commit(verified, tree, path)
            yield from events

    def _draft(self) -> Draft:
        reply = self._reply
        with self._ledger.stage("draft"):
            return self._drafter.propose(reply.token_ids[-1], reply.last_index - len(reply.token_ids))

    def _verify(self, draft: Draft) -> tuple[Verified, PrefixTree, Ints]:
        """Return what the target says, the draft's tree, and the token chosen after each node."""
        packed, start = draft.tree, self._verifier.position + 1
        with self._ledger.stage("verify"):
            verified = self._verifier.verify(packed)
            seen = None if self._seen is None else seen_on_paths(self._seen, packed)
            chosen, sure = self._chooser.choose_quickly(verified.logits, start, packed.depths, packed.deepest, seen)
            mx.eval(packed.tokens, packed.parents, packed.depths, chosen, sure, verified.hidden)
            self._reply.counters.host_syncs += 1
            tree, tokens, certain = packed.fetch(), np.array(chosen).astype(np.int32), np.array(sure)
            if not certain[accepted_path(tree, tokens)].all():
                rows = mx.array(np.flatnonzero(~certain))
                seen = seen if seen is None else seen[rows]
                exact = self._chooser.choose(verified.logits[rows], start + packed.depths[rows], seen)
                tokens[~certain] = np.array(exact)
                self._reply.counters.host_syncs += 1
            return verified, tree, tokens

    def _accept(self, tree: PrefixTree, chosen: Ints) -> tuple[list[int], list[TokenEvent]]:
        """Return the accepted path, cut where the reply ends, and one event for each token the round adds."""
        reply, counters = self._reply, self._reply.counters
        path = accepted_path(tree, chosen)
        counters.rounds += 1
        counters.target_calls += 1
        counters.drafted += (drafted := int(tree.depths.max()))
        counters.accepted += len(path) - 1
        counters.verified_nodes += len(tree)
        events = []
        for node in path:
            events.append(reply.take(int(chosen[node])))
            if reply.finish_reason is not None:
                break
        statistics = RoundStatistics(counters.rounds, drafted, len(path) - 1, len(events), len(tree))
        events[-1] = replace(events[-1], round=statistics)
        return path[: len(events)], events

    def _commit(self, verified: Verified, tree: PrefixTree, path: list[int]) -> None:
        with self._ledger.stage("commit"):
            fed = tree.tokens[path].tolist()
            self._verifier.commit(fed, path)
            if self._seen is not None:
                for token in fed:
                    self._seen = self._chooser.with_token(self._seen, mx.array([token]))
            self._drafter.observe(self._reply.token_ids[-len(path) :], verified, path)
