"""The automatic mode's loop: plain steps and rounds as the controller decides, in real decoding as in simulations."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.auto.controller import Controller

_HELD_UP = 2  # calls, from the running one on, whose time says nothing of others once one of them was held up


@dataclass(frozen=True, slots=True)
class StepDone[Event]:
    """A plain step.

    Attributes:
        event: What to tell of it.
        token: That it brought.
        ms: Since the call before ended.
        queued: Whether the next one's call was queued behind it.
        held_up: Whether that call had to be made anew, for another token than the one it was queued for.
    """

    event: Event
    token: int
    ms: float
    queued: bool
    held_up: bool = False


@dataclass(frozen=True, slots=True)
class RoundDone[Event]:
    """A round: its events, the tokens that it added, how many drafted ones were accepted, and the time it took."""

    events: Iterable[Event]
    tokens: list[int]
    accepted: int
    ms: float


class Work[Event](Protocol):
    """What carries decisions out."""

    @property
    def room(self) -> int | None:
        """Tokens that may follow the last one and the one being computed; None where the reply has ended."""

    @property
    def exact(self) -> bool:
        """Whether each stage is waited for, so that times say nothing of calls that are not."""

    def stage(self, name: str) -> AbstractContextManager[object]:
        """Return what takes the time of the controller's own work."""

    def step(self, queue: bool) -> StepDone[Event]:
        """Make a plain step; `queue` the call for its token before it is waited for."""

    def round(self) -> RoundDone[Event]:
        """Make a round by the controller's plan."""

    def draft_off_path(self, width: int, length: int) -> None:
        """Draft below the last token and hand the draft to `Controller.compare`; nothing need be waited for."""


def decode[Event](work: Work[Event], controller: Controller) -> Iterator[Event]:
    """Yield the events of a reply, its first token's among them: that one comes with the prefill."""
    first = work.step(queue=False)
    controller.begin(first.token)
    yield first.event
    queued, unusual = False, _HELD_UP - 1
    while (room := work.room) is not None:
        if not queued and controller.wants_round(room):
            done = work.round()
            with work.stage("follow"):
                controller.took_round(done.tokens, done.accepted, done.ms, usual=not unusual and not work.exact)
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
            controller.took_step(step.token, step.ms, usual)
            if usual and (shape := controller.off_path()):
                work.draft_off_path(*shape)
                unusual = _HELD_UP  # the host works on it beside the queued call, the device between it and the next
        yield step.event
