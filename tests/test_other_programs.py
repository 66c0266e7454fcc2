"""The load of other programs is measured over at least half a second."""

import pytest

from rdchat import machine
from rdchat.machine import OtherPrograms

CORES = 4


class FakeTime:
    """A clock that sleeping moves, and processor time that others take of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.others = 100.0, 7000.0
        monkeypatch.setattr(machine, "perf_counter", lambda: self.now)
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
    assert others.are_busy is busy
    time.go_on(2.0, 0.0)
    assert not others.are_busy, "only what came since counts"


def test_a_moment_is_too_short_to_judge_by(time: FakeTime) -> None:
    others = OtherPrograms()
    time.go_on(0.4, 1.0)
    assert not others.are_busy
    time.go_on(0.2, 1.0)
    assert others.are_busy, "together it is long enough"
    time.go_on(0.3, 0.0)
    assert others.are_busy, "as the last time"


def test_the_share_of_a_reply_is_that_of_all_its_time(time: FakeTime) -> None:
    others = OtherPrograms()
    assert others.share(now=True) == 0, "no time has passed"
    time.go_on(1.0, 0.8)
    assert others.share() == pytest.approx(0.8)
    time.go_on(0.3, 0.0)
    assert others.share() == pytest.approx(0.8), "as at the last look"
    time.go_on(0.7, 0.0)
    assert others.share(now=True) == pytest.approx(0.4)
    time.others -= 1000
    assert others.share(now=True) == 0, "counters of the system may go back"
