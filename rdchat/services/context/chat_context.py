"""Cuts, summarises or continues a chat that is longer than the model's context, as the person chooses."""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import ContextCut, Notice
from rdchat.inference.api.requests import Role, ThinkingChoice
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import ChatPrompt, with_summary
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.replies import Replies
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.context.context_meter import ContextMeter, ContextUse
from rdchat.services.context.cutting import Budget, Count, SummaryPlan, place_to_cut, plan_summary
from rdchat.services.context.summariser import Summariser, SummaryProgress

_REPLY_SHARE = 4  # of the context is kept for the reply: one part in so many, or what a reply may have
TOO_LONG = "This is more than the model takes. Choose above what it is not told, or shorten your message."
_GOES_ON = Notice(
    "This chat goes on from a summary of the last one", "The summary is in its system prompt, among the chat's options."
)
_ALONE = Notice(
    "The last message alone is longer than the model takes",
    "Nothing was left out. Shorten it, or choose a model with a longer context.",
)


class Doing(Enum):
    """What is being done about a chat that is too long."""

    NOTHING = auto()
    LEAVING_OUT = auto()
    SUMMARISING = auto()
    STARTING_ANEW = auto()


class ChatContext(QObject):
    """Cuts the open chat where the person wants it; nothing is deleted, and each cut can be undone.

    Args:
        chat: The open conversation.
        replies: Have the model, which counts and summarises, and the texts of files.
        storage: Guards what is read.
        notify: Tells the person.
    """

    changed = Signal()
    summary_progressed = Signal(SummaryProgress)
    reply_wanted = Signal(int)  # a reply that failed, as the chat was too long, and now fits

    def __init__(
        self, chat: OpenChat, replies: Replies, storage: StorageWatch, notify: Callable[[Notice], object]
    ) -> None:
        super().__init__(chat)
        self._chat, self._storage, self._notify = chat, storage, notify
        self._model, self._texts = replies.model, replies.texts
        self.meter = ContextMeter(chat, replies)  # knows whether the chat fits
        self.meter.changed.connect(self.changed)
        self.doing = Doing.NOTHING
        self._path_end: int | None = None  # of the chat that it is done for
        self._summarised = 0  # the last message that the summary stands for
        self._task = BackgroundWork("cut", self)
        self._summariser = Summariser(self._model.engine, self.summary_progressed.emit, self._on_summary)
        for another in (chat.opened, self._model.load_started, self._model.unload_started):
            another.connect(self.stop)

    @property
    def outgrown(self) -> ContextUse | None:
        """The count of the open chat where it is too long; None where it fits, or that is not known."""
        use = self.meter.use
        return None if use is None or use.fits or use.last_id != self._end() else use

    def refuses(self, text: str) -> bool:
        """Tell whether a prompt was counted, and does not fit."""
        use = self.outgrown
        return use is not None and self.meter.current and use.typed == text.strip()

    @Slot()
    def leave_out(self) -> None:
        """Leave the oldest turns out of the prompt; they stay in the chat, marked."""
        self._start(Doing.LEAVING_OUT, place_to_cut)

    @Slot()
    def summarise(self) -> None:
        """Put a summary in the place of the oldest turns in the prompt; they stay in the chat, marked."""
        self._start(Doing.SUMMARISING, partial(plan_summary, whole=False))

    @Slot()
    def start_anew(self) -> None:
        """Begin another chat with a summary of this one, which stays as it is."""
        self._start(Doing.STARTING_ANEW, partial(plan_summary, whole=True))

    def _start(self, doing: Doing, plan: Callable[[ChatPrompt, Budget, Count], object]) -> None:
        info = self._model.info
        if info is None or self.doing is not Doing.NOTHING:
            return
        reserve = min(self._chat.options.sampling.max_tokens, info.context_length // _REPLY_SHARE)
        budget = Budget(info.context_length, reserve, ThinkingChoice.OFF not in info.thinking)
        prompt, count, texts = self._chat.prompt(), self._model.engine.count_tokens, self._texts
        self._begin(doing)
        self._task.replace(
            lambda _job: plan(prompt.with_files(texts), budget, count),
            self._on_planned,
            failed=lambda error: self._fail(Notice(error.message, error.hint)),
        )

    @Slot(int)
    def undo(self, message_id: int) -> None:
        """Put what a cut left out into the prompt again."""
        self._chat.set_cut(message_id, None)

    @Slot()
    def stop(self) -> None:
        """Do nothing more about it; the chat stays as it is."""
        self._task.forget()
        self._summariser.stop()
        self._begin(Doing.NOTHING)

    def close(self) -> None:
        """Count and cut no more."""
        self.meter.close()
        self._task.close()

    def _begin(self, doing: Doing) -> None:
        self._path_end = self._end()
        if doing is not self.doing:
            self.doing = doing
            self.changed.emit()

    def _on_planned(self, plan: SummaryPlan | int | None) -> None:
        if self._path_end != self._end():
            self._begin(Doing.NOTHING)
        elif isinstance(plan, SummaryPlan):
            self._summarised = plan.message_id
            self._summariser.start(plan.pieces, plan.most, plan.thoughts)
        elif plan is None:
            self._fail(_ALONE)
        else:
            self._finish(plan, ContextCut())

    def _on_summary(self, summary: str | Notice) -> None:
        if isinstance(summary, Notice):
            self._fail(summary)
        elif self._path_end != self._end():
            self._begin(Doing.NOTHING)
        elif self.doing is Doing.STARTING_ANEW:
            self._begin(Doing.NOTHING)
            with self._storage.reading():  # the texts of files; without them the chat stays as it is
                self._go_on_anew(summary)
        else:
            self._finish(self._summarised, ContextCut(summary, self._model.name or ""))

    def _go_on_anew(self, summary: str) -> None:
        """Open a chat that begins with a summary of the open one, with the typed or unanswered question."""
        chat = self._chat
        title, before, typed = chat.conversation.title if chat.conversation else "", chat.id, chat.typed.strip()
        asked, files = (typed, []) if typed else self._unanswered()
        chat.begin(f"{title} (continued)", with_summary(chat.options.system_prompt, summary), chat.sampling)
        self._notify(_GOES_ON)
        if asked or files:
            chat.files.follow(before, chat.id)
            chat.files.bring_back(files)
            chat.set_typed(asked)

    def _fail(self, why: Notice) -> None:
        self._begin(Doing.NOTHING)
        self._notify(why)

    def _finish(self, message_id: int, cut: ContextCut) -> None:
        """Cut, and have the last question answered where its reply has no word yet and nothing is typed."""
        typed = self._chat.typed.strip()
        self._begin(Doing.NOTHING)
        self._chat.set_cut(message_id, cut)
        last = self._chat.path[-1]
        if not typed and not last.text.strip():
            self.reply_wanted.emit(last.id)

    def _unanswered(self) -> tuple[str, list[tuple[AttachedFile, str]]]:
        """Return the question that ends the path and its files with their texts, where it has no reply."""
        last = next((each for each in reversed(self._chat.path) if each.text.strip() or each.files), None)
        if last is None or last.role is not Role.USER:
            return "", []
        return last.text, [(file, self._texts.text(file)) for file in last.files]

    def _end(self) -> int | None:
        return self._chat.path.ids[-1] if self._chat.path else None
