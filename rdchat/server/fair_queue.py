"""Lets requests in one at a time, taking turns between clients."""

import asyncio
from collections import deque
from collections.abc import Iterator


class QueueFullError(Exception):
    """As many requests wait as may."""


class FairQueue[T]:
    """The requests that wait for the engine; all on one event loop.

    Clients take turns, and each client's requests come in their order. With `a1 a2 a3 b1` waiting behind a request of
    `a`, the order is `b1 a1 a2 a3`.

    Args:
        most: The most requests that wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lanes: dict[str, deque[tuple[T, asyncio.Future[None]]]] = {}  # by client, the next first
        self._busy = False
        self._last = ""  # the client whose request runs, or was the last to run

    def join(self, client: str, request: T) -> asyncio.Future[None]:
        """Return a future that is done when it is the request's turn; then `leave` must follow, else `give_up`.

        Raises:
            QueueFullError: If too many wait.
        """
        turn = asyncio.get_running_loop().create_future()
        if not self._busy:
            self._busy, self._last = True, client
            turn.set_result(None)
            return turn
        if len(self) >= self._most:
            raise QueueFullError
        self._lanes.setdefault(client, deque()).append((request, turn))
        return turn

    def give_up(self, client: str, turn: asyncio.Future[None]) -> None:
        """Remove a request that does not wait any longer."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.leave()  # its turn came at the same moment
            return
        kept = deque(each for each in self._lanes.pop(client, deque()) if each[1] is not turn)
        if kept:
            self._lanes[client] = kept

    def leave(self) -> None:
        """End a request's turn, and begin the next one's."""
        self._busy = False
        while self._lanes:
            client = next((each for each in self._lanes if each != self._last), self._last)
            lane = self._lanes.pop(client)
            _, turn = lane.popleft()
            if lane:
                self._lanes[client] = lane  # behind the other clients
            if not turn.done():
                self._busy, self._last = True, client
                turn.set_result(None)
                return

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
        last = self._last
        while lanes:
            last = next((each for each in lanes if each != last), last)
            lane = lanes.pop(last)
            yield lane.popleft()[0]
            if lane:
                lanes[last] = lane
