"""The automatic mode's loop: plain steps and rounds as the controller decides, in real decoding as in simulations."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.auto.controller import Controller

_HELD_UP = 2  # calls, from the running one on, whose time says nothing of others once one of them was held up


@dataclass(frozen=True, slots=True)
class Done[Event]:
    """A target call that was made.

    Attributes:
        events: The reply's events that it brought.
        tokens: The tokens that it brought.
        ms: Time since the call before ended.
        queued: Whether the next plain step's call was queued behind it.
        held_up: Whether that call had to be made anew, for another token than the one it was queued for.
        usual: Whether it did only what its plan says.
    """

    events: Iterable[Event]
    tokens: Sequence[int]
    ms: float
    queued: bool = False
    held_up: bool = False
    usual: bool = True


class Work[Event](Protocol):
    """Carries decisions out."""

    @property
    def room(self) -> int | None:
        """Tokens that may follow the last one and the one being computed; None where the reply has ended."""

    @property
    def exact(self) -> bool:
        """Whether each stage is waited for, so that times say nothing of calls that are not."""

    def stage(self, name: str) -> AbstractContextManager[object]:
        """Return what takes the time of the controller's own work."""

    def step(self, queue: bool) -> Done[Event]:
        """Make a plain step; `queue` the call for its token before it is waited for."""

    def round(self) -> Done[Event]:
        """Make a round by the controller's plan."""


def decode[Event](work: Work[Event], controller: Controller) -> Iterator[Event]:
    """Yield the events of a reply, its first token's among them: that one comes with the prefill."""
    first = work.step(queue=False)
    controller.begin(first.tokens[0])
    yield from first.events
    queued, unusual = False, _HELD_UP - 1
    while (room := work.room) is not None:
        if not queued and controller.wants_round(room):
            done = work.round()
            with work.stage("follow"):
                usual = done.usual and not unusual and not work.exact
                controller.took_round(done.tokens, done.ms, usual, ended=work.room is None)
            unusual = max(unusual - 1, 0)
            yield from done.events
            continue
        if not queued:
            unusual = max(unusual, 1)
        with work.stage("plan"):
            queue = room > 0 and not controller.wants_to_stop(room - 1)
        step = work.step(queue)
        if step.held_up:
            unusual = _HELD_UP
        # one with nothing behind it may have been computed before it was waited for
        usual, queued = step.queued and not unusual and not work.exact, step.queued
        unusual = max(unusual - 1, 0)
        with work.stage("follow"):
            controller.took_step(step.tokens[0], step.ms, usual)
        yield from step.events
