"""Counts the tokens of the open chat and the typed text."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.conversation import uncut
from rdchat.errors import PromptTooLongError, RdchatError
from rdchat.inference.api.messages import Role
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.replies import Replies
from rdchat.work.job import Job

_QUIET_MS = 250  # after the last letter
_CLOSING_S = 0.2  # a count that goes on in the tokenizer's process is not waited for


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The token count of a chat.

    Attributes:
        tokens: Tokens of the chat with the typed text; None if far more than the context.
        limit: The model's context.
        typed: The typed text.
        last_id: Id of the last message; None for a new chat.
        turns: Messages in the prompt.
        answered: Whether the chat ends with a reply: the next message is another question.
    """

    tokens: int | None
    limit: int
    typed: str
    last_id: int | None
    turns: int = 0
    answered: bool = False

    @property
    def fits(self) -> bool:
        """Whether there is room for at least one token of a reply."""
        return self.tokens is not None and self.tokens < self.limit

    @property
    def can_cut(self) -> bool:
        """Whether there are turns before the last question, which can be left out."""
        return self.turns > (0 if self.typed or self.answered else 2)


class ContextMeter(QObject):
    """Counts on a thread with the model's tokenizer, shortly after the last change, also while a reply is written.

    Args:
        chat: The open chat.
        replies: Gives the model and the texts of files.

    Attributes:
        use: The last count; None without a model or if its chat template fails.
        current: Whether `use` counts the present chat; the typed text may be newer.
    """

    changed = Signal()

    def __init__(self, chat: OpenChat, replies: Replies) -> None:
        super().__init__(chat)
        self._chat, self._model, self._text_of = chat, replies.model, replies.file_text
        self.use: ContextUse | None = None
        self.current = False
        self._thread = BackgroundWork("tokens", self)
        # The count under way.
        self._job: Job[ContextUse] | None = None
        self._timer = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._timer.timeout.connect(self._count)
        for changed in (chat.path_changed, chat.message_added, chat.message_changed, chat.options_changed):
            changed.connect(self.refresh)
        chat.files.changed.connect(self.refresh)
        chat.typed_changed.connect(self._timer.start)
        for another in (chat.opened, self._model.load_started, self._model.unload_started, self._model.loaded):
            another.connect(self._begin_anew)

    def close(self) -> None:
        """Stop counting."""
        self._timer.blockSignals(True)
        self._cancel()
        self._thread.close(_CLOSING_S)

    @Slot()
    def refresh(self) -> None:
        """Count again soon, after a change of the chat, its options or the model."""
        self.current = False
        self._cancel()
        self._timer.start()

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._job = None

    @Slot()
    def _begin_anew(self) -> None:
        """Discard the last count, which was of another chat or model."""
        self._show(None)
        self.refresh()

    @Slot()
    def _count(self) -> None:
        self._cancel()
        info = self._model.info
        if info is None:
            return
        prompt, engine, text_of, path = self._chat.prompt(), self._model.engine, self._text_of, self._chat.path
        answered = bool(path) and path[-1].role is Role.ASSISTANT and bool(path[-1].text.strip())
        last_id = path.ids[-1] if path else None
        facts = (info.context_length, self._chat.typed.strip(), last_id, len(uncut(path)), answered)

        def count(job: Job[ContextUse]) -> ContextUse:
            try:
                tokens = engine.count_tokens(prompt.with_files(text_of, job.check).turns(job.check))
            except PromptTooLongError:
                return ContextUse(None, *facts)
            return ContextUse(tokens, *facts)

        job = self._thread.run(count, lambda outcome: self._take(job, outcome))
        self._job = job

    def _take(self, job: Job[ContextUse], outcome: ContextUse | RdchatError) -> None:
        if job is self._job:  # else a change of the chat has cancelled it
            self._job, self.current = None, True
            # an error of the chat template is reported by the reply that fails
            self._show(outcome if isinstance(outcome, ContextUse) else None)

    def _show(self, use: ContextUse | None) -> None:
        if use != self.use:
            self.use = use
            self.changed.emit()
