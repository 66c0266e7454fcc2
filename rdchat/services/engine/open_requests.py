"""Which requests run and which of them were stopped: beside `Outbox` the only state that both threads touch."""

import threading
from typing import Protocol

from rdchat.inference.api.requests import DraftSettings


class Cancellable(Protocol):
    """What writes a reply or runs a benchmark."""

    def cancel(self) -> None:
        """Ask for an early end, from any thread."""


class OpenRequests:
    """Lets the main thread stop a reply at any point of its life: waiting, about to start, or being written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped: dict[int, bool] = {}  # every open reply; True once it was stopped
        self._running: tuple[int, Cancellable] | None = None
        self._updates: dict[int, DraftSettings] = {}  # what a running reply is to be drafted by from now on
        self._load_id = 0

    def add(self, request_id: int) -> None:
        """Note a reply that was asked for."""
        with self._lock:
            self._stopped[request_id] = False

    def remove(self, request_id: int) -> None:
        """Forget a reply that ended, however it did."""
        with self._lock:
            self._stopped.pop(request_id, None)
            self._updates.pop(request_id, None)
            if self._running and self._running[0] == request_id:
                self._running = None

    def attach(self, request_id: int, iterator: Cancellable) -> None:
        """Note what carries out a request; one that was stopped in the meantime is cancelled here."""
        with self._lock:
            self._running = (request_id, iterator)
            if self._stopped.get(request_id):
                iterator.cancel()

    def stop(self, request_id: int) -> None:
        """Stop one reply; one that has ended already is left alone."""
        with self._lock:
            self._stop(request_id)

    def stop_all(self) -> None:
        with self._lock:
            for request_id in self._stopped:
                self._stop(request_id)

    def _stop(self, request_id: int) -> None:
        if request_id in self._stopped:
            self._stopped[request_id] = True
            if self._running and self._running[0] == request_id:
                self._running[1].cancel()

    def update(self, request_id: int, settings: DraftSettings) -> None:
        """Have a reply drafted by other settings; one that has ended is left alone."""
        with self._lock:
            if request_id in self._stopped:
                self._updates[request_id] = settings

    def take_update(self, request_id: int) -> DraftSettings | None:
        """Return the settings that were asked for since the last call, once."""
        with self._lock:
            return self._updates.pop(request_id, None)

    def is_stopped(self, request_id: int) -> bool:
        with self._lock:
            return self._stopped.get(request_id, False)

    def ids(self) -> list[int]:
        """Return the open replies, oldest first."""
        with self._lock:
            return list(self._stopped)

    def begin_load(self) -> int:
        """Return the id of a new load; every older one is superseded."""
        with self._lock:
            self._load_id += 1
            return self._load_id

    def is_latest_load(self, load_id: int) -> bool:
        with self._lock:
            return load_id == self._load_id
