"""What others do is looked at over half a second at least, and waited for in rests that grow, but not for ever."""

import pytest

from rdchat import machine
from rdchat.inference.auto import measuring
from rdchat.inference.auto.measuring import OtherPrograms

CORES = 4


class FakeTime:
    """A clock that sleeping moves, and processor time that others take of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.others = 100.0, 7000.0
        monkeypatch.setattr(measuring, "perf_counter", lambda: self.now)
        monkeypatch.setattr(measuring, "sleep", lambda seconds: self.go_on(seconds, 0.0))
        monkeypatch.setattr(machine, "others_seconds", lambda: self.others)
        monkeypatch.setattr(machine, "processors", lambda: CORES)

    def go_on(self, seconds: float, share: float) -> None:
        self.now += seconds
        self.others += share * seconds * CORES


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.mark.parametrize(("share", "busy"), [(0.0, False), (0.1, False), (0.2, True), (1.0, True)])
def test_others_are_busy_where_they_take_much_of_all_processors(time: FakeTime, share: float, busy: bool) -> None:
    others = OtherPrograms()
    time.go_on(2.0, share)
    assert others.busy is busy
    time.go_on(2.0, 0.0)
    assert not others.busy, "only what came since counts"


def test_a_moment_is_too_short_to_judge_by(time: FakeTime) -> None:
    others = OtherPrograms()
    time.go_on(0.4, 1.0)
    assert not others.busy
    time.go_on(0.2, 1.0)
    assert others.busy, "together it is long enough"
    time.go_on(0.3, 0.0)
    assert others.busy, "as the last time"


def test_rests_are_naps_that_grow_and_come_to_an_end(time: FakeTime) -> None:
    others, slept = OtherPrograms(), []
    while others.may_rest:
        began, last = time.now, time.now
        for _ in others.rest():
            assert time.now - last < 0.15, "a prompt may come"
            last = time.now
        slept.append(round(time.now - began, 6))
    assert slept == [2, 4, 8, 16]
    assert list(others.rest()) == []
