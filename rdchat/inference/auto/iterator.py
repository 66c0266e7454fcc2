"""Decoding that goes over from plain steps to rounds and back, at the border of any token."""

from collections.abc import Iterator
from time import perf_counter
from typing import override

import mlx.core as mx

from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.auto.drafter import AutoDrafter
from rdchat.inference.decoding.autoregressive import PlainSteps, Step
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator


class AutoIterator(RoundIterator):
    """A `TokenIterator` of plain steps, as `AutoregressiveIterator` makes them, and rounds.

    Args:
        job: What it works on; the cache has rounds.
        drafter: Decides which.
    """

    def __init__(self, job: ReplyJob, drafter: AutoDrafter) -> None:
        super().__init__(job, drafter)
        self._auto = drafter
        self._steps = PlainSteps(job, self._reply, self._chooser)
        self._reply.choice = lambda: drafter.told
        self._marked = perf_counter()
        self._mixed = 2  # calls, from the running one on, whose time says nothing of others

    @override
    def update(self, settings: DraftSettings) -> None:
        """See `TokenIterator`; how much is drafted is not for the settings to say."""
        super().update(settings)
        self._steps.trace = settings.trace

    @override
    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        step: Step | None = self._steps.first(logits, len(self._prompt), self._seen)
        while reply.finish_reason is None and not self._cancel.is_set():
            if step is None and self._auto.wants_round(self._room):
                yield from self._timed_round()
                continue
            step = step or self._begin_again()
            queue = bool(reply.token_ids) and self._room > 0 and not self._wants_to_stop()
            event, following = self._steps.advance(step, queue)
            self._seen = step.seen
            if following is not None and following.held_up:
                self._mixed = 2  # by what was done in this step's time, or is in the next one's
            self._follow(step, following is not None)
            step = following
            yield event

    @property
    def _room(self) -> int:
        """Tokens that may follow the last one and the one being computed."""
        return self._reply.last_index - len(self._reply.token_ids)

    def _wants_to_stop(self) -> bool:
        with self._ledger.stage("plan"):
            return self._auto.wants_to_stop(self._room - 1)

    def _timed_round(self) -> list[TokenEvent]:
        events = self._round()
        self._auto.took_round(*self._lap())
        return events

    def _begin_again(self) -> Step:
        """Return the plain step after a round: nothing was queued for it."""
        reply = self._reply
        self._verifier.catch_up()
        self._mixed = max(self._mixed, 1)
        return self._steps.after(reply.token_ids[-1], len(self._prompt) + len(reply.token_ids) - 1, self._seen)

    def _follow(self, step: Step, queued: bool) -> None:
        """Let the drafter see a plain step that was made; `queued` tells whether the next one is."""
        tokens = self._reply.token_ids
        ms, usual = self._lap()
        if len(tokens) == 1:
            self._auto.begin(tokens[0])
            return
        usual = usual and queued  # one with nothing behind it may have been computed before it was waited for
        self._auto.took_step(ms, usual)
        with self._ledger.stage("follow"):
            self._auto.follow(tokens[-2], tokens[-1], step)
            if usual and self._auto.draft_in_shadow():
                self._mixed = 2  # the host works on it beside the queued call, the device between that and the next

    def _lap(self) -> tuple[float, bool]:
        """Return the milliseconds since it was last asked for, and whether one call alone took them.

        Where exact times are asked for, each stage is waited for: that says nothing of calls that are not.
        """
        now = perf_counter()
        ms, self._marked = (now - self._marked) * 1000, now
        usual = self._mixed == 0 and not self._ledger.exact
        self._mixed = max(self._mixed - 1, 0)
        return ms, usual
