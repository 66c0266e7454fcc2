"""Turns disturbed by other programs are repeated, and used only if there is nothing better."""

import pytest

from rdchat.inference.auto import measuring
from rdchat.inference.auto.measuring import Measured, Measurement

KEY = (1, 128)


class Others:
    """Stands in for `OtherPrograms`: what it is told each time it is asked, and then the last of that."""

    def __init__(self, *busy: bool) -> None:
        self._busy = list(busy)

    @property
    def are_busy(self) -> bool:
        return self._busy.pop(0) if len(self._busy) > 1 else self._busy[0]


def result(measurement: Measurement) -> Measured:
    while True:
        try:
            next(measurement)
        except StopIteration as end:
            return end.value


def in_turns(times: list[float], others: Others) -> tuple[Measured, int]:
    """Measure one work that takes these times; return what came, and how many turns there were."""
    left = list(times)
    measured = result(measuring._in_turns({KEY: lambda: left.pop(0)}, others))  # type: ignore[arg-type]
    return measured, len(times) - len(left)


def test_the_first_turn_does_not_count_and_the_shortest_of_three_does() -> None:
    assert in_turns([1.0, 5.0, 4.0, 6.0, 2.0], Others(False)) == (Measured({KEY: 4.0}, quiet=True), 4)


def test_a_turn_that_others_disturbed_is_done_again_and_its_times_are_dropped() -> None:
    """A time that is too short cannot come of it, but the turn's other calls may have been held up."""
    others = Others(True, False, False, False)  # asked behind each turn but the first
    assert in_turns([1.0, 3.0, 5.0, 6.0, 7.0, 2.0], others) == (Measured({KEY: 5.0}, quiet=True), 5)


def test_a_machine_that_is_never_quiet_is_measured_as_it_is_which_does_not_count_for_good() -> None:
    others = Others(True)
    assert in_turns([1.0, 5.0, 4.0, 6.0, 2.0], others) == (Measured({KEY: 4.0}, quiet=False), 4)


@pytest.mark.parametrize(("seconds", "turns"), [(15.0, 4), (20.0, 3), (30.0, 2), (500.0, 2)])
def test_no_turn_is_begun_that_would_end_beyond_a_minute_but_one_that_counts(seconds: float, turns: int) -> None:
    assert in_turns([seconds * 1000] * 5, Others(False)) == (Measured({KEY: seconds * 1000}, quiet=True), turns)
