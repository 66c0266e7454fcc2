"""Searches the conversations on a thread; a new search cancels the previous one."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.storage.search import MessageMatches, SearchAnswer, SearchQuery, SearchReader
from rdchat.errors import RdchatError, StorageError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.work.job import Job


class ChatSearch(QObject):
    """Lives on the main thread; the search thread starts with the first search.

    Args:
        path: The database of the store that is open.
        parent: The Qt parent.

    Attributes:
        models: Names of the models that wrote replies, after `look_for_models`.
    """

    answered = Signal(SearchAnswer)
    messages_matched = Signal(MessageMatches)
    models_listed = Signal()
    # Why a search was not answered.
    failed = Signal(str)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._reader = SearchReader(path)
        self._work = BackgroundWork("chat search", self)
        # The newest of each kind.
        self._jobs: dict[str, Job[Any]] = {}
        self.models: tuple[str, ...] = ()

    def ask(self, query: SearchQuery) -> None:
        """Search all conversations; `answered` follows."""
        self._ask("chats", partial(self._reader.search, query), self.answered.emit)

    def find_in(self, conversation_id: int, text: str) -> None:
        """Search the messages of one conversation; `messages_matched` follows."""
        self._ask("messages", partial(self._reader.messages_with, conversation_id, text), self.messages_matched.emit)

    def look_for_models(self) -> None:
        """Find the models that wrote replies; `models_listed` follows."""
        self._ask("models", self._reader.models, self._take_models)

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread."""
        for job in self._jobs.values():
            job.forget()
        self._work.close(timeout_s)

    def _ask(self, kind: str, search: Callable[[], object], then: Callable[[Any], object]) -> None:
        if kind in self._jobs:
            self._jobs[kind].forget()

        def end(result: Any) -> None:
            self.failed.emit(result.message) if isinstance(result, RdchatError) else then(result)

        self._jobs[kind] = self._work.run(partial(_result, self._reader, search), end)

    def _take_models(self, models: tuple[str, ...]) -> None:
        self.models = models
        self.models_listed.emit()


def _result(reader: SearchReader, search: Callable[[], object], job: Job[Any]) -> object:
    """Search on the thread; cancelling the job interrupts SQLite."""

    def interrupt() -> None:
        with suppress(sqlite3.ProgrammingError):  # It has just ended.
            reader.interrupt()

    job.when_cancelled(interrupt)
    try:
        return search()
    except sqlite3.Error as error:
        job.check()
        raise StorageError(str(error)) from error
    finally:
        job.when_cancelled(lambda: None)
