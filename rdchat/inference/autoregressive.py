"""Plain decoding: one token a target call, the next call queued while the last token is read.

It is the baseline of every drafting mode and their oracle.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from rdchat.inference.events import TokenEvent
from rdchat.inference.reply import ReplyJob
from rdchat.inference.reply_iterator import ReplyIterator
from rdchat.inference.requests import DraftSettings
from rdchat.inference.round_cache import can_step_back

_FREE_BUFFERS_EVERY = 256  # tokens; MLX keeps freed buffers for reuse, which grow with the context


@dataclass(frozen=True, slots=True)
class _Step:
    """A token of the reply that is being computed.

    Attributes:
        position: Its absolute position.
        logits: (1, vocabulary).
        seen: (vocabulary,) bool: tokens before it; None without a repetition penalty.
        token: (1,) its id, quickly chosen.
        sure: (1,) bool: whether that is surely the right one.
    """

    position: int
    logits: mx.array
    seen: mx.array | None
    token: mx.array
    sure: mx.array


class AutoregressiveIterator(ReplyIterator):
    """A `TokenIterator` that decodes token by token."""

    def __init__(self, job: ReplyJob) -> None:
        super().__init__(job)
        self._can_step_back = can_step_back(job.cache.layers)

    def update(self, settings: DraftSettings) -> None:
        """See `TokenIterator`; plain decoding has nothing to change but its ledger."""
        self._ledger.exact = settings.profile

    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        step = self._choose(logits, len(self._prompt), self._seen)
        while reply.finish_reason is None and not self._cancel.is_set():
            index = len(reply.token_ids)
            following = self._queue(step, step.token) if index < reply.last_index else None
            with self._ledger.stage("wait for token"):
                token_id, as_queued = self._read(step)
            if following is not None:
                following = following if as_queued else self._queue_again(step, token_id)
                self._cache.tokens.append(token_id)
                step = following
            if index:
                reply.counters.target_calls += 1
                reply.counters.host_syncs += 1 + self._ledger.take_waits()
            if index % _FREE_BUFFERS_EVERY == 0:
                mx.clear_cache()
            yield reply.take(token_id)

    def _queue(self, step: _Step, token: mx.array) -> _Step:
        """Queue the target call for `token`, (1,), perhaps lazy, that `step` ends in; return the step it begins."""
        with self._ledger.stage("queue step"):
            seen = None if step.seen is None else self._chooser.with_token(step.seen, token)
            with self._ledger.stage("forward"):
                logits = self._logits(token)
                self._ledger.settle(logits)
            return self._choose(logits, step.position + 1, seen)

    def _queue_again(self, step: _Step, token_id: int) -> _Step:
        """Take back the call that was queued for another token."""
        for layer in self._cache.layers:
            layer.trim(1)
        return self._queue(step, mx.array([token_id]))

    def _choose(self, logits: mx.array, position: int, seen: mx.array | None) -> _Step:
        with self._ledger.stage("choose"):
            if self._can_step_back:
                token, sure = self._chooser.choose_quickly(logits, position, mx.array([0]), 0, seen)
            else:
                token, sure = self._chooser.choose(logits, mx.array([position]), seen), mx.array([True])
            mx.async_eval(token, sure)
            self._ledger.settle(token, sure)
        return _Step(position, logits, seen, token, sure)

    def _read(self, step: _Step) -> tuple[int, bool]:
        """Wait for a step's token; return it, and whether it is the one that the next call was queued for."""
        queued = int(np.array(step.token)[0])
        if np.array(step.sure)[0]:
            return queued, True
        chosen = int(np.array(self._chooser.choose(step.logits, mx.array([step.position]), step.seen))[0])
        return chosen, chosen == queued
