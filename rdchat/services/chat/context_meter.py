"""Counts the tokens of the open chat with what is typed."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import uncut, waiting_calls
from rdchat.errors import ModelError, PromptTooLongError, RdchatError
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import LeftOut, ends_with_question
from rdchat.services.chat.open_chat import OpenChat
from rdchat.work import Job

# The pause after the last letter before tokens are counted.
_QUIET_MS = 250
# Closing does not wait longer for a count in the tokenizer's process.
_CLOSING_S = 0.2


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The token count of a chat.

    Attributes:
        tokens: Tokens of the chat with the typed text; None if far more than the context.
        limit: The model's context.
        typed: The typed text.
        last_id: Id of the last message; None for a new chat.
        turns: Messages in the prompt that are stored.
        answered: Whether the chat ends with a reply: the next message is another question.
        images: Images of the project and of the messages in the prompt.
        is_estimate: Whether the tokens are estimated, as for a remote model.
        left_out: The images that the prompt does not have.
        shared_tokens: Tokens that the project's files add.
        in_passages: The project's files that are not whole.
    """

    tokens: int | None
    limit: int
    typed: str
    last_id: int | None
    turns: int = 0
    answered: bool = False
    images: int = 0
    is_estimate: bool = False
    left_out: LeftOut = field(default_factory=dict)
    shared_tokens: int = 0
    in_passages: Sequence[AttachedFile] = ()

    @property
    def fits(self) -> bool:
        """Whether there is room for at least one token of a reply, by the count."""
        return self.tokens is not None and self.tokens < self.limit

    @property
    def may_fit(self) -> bool:
        """Whether it may fit although it does not by the count, which is estimated."""
        return self.is_estimate and self.tokens is not None and not self.fits

    @property
    def can_cut(self) -> bool:
        """Whether there are turns before the last question, which can be left out.

        Typed text is the last question, and after a reply the next one is: then any stored message is before it.
        Otherwise the last question and its empty reply are two messages, and there must be more.
        """
        return self.turns > (0 if self.typed or self.answered else 2)


class ContextMeter(QObject):
    """Counts on a thread with the model's tokenizer, shortly after the last change, also while a reply is written.

    Args:
        chat: The open chat.

    Attributes:
        use: The last count; None without a model or if its chat template fails.
        current: Whether `use` counts the present chat; the typed text may be newer.
    """

    changed = Signal()

    def __init__(self, chat: OpenChat) -> None:
        super().__init__(chat)
        self._chat = chat
        self._model = chat.replies.model
        self.use: ContextUse | None = None
        self.current = False
        self._thread = BackgroundWork("tokens", self)
        # The count under way.
        self._job: Job[ContextUse] | None = None
        self._timer = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._timer.timeout.connect(self._count)
        for changed in (chat.path_changed, chat.message_added, chat.message_changed, chat.options_changed):
            changed.connect(self.count_soon)
        chat.files.changed.connect(self.count_soon)
        chat.typed_changed.connect(self._timer.start)
        for another in (chat.opened, self._model.load_started, self._model.unload_started, self._model.loaded):
            another.connect(self._begin_anew)

    def stop_counting(self) -> None:
        """Stop counting."""
        # Silenced, not stopped: an event of the chat may start this timer again.
        self._timer.blockSignals(True)
        self._cancel()
        self._thread.finish_work(_CLOSING_S)

    def count_soon(self) -> None:
        """Count again soon, after a change of the chat, its options or the model."""
        self.current = False
        self._cancel()
        self._timer.start()

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._job = None

    def _begin_anew(self) -> None:
        """Discard the last count, which was of another chat or model."""
        self._show(None)
        self.count_soon()

    def _count(self) -> None:
        """Read what belongs to the chat here, and count on the thread."""
        self._cancel()
        info = self._model.info
        if info is None:
            return
        prompt = self._chat.prompt()
        replies = self._chat.replies
        path = self._chat.path
        count_tokens = replies.counter(self._chat.conversation)
        last = path[-1] if path else None
        # What is known before the count, and the result if the chat is far too long to be counted.
        too_long = ContextUse(
            None,
            info.context_length,
            self._chat.typed.strip(),
            path.last_id,
            turns=len(uncut(path)),
            answered=last is not None and not ends_with_question(path) and not waiting_calls(path),
            is_estimate=bool(info.server),
        )

        def count(job: Job[ContextUse]) -> ContextUse:
            complete = replies.complete(prompt, count_tokens, job.check_cancelled)
            images = len(complete.opening.images) + sum(map(len, complete.images.values()))
            # `use` grows step by step: where a count fails, what is known before it remains.
            parts = tuple(complete.shared.in_passages)
            use = replace(too_long, images=images, left_out=complete.left_out, in_passages=parts)
            with suppress(PromptTooLongError):
                tokens = count_tokens(complete.turns(job.check_cancelled))
                use = replace(use, tokens=tokens)
                if prompt.files:
                    without = replies.complete(replace(prompt, files=()), count_tokens, job.check_cancelled)
                    # Some templates refuse a chat without a question.
                    with suppress(ModelError):
                        use = replace(use, shared_tokens=tokens - count_tokens(without.turns(job.check_cancelled)))
            return use

        job = self._thread.run_job(count, lambda outcome: self._take(job, outcome))
        self._job = job

    def _take(self, job: Job[ContextUse], outcome: ContextUse | RdchatError) -> None:
        # Otherwise a change of the chat has cancelled it.
        if job is self._job:
            self._job = None
            self.current = True
            # An error of the chat template is reported by the reply that fails.
            self._show(outcome if isinstance(outcome, ContextUse) else None)

    def _show(self, use: ContextUse | None) -> None:
        if use != self.use:
            self.use = use
            self.changed.emit()
