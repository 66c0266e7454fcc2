"""How much of the model's context the open chat would take with what is typed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.attachments.file_texts import FileTexts
from rdchat.chat.conversation import Message
from rdchat.chat.message_path import from_cut
from rdchat.errors import PromptTooLongError, RdchatError
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.requests import SamplingParams
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.chat_history import told
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.work.job import Job

_QUIET_MS = 250  # after the last letter
_SHARE = 4  # counting takes about one part in so many of the time
_CLOSING_S = 0.2  # a count that goes on in the tokenizer's process is not waited for
_MOST_QUIET_MS = 2000  # what was removed must not be called too long for longer


@dataclass(frozen=True, slots=True)
class OpenPath:
    """What the model would be told of the open chat.

    Attributes:
        messages: From the root on.
        system_prompt: May be empty.
        sampling: How the reply would be sampled.
        files: Those of the message that is typed, as they will stand before it; empty for none.
    """

    messages: Sequence[Message]
    system_prompt: str
    sampling: SamplingParams
    files: str = ""

    def asked(self, typed: str) -> str:
        """Return what would be asked with `typed` in the composer; empty for nothing."""
        return "\n\n".join(each for each in (self.files, typed) if each)


@dataclass(frozen=True, slots=True)
class ContextUse:
    """A count of tokens.

    Attributes:
        tokens: Of the chat with what is typed, open for a reply; None where they are far more than the context.
        limit: The model's context.
        typed: What was typed.
        last_id: The message that the chat ended with; None for a new chat.
    """

    tokens: int | None
    limit: int
    typed: str
    last_id: int | None

    @property
    def fits(self) -> bool:
        """Whether the model takes it, with one token of a reply at least."""
        return self.tokens is not None and self.tokens < self.limit


class ContextMeter(QObject):
    """Counts by the model's own tokenizer on a thread, a moment after the last change; beside a reply as well.

    Args:
        engine: Counts.
        model: Tells which model is loaded.
        open_path: Returns what would be told of the open chat; called on the main thread.
        texts: Of the files in it.
        parent: The Qt parent.

    Attributes:
        open_path: As given.
    """

    changed = Signal()

    def __init__(
        self,
        engine: EngineClient,
        model: ModelSlot,
        open_path: Callable[[], OpenPath],
        texts: FileTexts,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine, self._model, self.open_path, self._texts = engine, model, open_path, texts
        self._typed = ""
        self._use: ContextUse | None = None
        self._counted: ModelInfo | None = None  # whose tokenizer counts now; None where it is for another chat
        self._stale = False  # something changed while it was counted
        self._began, self._closed = 0.0, False
        self._changes = self._seen = self._told = 0  # changes: all, up to the count under way, up to `use`
        self._task = BackgroundWork("tokens", self)
        self._timer = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._timer.timeout.connect(self._count)
        model.load_started.connect(self._forget)
        model.unload_started.connect(self._forget)
        model.loaded.connect(self.refresh)

    @property
    def use(self) -> ContextUse | None:
        """The last count; None without a model, and for what its template refuses."""
        return self._use

    @property
    def current(self) -> bool:
        """Whether `use` is a count of the chat as it is now, if perhaps not of what is typed now."""
        return self._told == self._changes

    @property
    def typed(self) -> str:
        """What is in the composer."""
        return self._typed

    def set_typed(self, text: str) -> None:
        """Count with another text in the composer."""
        if text.strip() != self._typed:
            self._typed = text.strip()
            self._wait()

    @Slot()
    def begin_anew(self) -> None:
        """Another chat was opened: what was counted of the last one says nothing of it."""
        self._counted = None
        self._show(None)
        self._timer.setInterval(_QUIET_MS)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Count anew soon: the chat, its options or the model is another."""
        self._changes += 1
        self._wait()

    def _wait(self) -> None:
        if not self._closed:
            self._timer.start()

    def close(self) -> None:
        """Count no more."""
        self._closed = True
        self._timer.stop()
        self._task.close(_CLOSING_S)

    @Slot()
    def _forget(self) -> None:
        self._task.forget()
        self._stale = False
        self._show(None)

    @Slot()
    def _count(self) -> None:
        info = self._model.info
        if self._task.busy:
            self._stale = True
            return
        if info is None:
            return
        path, typed, engine, texts = self.open_path(), self._typed, self._engine, self._texts
        last_id = path.messages[-1].id if path.messages else None
        self._counted, self._began = info, time.monotonic()
        self._seen = self._changes

        def count(job: Job[ContextUse]) -> ContextUse:
            try:
                messages = texts.spelled_out(from_cut(path.messages), job.check)
                turns = told(messages, path.system_prompt, path.asked(typed), job.check)
                tokens = engine.count_tokens(turns)
            except PromptTooLongError:
                return ContextUse(None, info.context_length, typed, last_id)
            return ContextUse(tokens, info.context_length, typed, last_id)

        self._task.replace(count, self._take, failed=self._on_failed)

    @Slot(object)
    def _take(self, use: ContextUse) -> None:
        self._told = self._seen
        self._show(use if self._counted is not None and self._counted is self._model.info else None)
        self._go_on()

    @Slot(RdchatError)
    def _on_failed(self, _error: RdchatError) -> None:
        self._show(None)  # what is wrong with a template is told by the reply that fails of it
        self._go_on()

    def _go_on(self) -> None:
        took_ms = (time.monotonic() - self._began) * 1000
        is_another = self._counted is None  # another chat is waiting to be counted
        pause_ms = 0 if is_another else min(round(took_ms * (_SHARE - 1)), _MOST_QUIET_MS)
        self._timer.setInterval(max(_QUIET_MS, pause_ms))
        if self._stale:
            self._stale = False
            self._wait()

    def _show(self, use: ContextUse | None) -> None:
        if use != self._use:
            self._use = use
            self.changed.emit()
