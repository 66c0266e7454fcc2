"""Counts the tokens that the open chat takes of the model's context, with what is typed."""

import time
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.file_texts import FileTexts
from rdchat.errors import PromptTooLongError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.work.job import Job

_QUIET_MS = 250  # after the last letter
_SHARE = 4  # counting takes about one part in so many of the time
_CLOSING_S = 0.2  # a count that goes on in the tokenizer's process is not waited for
_MOST_QUIET_MS = 2000  # a shorter text must not be called too long for longer


@dataclass(frozen=True, slots=True)
class ContextUse:
    """A count of tokens."""

    tokens: int | None  # of the chat with what is typed, open for a reply; None where they are far beyond the context
    limit: int  # the model's context
    typed: str
    last_id: int | None  # the message that the chat ended with; None for a new chat

    @property
    def fits(self) -> bool:
        """Whether the model takes it, with one token of a reply at least."""
        return self.tokens is not None and self.tokens < self.limit


class ContextMeter(QObject):
    """Counts by the model's own tokenizer on a thread, a moment after the last change; beside a reply as well.

    Args:
        chat: Is counted.
        engine: Counts.
        model: Tells which model is loaded.
        texts: Of the files in the chat.
        parent: The Qt parent.
    """

    changed = Signal()

    def __init__(
        self, chat: OpenChat, engine: EngineClient, model: ModelSlot, texts: FileTexts, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._chat, self._engine, self._model, self._texts = chat, engine, model, texts
        self.use: ContextUse | None = None  # the last count; None without a model, and for what its template refuses
        self._version = self._counted_version = 0  # of the chat: now, and in `use`
        self._stale = False  # something changed while it was counted
        self._closed = False
        self._task = BackgroundWork("tokens", self)
        self._timer = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._timer.timeout.connect(self._count)
        for changed in (chat.path_changed, chat.message_added, chat.message_changed, chat.options_changed):
            changed.connect(self.refresh)
        chat.files.changed.connect(self.refresh)
        chat.typed_changed.connect(self._wait)
        for another in (chat.opened, model.load_started, model.unload_started, model.loaded):
            another.connect(self._begin_anew)

    @property
    def current(self) -> bool:
        """Whether `use` is a count of the chat as it is now, if perhaps not of what is typed now."""
        return self._counted_version == self._version

    def close(self) -> None:
        """Count no more."""
        self._closed = True
        self._timer.stop()
        self._task.close(_CLOSING_S)

    @Slot()
    def refresh(self) -> None:
        """Count again soon: the chat, its options or the model has changed."""
        self._version += 1
        self._wait()

    @Slot()
    def _begin_anew(self) -> None:
        """Forget the last count: it was of another chat or another model."""
        self._task.forget()
        self._stale = False
        self._show(None)
        self._timer.setInterval(_QUIET_MS)
        self.refresh()

    @Slot()
    def _wait(self) -> None:
        if not self._closed:
            self._timer.start()

    @Slot()
    def _count(self) -> None:
        info = self._model.info
        if self._task.busy:
            self._stale = True
            return
        if info is None:
            return
        prompt, engine, texts = self._chat.prompt(), self._engine, self._texts
        path, typed, limit = self._chat.path, self._chat.typed.strip(), info.context_length
        last_id = path.ids[-1] if path else None
        version, began = self._version, time.monotonic()

        def count(job: Job[ContextUse]) -> ContextUse:
            try:
                tokens = engine.count_tokens(prompt.with_files(texts, job.check).turns(job.check))
            except PromptTooLongError:
                return ContextUse(None, limit, typed, last_id)
            return ContextUse(tokens, limit, typed, last_id)

        def take(use: ContextUse) -> None:
            self._counted_version = version
            self._take(use, began)

        # what is wrong with a template is told by the reply that fails of it
        self._task.replace(count, take, failed=lambda _error: self._take(None, began))

    def _take(self, use: ContextUse | None, began: float) -> None:
        self._show(use)
        took_ms = (time.monotonic() - began) * 1000
        self._timer.setInterval(max(_QUIET_MS, min(round(took_ms * (_SHARE - 1)), _MOST_QUIET_MS)))
        if self._stale:
            self._stale = False
            self._wait()

    def _show(self, use: ContextUse | None) -> None:
        if use != self.use:
            self.use = use
            self.changed.emit()
