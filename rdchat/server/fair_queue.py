"""Lets requests in one at a time, taking turns between clients."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping


class QueueFullError(Exception):
    """As many requests wait as may."""


class FairQueue[T]:
    """The requests that wait for the engine; all on one event loop.

    The client whose last turn is the longest ago is next; each keeps the order of its requests. With `a1 a2 b1 c1`
    waiting behind a request of `a`, the order is `b1 c1 a1 a2`.

    Args:
        most: The most requests that wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Waiting items by client, the next first.
        self._lanes: dict[str, deque[tuple[T, asyncio.Future[None]]]] = {}
        self._busy = False
        self._turns = 0
        # Number of each client's last turn; forgotten once no client waits.
        self._served: dict[str, int] = {}

    def join(self, client: str, request: T) -> asyncio.Future[None]:
        """Return a future that is done when it is the request's turn; then `leave` must follow, else `give_up`.

        Raises:
            QueueFullError: If too many wait.
        """
        turn = asyncio.get_running_loop().create_future()
        if not self._busy:
            self._begin(client)
            turn.set_result(None)
            return turn
        if len(self) >= self._most:
            raise QueueFullError
        self._lanes.setdefault(client, deque()).append((request, turn))
        return turn

    def give_up(self, client: str, turn: asyncio.Future[None]) -> None:
        """Remove a request that does not wait any longer."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            # The turn came at the same moment.
            self.leave()
            return
        kept = deque(each for each in self._lanes.pop(client, deque()) if each[1] is not turn)
        if kept:
            self._lanes[client] = kept

    def leave(self) -> None:
        """End a request's turn, and begin the next one's."""
        self._busy = False
        while self._lanes:
            client = _next(self._lanes, self._served)
            _, turn = self._lanes[client].popleft()
            if not self._lanes[client]:
                del self._lanes[client]
            if not turn.done():
                self._begin(client)
                turn.set_result(None)
                return
        self._served.clear()

    def _begin(self, client: str) -> None:
        self._busy = True
        self._turns += 1
        self._served[client] = self._turns

    def fail(self, request: T, error: Exception) -> bool:
        """End the wait of a request with an error; False if it does not wait."""
        for lane in self._lanes.values():
            for waiting, turn in lane:
                if waiting is request and not turn.done():
                    turn.set_exception(error)
                    return True
        return False

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[T]:
        """Yield the waiting requests in the order of their turns."""
        lanes = {client: deque(lane) for client, lane in self._lanes.items()}
        served, turns = dict(self._served), self._turns
        while lanes:
            client = _next(lanes, served)
            yield lanes[client].popleft()[0]
            if not lanes[client]:
                del lanes[client]
            turns += 1
            served[client] = turns


def _next(clients: Iterable[str], served: Mapping[str, int]) -> str:
    """Return the client whose last turn is the longest ago."""
    return min(clients, key=lambda client: served.get(client, 0))
