"""What the person chooses where a chat outgrows the model's context: leave out, summarise, or start anew."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.context_cuts import uncut
from rdchat.chat.conversation import ContextCut, Notice
from rdchat.errors import RdchatError
from rdchat.inference.api.events import ModelInfo
from rdchat.services.background.latest_task import LatestTask
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.context.context_meter import ContextMeter, OpenPath
from rdchat.services.context.cutting import Wanted, place_to_cut
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot

_REPLY_SHARE = 4  # of the context is kept for the reply: one part in so many, or what a reply may have
TOO_LONG = "This is more than the model takes. Choose above what it is not told, or shorten your message."
_ALONE = Notice(
    "The last message alone is longer than the model takes",
    "Nothing was left out. Shorten it, or choose a model with a longer context.",
)


class Doing(Enum):
    """What is being done about a chat that is too long."""

    NOTHING = auto()
    LEAVING_OUT = auto()


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
        open_path: See `ContextMeter`.
        parent: The Qt parent.

    Attributes:
        meter: Knows whether the chat fits.
    """

    changed = Signal()
    cut_changed = Signal()  # the path's messages have another cut
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
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._chat, self._storage, self._engine, self._model = chat, storage, engine, model
        self.meter = ContextMeter(engine, model, open_path, self)
        self._doing = Doing.NOTHING
        self._path_end: int | None = None  # of the chat that it is done for
        self._task = LatestTask("cut", self)
        self._task.done.connect(self._on_place)
        self._task.failed.connect(self._on_failed)
        self.meter.changed.connect(self.changed)
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
        turns = uncut(self._chat.path)
        return Outgrown(use.tokens, use.limit, len(turns) > (0 if use.typed else 2))

    def refuses(self, text: str) -> bool:
        """Tell whether a prompt was counted, and does not fit."""
        use = self.meter.use
        if use is None or use.fits or not self.meter.current:
            return False
        return (use.typed, use.last_id) == (text.strip(), self._end())

    @Slot()
    def leave_out(self) -> None:
        """Tell the model only as many of the last turns as it takes; the others stay in the chat, marked."""
        info = self._model.info
        if info is None or self._doing is not Doing.NOTHING:
            return
        wanted, count = self._wanted(info), self._engine.count_tokens
        self._begin(Doing.LEAVING_OUT)
        self._task.start(lambda _tell: place_to_cut(wanted, count))

    def undo(self, message_id: int) -> None:
        """Tell the model again what a cut left out."""
        self._cut(message_id, None)

    @Slot()
    def stop(self) -> None:
        """Do nothing more about it; the chat stays as it is."""
        self._task.stop()
        self._begin(Doing.NOTHING)

    def close(self) -> None:
        """Count and cut no more."""
        self.meter.close()
        self._task.close()

    def _wanted(self, info: ModelInfo) -> Wanted:
        path = self.meter.open_path()
        reserve = min(path.sampling.max_tokens, info.context_length // _REPLY_SHARE)
        return Wanted(path.messages, path.system_prompt, self.meter.typed, info.context_length, reserve)

    def _begin(self, doing: Doing) -> None:
        self._path_end = self._end()
        if doing is not self._doing:
            self._doing = doing
            self.changed.emit()

    @Slot(object)
    def _on_place(self, message_id: int | None) -> None:
        same, typed = self._path_end == self._end(), self.meter.typed
        self._begin(Doing.NOTHING)
        if not same:
            return
        if message_id is None:
            self.notice_raised.emit(_ALONE)
            return
        self._cut(message_id, ContextCut())
        self._ask_again(typed)

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
        return self._chat.path[-1].id if self._chat.path else None
