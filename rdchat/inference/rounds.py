"""Decoding with drafts: draft, verify, accept, commit - one target call a round, and the text plain decoding gives."""

from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx
import numpy as np

from rdchat.inference.acceptance import accepted_path, seen_on_paths
from rdchat.inference.draft import Draft, Drafter
from rdchat.inference.prefix_tree import Ints
from rdchat.inference.protocol import RoundStatistics, TokenEvent
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

    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        first = self._chooser.choose(logits, mx.array([len(self._prompt)]), self._seen)
        yield reply.take(int(np.array(first)[0]))
        while reply.finish_reason is None and not self._cancel.is_set():
            draft = self._draft()
            verified, tokens, chosen = self._verify(draft)
            path, events = self._accept(draft, tokens, chosen)
            self._commit(verified, tokens, path)
            yield from events

    def _draft(self) -> Draft:
        reply = self._reply
        with self._ledger.stage("draft"):
            return self._drafter.propose(reply.token_ids[-1], reply.last_index - len(reply.token_ids))

    def _verify(self, draft: Draft) -> tuple[Verified, Ints, Ints]:
        """Return what the target says, the draft's tokens, and the token chosen after each node."""
        tree = draft.tree
        with self._ledger.stage("verify"):
            tokens = mx.array(tree.tokens) if draft.tokens is None else draft.tokens
            verified = self._verifier.verify(tree, tokens)
            seen = None if self._seen is None else seen_on_paths(self._seen, tree, tokens)
            chosen = self._chooser.choose(verified.logits, mx.array(self._verifier.position + 1 + tree.depths), seen)
            mx.eval(tokens, chosen, verified.hidden)
            self._reply.counters.host_syncs += 1
            return verified, np.array(tokens), np.array(chosen).astype(np.int32)

    def _accept(self, draft: Draft, tokens: Ints, chosen: Ints) -> tuple[list[int], list[TokenEvent]]:
        """Return the accepted path, cut where the reply ends, and one event for each token the round adds."""
        reply, counters = self._reply, self._reply.counters
        path = accepted_path(draft.tree, tokens, chosen)
        counters.rounds += 1
        counters.target_calls += 1
        counters.drafted += (drafted := int(draft.tree.depths.max()))
        counters.accepted += len(path) - 1
        counters.verified_nodes += len(draft.tree)
        events = []
        for node in path:
            events.append(reply.take(int(chosen[node])))
            if reply.finish_reason is not None:
                break
        statistics = RoundStatistics(counters.rounds, drafted, len(path) - 1, len(events), len(draft.tree))
        events[-1] = replace(events[-1], round=statistics)
        return path[: len(events)], events

    def _commit(self, verified: Verified, tokens: Ints, path: list[int]) -> None:
        with self._ledger.stage("commit"):
            fed = tokens[path]
            self._verifier.commit(fed.tolist(), path)
            if self._seen is not None:
                for token in fed:
                    self._seen = self._chooser.with_token(self._seen, mx.array([token]))
            self._drafter.observe(self._reply.token_ids[-len(path) :], verified, path)
