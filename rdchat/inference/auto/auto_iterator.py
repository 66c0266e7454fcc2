"""Decoding that goes over from plain steps to rounds and back, at the border of any token."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import override

import mlx.core as mx

from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.auto.auto_drafter import AutoDrafter
from rdchat.inference.auto.control_loop import Done, decode
from rdchat.inference.decoding.autoregressive import PlainSteps, Step
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.target.verifier import Verified


class AutoIterator(RoundIterator):
    """A `TokenIterator` of plain steps, as `AutoregressiveIterator` makes them, and rounds; the `Work` of its loop.

    Args:
        job: What it works on; the cache has rounds.
        drafter: Drafts as its controller decides.
    """

    def __init__(self, job: ReplyJob, drafter: AutoDrafter) -> None:
        super().__init__(job, drafter)
        self._auto = drafter
        self._steps = PlainSteps(job, self._reply, self._chooser)
        self._step: Step | None = None  # that is being computed
        self._reply.choice = lambda: drafter.controller.status
        self._marked = perf_counter()

    @override
    def update(self, settings: DraftSettings) -> None:
        """See `TokenIterator`; how much is drafted is not for the settings to say."""
        super().update(settings)
        self._steps.trace = settings.trace

    @override
    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        self._tell_of_prompt(len(self._prompt) - 1, len(self._prompt))
        self._step = self._steps.first(logits, len(self._prompt), self._seen)
        return decode(self, self._auto.controller)

    @property
    def room(self) -> int | None:
        """See `Work`."""
        reply = self._reply
        if reply.finish_reason is not None or self._cancel.is_set():
            return None
        return reply.last_index - len(reply.token_ids)

    @property
    def exact(self) -> bool:
        """See `Work`."""
        return self._ledger.exact

    def round(self) -> Done[TokenEvent]:
        """See `Work`."""
        before = len(self._reply.token_ids)
        events = self._round()
        return Done(events, self._reply.token_ids[before:], self._lap_ms(), usual=self._auto.usual)

    def step(self, queue: bool) -> Done[TokenEvent]:
        """See `Work`."""
        step = self._step or self._begin_again()
        event, following = self._steps.advance(step, queue)
        self._seen, self._step = step.seen, following
        tokens, ms = self._reply.token_ids, self._lap_ms()
        if len(tokens) > 1:
            hidden = None if step.hidden is None else step.hidden[0]
            with self._ledger.stage("follow"):
                self._auto.observe(tokens[-2], [tokens[-1]], Verified(step.logits, hidden), [0])
        held_up = following is not None and following.held_up
        return Done((event,), tokens[-1:], ms, following is not None, held_up)

    def stage(self, name: str) -> AbstractContextManager[object]:
        """See `Work`."""
        return self._ledger.stage(name)

    def _begin_again(self) -> Step:
        """Return the plain step after a round: nothing was queued for it."""
        reply = self._reply
        self._verifier.catch_up()
        return self._steps.after(reply.token_ids[-1], len(self._prompt) + len(reply.token_ids) - 1, self._seen)

    def _lap_ms(self) -> float:
        """Return the milliseconds since it was last asked for."""
        now = perf_counter()
        ms, self._marked = (now - self._marked) * 1000, now
        return ms
