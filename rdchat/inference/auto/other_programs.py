"""Whether other programs take the machine while it is measured."""

from collections.abc import Iterator
from time import perf_counter, sleep

from rdchat import machine

_MOST = 0.15  # of all processors; a desktop at rest has some 5 %
_LEAST_S = 0.5  # over which use is looked at: processor times are counted in steps of 10 ms
_RESTS_S = (2.0, 4.0, 8.0, 16.0)  # for which others are waited for
_NAP_S = 0.1  # at a time: a prompt may come


class OtherPrograms:
    """Watches what share of the processors other programs take, and waits for a quieter moment, but not for ever."""

    def __init__(self) -> None:
        self._at, self._seconds = perf_counter(), machine.others_seconds()
        self._busy = False
        self._rests = list(_RESTS_S)

    @property
    def busy(self) -> bool:
        """Whether they took much since this was last asked for; as the last time where that was just now."""
        took_s = perf_counter() - self._at
        if took_s >= _LEAST_S:
            seconds = machine.others_seconds()
            self._busy = (seconds - self._seconds) / (took_s * machine.processors()) > _MOST
            self._at, self._seconds = self._at + took_s, seconds
        return self._busy

    @property
    def may_rest(self) -> bool:
        """Whether they may still be waited for."""
        return bool(self._rests)

    def rest(self) -> Iterator[None]:
        """Do nothing for a while, in naps; each rest is twice as long as the one before."""
        if not self._rests:
            return
        until = perf_counter() + self._rests.pop(0)
        while (left := until - perf_counter()) > 0:
            sleep(min(left, _NAP_S))
            yield
