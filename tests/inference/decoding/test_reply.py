"""The counters of a reply: one baseline, and its speed over time."""

from dataclasses import replace

import pytest

import rdchat.inference.decoding.reply as reply_module
from rdchat.inference.decoding.reply import Reply, ReplyJob
from tests.inference.fakes import ask, tiny_llama

_SECOND = 1_000_000_000


class Ticks:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = _SECOND
        monkeypatch.setattr(reply_module, "perf_counter_ns", lambda: self.now)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(monkeypatch)


def _reply(*plain_ms: float) -> Reply:
    baselines = iter(plain_ms)
    job = ReplyJob.fresh(tiny_llama(), [1, 2], ask(max_tokens=200))
    return Reply(replace(job, plain_ms=lambda _depth: next(baselines, 9.0), plain_error=lambda: 0.1))


def test_a_settled_reply_keeps_its_baseline(ticks: Ticks) -> None:
    """It fell from 18.6 to 9.6 tokens/s within one reply."""
    reply = _reply(50.0, 60.0, 70.0, 60.0, 60.0, 60.0, 30.0)
    seen = []
    for _ in range(32):
        ticks.now += _SECOND // 50
        reply.add_token(3)
        if len(reply.token_ids) in (1, 29, 30, 31, 32):
            seen.append(reply.statistics().plain_step_ms)
    assert seen == [50.0, 60.0, 60.0, 60.0, 60.0]
    assert reply.statistics().plain_error == pytest.approx(0.1)
    assert reply.statistics().plain_error == pytest.approx(1.2), "steps are twice as quick by now"


def test_a_baseline_that_becomes_known_late_is_taken(ticks: Ticks) -> None:
    reply = _reply(0.0, 40.0, 41.0)
    for _ in range(40):
        reply.add_token(3)
    assert [reply.statistics().plain_step_ms for _ in range(3)] == [0.0, 40.0, 40.0]


def test_speeds_are_those_of_the_moment_not_means(ticks: Ticks) -> None:
    reply = _reply()
    for milliseconds in (0, 125, 125, 250, 100):
        ticks.now += milliseconds * 1_000_000
        reply.add_token(3)
    assert reply.statistics().speeds == pytest.approx((8.0, 4.0))


def test_the_newest_speeds_are_kept(ticks: Ticks) -> None:
    reply = _reply()
    for number in range(150):
        ticks.now += _SECOND if number < 149 else _SECOND // 2
        reply.add_token(3)
    speeds = reply.statistics().speeds
    assert (len(speeds), speeds[-1], speeds[-2]) == (120, 2.0, 1.0)
