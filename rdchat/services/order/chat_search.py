"""Searching the conversations on a thread of its own: the newest search is answered, older ones are given up."""

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.chat.storage.search_reader import FoundMessages, SearchAnswer, SearchQuery, SearchReader

_LOG = logging.getLogger(__name__)
_CHATS, _MESSAGES, _MODELS = "chats", "messages", "models"


class ChatSearch(QObject):
    """Lives on the main thread; its thread begins with the first search.

    Args:
        path: The database of the store that is open.
        parent: The Qt parent.

    Attributes:
        models: Names of the models that wrote replies, as far as they were looked for.
    """

    answered = Signal(SearchAnswer)
    messages_found = Signal(FoundMessages)
    models_found = Signal()
    failed = Signal(str)  # why a search was not answered
    _told = Signal(str, object)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._reader = SearchReader(path)
        self._waits = threading.Condition()
        self._asked: dict[str, Callable[[], object]] = {}  # what is to be looked for, at most once of each kind
        self._running = ""  # of what kind it is
        self._closed = False
        self._thread: threading.Thread | None = None
        self.models: tuple[str, ...] = ()
        self._told.connect(self._on_told, Qt.ConnectionType.QueuedConnection)

    def ask(self, query: SearchQuery) -> None:
        """Search all conversations in place of what is being looked for; `answered` tells."""
        self._ask(_CHATS, partial(self._reader.search, query))

    def find_in(self, conversation_id: int, words: str) -> None:
        """Search the messages of one conversation; `messages_found` tells."""
        self._ask(_MESSAGES, partial(self._reader.messages_with, conversation_id, words))

    def look_for_models(self) -> None:
        """Look which models wrote replies; `models_found` tells."""
        self._ask(_MODELS, self._reader.models)

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread."""
        with self._waits:
            self._closed = True
            self._asked.clear()
            self._waits.notify()
        self._interrupt()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _ask(self, kind: str, look: Callable[[], object]) -> None:
        with self._waits:
            if self._closed:
                return
            self._asked[kind] = look
            superseded = self._running == kind
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="chat search", daemon=True)
                self._thread.start()
            self._waits.notify()
        if superseded:
            self._interrupt()

    def _interrupt(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it has just ended
            self._reader.interrupt()

    def _run(self) -> None:
        while True:
            with self._waits:
                self._running = ""
                self._waits.wait_for(lambda: self._closed or self._asked)
                if self._closed:
                    return
                kind = next(iter(self._asked))
                look, self._running = self._asked.pop(kind), kind
            found: object
            try:
                found = look()
            except sqlite3.Error as error:
                with self._waits:
                    given_up = self._closed or kind in self._asked
                if given_up:
                    continue
                _LOG.warning("Searching failed: %s", error)
                found = error
            with suppress(RuntimeError):  # the app has ended meanwhile
                self._told.emit(kind, found)

    @Slot(str, object)
    def _on_told(self, kind: str, found: object) -> None:
        if self._closed:
            return
        if isinstance(found, sqlite3.Error):
            self.failed.emit(str(found))
        elif isinstance(found, SearchAnswer):
            self.answered.emit(found)
        elif isinstance(found, FoundMessages):
            self.messages_found.emit(found)
        elif kind == _MODELS and isinstance(found, tuple):
            self.models = found
            self.models_found.emit()
