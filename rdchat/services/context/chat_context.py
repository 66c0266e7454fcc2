"""What the person chooses where a chat outgrows the model's context: leave out, summarise, or start anew."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.attachments.file_texts import FileTexts
from rdchat.chat.conversation import ContextCut, Notice
from rdchat.chat.message_path import uncut
from rdchat.errors import RdchatError
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.requests import Role, ThinkingChoice
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.chat_history import with_summary
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.context.context_meter import ContextMeter, OpenPath
from rdchat.services.context.cutting import Count, SummaryPlan, Wanted, place_to_cut, plan_summary
from rdchat.services.context.summariser import Summariser, SummaryProgress
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot

_REPLY_SHARE = 4  # of the context is kept for the reply: one part in so many, or what a reply may have
TOO_LONG = "This is more than the model takes. Choose above what it is not told, or shorten your message."
GOES_ON = Notice(
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


@dataclass(frozen=True, slots=True)
class Outgrown:
    """The open chat does not fit.

    Attributes:
        tokens: It would take with what is typed; None where they are far more than the context.
        limit: The model's context.
        can_cut: There are turns to leave out.
    """

    tokens: int | None
    limit: int
    can_cut: bool


class ChatContext(QObject):
    """Cuts the open chat where the person wants it; nothing is deleted, and each cut can be undone.

    Args:
        chat: The open conversation.
        storage: Stands around what is written.
        engine: Counts.
        model: Tells which model is loaded.
        open_path, texts: See `ContextMeter`.
        parent: The Qt parent.

    Attributes:
        meter: Knows whether the chat fits.
    """

    changed = Signal()
    summary_progressed = Signal(SummaryProgress)
    cut_changed = Signal()  # the path's messages have another cut
    # a new one: its system prompt with the summary, what is to be asked there, and the files that were sent with that
    chat_wanted = Signal(str, str, object)
    reply_wanted = Signal(int)  # a reply that failed, as the chat was too long, and now fits
    notice_raised = Signal(Notice)

    def __init__(
        self,
        chat: OpenChat,
        storage: StorageWatch,
        engine: EngineClient,
        model: ModelSlot,
        *,
        open_path: Callable[[], OpenPath],
        texts: FileTexts,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._chat, self._storage, self._engine, self._model = chat, storage, engine, model
        self._texts = texts
        self.meter = ContextMeter(engine, model, open_path, texts, self)
        self._doing = Doing.NOTHING
        self._path_end: int | None = None  # of the chat that it is done for
        self._task = BackgroundWork("cut", self)
        self.meter.changed.connect(self.changed)
        self._plan: SummaryPlan | None = None
        self._summariser = Summariser(engine, self)
        self._summariser.progressed.connect(self.summary_progressed)
        self._summariser.written.connect(self._on_summary)
        self._summariser.failed.connect(self._on_no_summary)
        model.load_started.connect(self.stop)
        model.unload_started.connect(self.stop)

    @property
    def doing(self) -> Doing:
        return self._doing

    @property
    def outgrown(self) -> Outgrown | None:
        """What to say of the open chat where it does not fit; None where it does, or that is not known."""
        use = self.meter.use
        if use is None or use.fits or use.last_id != self._end():
            return None
        turns = len(uncut(self._chat.path))
        return Outgrown(use.tokens, use.limit, turns > (0 if use.typed else 2))

    def refuses(self, text: str) -> bool:
        """Tell whether a prompt was counted, and does not fit."""
        use = self.meter.use
        if use is None or use.fits or not self.meter.current:
            return False
        return (use.typed, use.last_id) == (text.strip(), self._end())

    @Slot()
    def leave_out(self) -> None:
        """Tell the model only as many of the last turns as it takes; the others stay in the chat, marked."""
        self._start(Doing.LEAVING_OUT, place_to_cut)

    @Slot()
    def summarise(self) -> None:
        """Tell the model a summary in the place of the oldest turns; they stay in the chat, marked."""
        self._start(Doing.SUMMARISING, partial(plan_summary, whole=False))

    @Slot()
    def start_anew(self) -> None:
        """Begin another chat with a summary of this one, which stays as it is."""
        self._start(Doing.STARTING_ANEW, partial(plan_summary, whole=True))

    def _start(self, doing: Doing, plan: Callable[[Wanted, Count], object]) -> None:
        info = self._model.info
        if info is None or self._doing is not Doing.NOTHING:
            return
        wanted, count, texts = self._wanted(info), self._engine.count_tokens, self._texts
        self._begin(doing)
        self._task.replace(
            lambda _job: plan(replace(wanted, path=texts.spelled_out(wanted.path)), count),
            self._on_planned,
            failed=self._on_failed,
        )

    def undo(self, message_id: int) -> None:
        """Tell the model again what a cut left out."""
        self._cut(message_id, None)

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

    def _wanted(self, info: ModelInfo) -> Wanted:
        path = self.meter.open_path()
        reserve = min(path.sampling.max_tokens, info.context_length // _REPLY_SHARE)
        asked, thinks = path.asked(self.meter.typed), ThinkingChoice.OFF not in info.thinking
        return Wanted(path.messages, path.system_prompt, asked, info.context_length, reserve, thinks)

    def _begin(self, doing: Doing) -> None:
        self._path_end = self._end()
        if doing is not self._doing:
            self._doing = doing
            self.changed.emit()

    @Slot(object)
    def _on_planned(self, plan: SummaryPlan | int | None) -> None:
        if self._path_end != self._end():
            self._begin(Doing.NOTHING)
        elif isinstance(plan, SummaryPlan):
            self._plan = plan
            self._summariser.start(plan.pieces, plan.most, plan.thoughts)
        elif plan is None:
            self._begin(Doing.NOTHING)
            self.notice_raised.emit(_ALONE)
        else:
            self._finish(plan, ContextCut())

    @Slot(str)
    def _on_summary(self, summary: str) -> None:
        plan, info = self._plan, self._model.info
        if plan is None or self._path_end != self._end():
            self._begin(Doing.NOTHING)
        elif self._doing is Doing.STARTING_ANEW:
            self._begin(Doing.NOTHING)
            with self._storage.reading():  # the texts of files; without them the chat stays as it is
                asked, files = (self.meter.typed, []) if self.meter.typed else self._unanswered()
                self.chat_wanted.emit(with_summary(self.meter.open_path().system_prompt, summary), asked, files)
        else:
            self._finish(plan.message_id, ContextCut(summary, info.name if info else ""))

    @Slot(Notice)
    def _on_no_summary(self, why: Notice) -> None:
        self._begin(Doing.NOTHING)
        self.notice_raised.emit(why)

    def _finish(self, message_id: int, cut: ContextCut) -> None:
        typed = self.meter.typed
        self._begin(Doing.NOTHING)
        self._cut(message_id, cut)
        self._ask_again(typed)

    def _unanswered(self) -> tuple[str, list[tuple[AttachedFile, str]]]:
        """Return the question that ends the path and its files with their texts, where it has no reply."""
        last = next((each for each in reversed(self._chat.path) if each.text.strip() or each.files), None)
        if last is None or last.role is not Role.USER:
            return "", []
        return last.text, [(file, self._texts.text(file)) for file in last.files]

    @Slot(RdchatError)
    def _on_failed(self, error: RdchatError) -> None:
        self._begin(Doing.NOTHING)
        self.notice_raised.emit(Notice(error.message, error.hint))

    def _cut(self, message_id: int, cut: ContextCut | None) -> None:
        with self._storage.writing():
            self._chat.set_cut(message_id, cut)
        self.cut_changed.emit()

    def _ask_again(self, typed: str) -> None:
        """Have the last question answered, where its reply has no word yet and nothing else is about to be asked."""
        last = self._chat.path[-1]
        if not typed and not last.text.strip():
            self.reply_wanted.emit(last.id)

    def _end(self) -> int | None:
        return self._chat.path.ids[-1] if self._chat.path else None
