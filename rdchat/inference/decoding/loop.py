"""The loop that makes every reply (`decode`): a policy decides whether the next target call is a plain step or a round.

A plain step takes one token, and may queue the next step's call before that token is read. A round verifies a draft.
`ReplyIterator` makes the calls. Nothing here depends on MLX.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rdchat.inference.api import AutoChoice


def decode[Event](calls: "Calls[Event]", policy: "Policy") -> Iterator[Event]:
    """Yield the events of a reply.

    The first token comes with the prompt. Then each call is the plain step that is queued, if one is; otherwise the
    round that the policy plans, or a plain step if it plans none. With a plain step the next one may be queued.
    """
    done = calls.first()
    policy.saw(done)
    yield from done.events
    while (room := calls.room) is not None:
        plan = None if done.queued else policy.plan_round(room)
        done = calls.round(plan) if plan else calls.step(queue=policy.wants_queue(room))
        policy.saw(done)
        yield from done.events


class RoundPlan:
    """What a policy plans for a round: its drafter follows it, and `saw` gets it back. This one plans nothing."""


class AlwaysPlain:
    """The policy of the mode `off`: only plain steps, each queued before the token in front of it is read."""

    status: AutoChoice | None = None

    def plan_round(self, _room: int) -> RoundPlan | None:
        return None

    def wants_queue(self, room: int) -> bool:
        return room > 0

    def saw(self, _done: "CallResult[object]") -> None:
        pass


class AlwaysDraft(AlwaysPlain):
    """The policy of a fixed drafter: only rounds."""

    def plan_round(self, _room: int) -> RoundPlan | None:
        return RoundPlan()


class Call(Enum):
    """What a target call was for; the first token comes with the prefill."""

    FIRST, STEP, ROUND = range(3)


@dataclass(frozen=True, slots=True)
class CallResult[Event]:
    """The result of a target call.

    Attributes:
        call: What it was for.
        events: Events of the reply.
        tokens: Tokens that it added.
        ms: Milliseconds since the end of the previous call.
        queued: Whether the next plain step's call was queued after it.
        held_up: Whether that call had to be repeated, because it was queued for the wrong token, or the reply was
            paused.
        usual: Whether its time is typical of its plan.
        ended: Whether the reply ended with it.
        plan: The plan of a round.
    """

    call: Call
    events: Iterable[Event]
    tokens: Sequence[int]
    ms: float
    queued: bool = False
    held_up: bool = False
    usual: bool = True
    ended: bool = False
    plan: RoundPlan | None = None


class Calls[Event](Protocol):
    """Makes the target calls of one reply."""

    @property
    def room(self) -> int | None:
        """Tokens that may follow the last token and the one being computed; None where the reply has ended."""

    def first(self) -> CallResult[Event]:
        """Read the end of the prompt, and take the reply's first token."""

    def step(self, queue: bool) -> CallResult[Event]:
        """Make a plain step; with `queue`, queue the call for its token before waiting for it."""

    def round(self, plan: RoundPlan) -> CallResult[Event]:
        """Make a round: one call with a draft that follows the plan."""


class Policy(Protocol):
    """Decides before each target call what it is for."""

    @property
    def status(self) -> AutoChoice | None:
        """The current action, with its reason if it was a choice."""

    def plan_round(self, room: int, /) -> RoundPlan | None:
        """Return the plan of a round; None where the next call, for which nothing is queued, should be a plain step.

        Args:
            room: Tokens that may be drafted.
        """

    def wants_queue(self, room: int, /) -> bool:
        """Return whether to queue the plain step after the one whose token comes next.

        Args:
            room: Tokens that may follow that token.
        """

    def saw(self, done: CallResult[object], /) -> None:
        """Take the result of each call."""
