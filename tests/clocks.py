"""Clocks that tests set."""


class ManualClock:
    """Seconds since some moment; goes on when `now` is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
