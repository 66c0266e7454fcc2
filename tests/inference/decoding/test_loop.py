"""The loop of every reply: what it asks its policy, and what it does with the answers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

from hypothesis import given, settings, strategies as st

from rdchat.inference.decoding.loop import AlwaysDraft, AlwaysPlain, Call, CallResult, RoundPlan, decode


class ScriptedCalls:
    """Calls of a reply of so many tokens, whose rounds add as many as `rounds` says; keeps a list of the calls.

    Args:
        tokens: Length of the reply.
        rounds: Tokens of each round.
        refused: Whether each call that should be queued is not, as where the next token has a mask.
    """

    def __init__(self, tokens: int, rounds: Iterator[int], refused: Iterator[bool]) -> None:
        self._left = tokens - 1
        self._rounds = rounds
        self._refused = refused
        self.cancelled = False
        self._queued = False
        self.made = list[tuple[Call, bool]]()

    @property
    def room(self) -> int | None:
        return None if self.cancelled or self._left < 0 else self._left

    def first(self) -> CallResult[int]:
        return self._result(Call.FIRST, 1)

    def step(self, queue: bool) -> CallResult[int]:
        self._queued = queue and not next(self._refused)
        return self._result(Call.STEP, 1)

    def round(self, plan: RoundPlan) -> CallResult[int]:
        assert not self._queued, "the token of a queued step would be computed twice"
        return replace(self._result(Call.ROUND, min(next(self._rounds), self._left + 1)), plan=plan)

    def _result(self, call: Call, tokens: int) -> CallResult[int]:
        self._left -= tokens
        self.made.append((call, self._queued))
        texts = [len(self.made)] * tokens
        return CallResult(call, texts, texts, 1.0, queued=self._queued, ended=self.room is None)


class RandomPolicy(AlwaysPlain):
    """Answers at random, and keeps what it saw."""

    def __init__(self, answers: Iterator[bool]) -> None:
        self._answers = answers
        self.seen = list[CallResult[object]]()
        self.planned = list[RoundPlan]()

    def plan_round(self, _room: int) -> RoundPlan | None:
        if not next(self._answers):
            return None
        self.planned.append(RoundPlan())
        return self.planned[-1]

    def wants_queue(self, room: int) -> bool:
        return room > 0 and next(self._answers)

    def saw(self, done: CallResult[object]) -> None:
        self.seen.append(done)


def calls_of(tokens: int, rounds: list[int], refused: list[bool]) -> ScriptedCalls:
    return ScriptedCalls(tokens, cycle(rounds), cycle(refused))


some_examples = settings(max_examples=40)
REPLIES = st.builds(
    calls_of,
    st.integers(1, 30),
    st.lists(st.integers(1, 5), min_size=1, max_size=9),
    st.lists(st.booleans(), min_size=1, max_size=9),
)


@some_examples
@given(calls=REPLIES, answers=st.lists(st.booleans(), min_size=1, max_size=20))
def test_every_call_is_seen_and_no_round_follows_a_queued_step(calls: ScriptedCalls, answers: list[bool]) -> None:
    tokens = (calls.room or 0) + 1
    policy = RandomPolicy(cycle(answers))
    events = list(decode(calls, policy))
    assert len(events) == tokens
    assert events == [event for done in policy.seen for event in done.events]
    assert [done.call for done in policy.seen] == [call for call, _ in calls.made]
    assert [done.plan for done in policy.seen if done.call is Call.ROUND] == policy.planned
    assert [done.ended for done in policy.seen] == [False] * (len(policy.seen) - 1) + [True]
    assert calls.made[0] == (Call.FIRST, False), "on a CPU a read waits for all that is queued"


@some_examples
@given(calls=st.builds(calls_of, st.integers(1, 30), st.just([1]), st.just([False])))
def test_plain_decoding_makes_no_round_and_queues_all_but_the_last_step(calls: ScriptedCalls) -> None:
    tokens = len(list(decode(calls, AlwaysPlain())))
    assert calls.made == [(Call.FIRST, False), *[(Call.STEP, True)] * (tokens - 2), (Call.STEP, False)][:tokens]


@some_examples
@given(calls=REPLIES)
def test_a_fixed_drafter_makes_only_rounds(calls: ScriptedCalls) -> None:
    list(decode(calls, AlwaysDraft()))
    assert {call for call, _ in calls.made[1:]} <= {Call.ROUND}


def test_a_reply_that_is_cancelled_between_two_events_makes_no_further_call() -> None:
    calls = calls_of(9, [2], [False])
    for _ in decode(calls, AlwaysDraft()):
        calls.cancelled = True
    assert len(calls.made) == 1
