"""The one coordinator of messages, replies and engine, and the parts of it that widgets are given."""

import logging
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.attachments.file_texts import FileTexts
from rdchat.chat.conversation import MadeWith, Message, Notice
from rdchat.chat.message_path import MessagePath
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import LoadProgress, ModelInfo, PrefillProgress
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Dtype, Role
from rdchat.services.chat.asked_with import NO_QUESTION, AskedWith, ends_with_question
from rdchat.services.chat.conversation_desk import ConversationDesk
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.reply_recorder import ReplyRecorder
from rdchat.services.chat.reply_writer import ReplyWriter
from rdchat.services.chat.settings_control import RememberedModel, SettingsControl
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.chat.time_ledger import TimeLedger
from rdchat.services.chat.trace_recorder import TraceRecorder
from rdchat.services.chat.unsaved_replies import UnsavedReplies, left_behind
from rdchat.services.context.chat_context import GOES_ON, TOO_LONG, ChatContext
from rdchat.services.engine.benchmark import Benchmark
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import EngineState
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.engine.race import Race
from rdchat.services.files.pending_files import PendingFiles
from rdchat.services.order.title_writer import TitleWriter
from rdchat.services.text.one_reply import BorrowedModel, ReplyWish
from rdchat.services.text.text_work import TextWork

_LOG = logging.getLogger(__name__)


class ChatController(QObject):
    """Commands come in as calls and are never refused by an exception; what follows from them goes out as signals.

    A new chat is stored with its first prompt. One reply is written at a time, in the open conversation or, after
    another one was opened, behind it. Editing and regenerating stop it first; sending waits for the person to.

    Attributes:
        desk: The conversations, and which of them is open.
        preferences: What the person prefers.
        model_slot: The model that answers, and how another one is loaded.
        drafting: How replies are drafted.
        time_ledger: Where their time went.
        traces: How replies came about, token by token.
        race: Drafting against plain decoding on one prompt.
        benchmark: Ways of drafting measured on many prompts.
        unsaved: Replies that the store does not take.
        titles: The model's titles of new chats.
        borrowed: Another model that is loaded for one reply.
        text: Edits of replies, deletions of messages, branches.
        files: Those of the message that is typed.
        texts: Of the files that were sent.
        asked_with: What the open chat's next reply is asked for with.
        context: How much of the model's context the open chat takes, and what is done where it is too much.
    """

    notice_raised = Signal(Notice)
    storage_failed = Signal(Notice)
    storage_recovered = Signal()
    message_added = Signal(Message)
    message_changed = Signal(Message)
    reply_text_added = Signal(int, str)
    transcript_changed = Signal()
    prompt_refused = Signal(str, str)
    text_given_back = Signal(str)
    state_changed = Signal()
    load_progressed = Signal(LoadProgress)
    prefill_progressed = Signal(PrefillProgress)
    statistics_changed = Signal(Statistics)

    def __init__(
        self, store: ConversationStore, settings: SettingsStore, engine: EngineClient, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store, self._engine = store, engine
        self._chat, self._storage = OpenChat(store), StorageWatch(self)
        self.desk = ConversationDesk(store, self._chat, self._storage, self)
        preferences = self.preferences = SettingsControl(settings, self._storage, self)
        self.model_slot = ModelSlot(engine, settings.settings, self)
        self._recorder = ReplyRecorder(store, self)
        self.unsaved = UnsavedReplies(self._recorder, self.desk.title_of, store.path.parent)
        self.traces = TraceRecorder(store, self)
        self.drafting = DraftControl(engine, self.model_slot, lambda: preferences.settings, preferences.change, self)
        self.time_ledger = TimeLedger(engine, self.drafting, self)
        self.race, self.benchmark = Race(engine, self), Benchmark(engine, self)
        self._writer = ReplyWriter(engine, self.model_slot, self.drafting, self._recorder, self.traces, parent=self)
        self.borrowed = BorrowedModel(self.model_slot, self._writer, self)
        self.titles = TitleWriter(store, engine, self._writer, self.preferences, titled=self.desk.refresh, parent=self)
        self.files = PendingFiles(engine, self.model_slot, lambda: self._chat.id, self)
        self.texts = FileTexts(store.path)
        self.asked_with = AskedWith(self._chat, self.preferences, self._recorder, self.files, self.texts)
        open_path = self.asked_with.open_path
        self.context = ChatContext(
            self._chat, self._storage, engine, self.model_slot, open_path=open_path, texts=self.texts, parent=self
        )
        self.text = TextWork(store, self._chat, self._storage, desk=self.desk, recorder=self._recorder, parent=self)
        RememberedModel(self.model_slot, self.borrowed, self.preferences, self)
        self._closed = False
        self._connect()

    def _connect(self) -> None:
        self._store.tell(self.notice_raised.emit)
        self._storage.failed.connect(self.storage_failed)
        self._storage.recovered.connect(self.storage_recovered)
        self.model_slot.load_progressed.connect(self.load_progressed)
        self._engine.prefill_progressed.connect(self.prefill_progressed)
        self.model_slot.loaded.connect(self._on_loaded)
        context = self.context
        for follow in (self._show_last_statistics, context.meter.begin_anew, self.files.changed, context.stop):
            self.desk.conversation_opened.connect(follow)
        self.desk.conversation_removed.connect(self._writer.stop)
        self._recorder.storage_failed.connect(self.storage_failed)
        self._recorder.storage_recovered.connect(self.storage_recovered)
        self._recorder.storage_recovered.connect(self.traces.save)
        self._writer.statistics_changed.connect(self.statistics_changed)
        self._writer.changed.connect(self.state_changed)
        self._writer.text_added.connect(self._on_text_added)
        self._writer.reply_changed.connect(self._on_reply_changed)
        self._writer.reply_ended.connect(self._on_reply_ended)
        changes = (self.message_added, self.message_changed, self.transcript_changed, self.preferences.changed)
        for changed in (*changes, self.desk.options_changed):
            changed.connect(self.context.meter.refresh)
        self.text.transcript_changed.connect(self.transcript_changed)
        self.text.notice_raised.connect(self.notice_raised)
        self.files.changed.connect(self.context.meter.refresh)
        self.context.cut_changed.connect(self.transcript_changed)
        self.context.reply_wanted.connect(self.continue_reply)
        self.context.notice_raised.connect(self.notice_raised)
        self.context.chat_wanted.connect(self._go_on_anew)

    # What is to be shown

    @property
    def messages(self) -> MessagePath:
        """The active path of the open conversation, with the text that is being written."""
        return self.asked_with.messages

    @property
    def state(self) -> EngineState:
        return self._writer.state

    @property
    def model(self) -> ModelInfo | None:
        return self.model_slot.info

    @property
    def streaming_message_id(self) -> int | None:
        """The message of the open path that is being written, or waits for the model."""
        live = (reply.message.id for reply in reversed(self._recorder.live))
        return next((message_id for message_id in live if self._chat.has(message_id)), None)

    def start(self) -> None:
        """Open the latest conversation and load the model of the settings."""
        for notice in (self._store.notice, self.preferences.notice):
            if notice:
                self.notice_raised.emit(notice)
        self.desk.start()
        if notice := left_behind(self._store.path.parent):
            self.notice_raised.emit(notice)
        self.model_slot.retry()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop, save and end the engine thread; False if that did not come back (`EngineClient.shutdown`).

        What cannot be saved goes into a file beside the chats, unless the person gave it up. Closing again saves again
        what could not be saved, but waits for the thread no longer.
        """
        self.titles.close()
        self.context.close()
        self.files.close()
        self.desk.close()
        self._writer.close()
        ended = self._engine.shutdown(0.0 if self._closed else timeout_s)
        self._closed = True
        self._recorder.close()
        self.traces.close()
        self.unsaved.rescue()
        self._store.tell(lambda notice: _LOG.warning("%s: %s", notice.title, notice.detail))
        return ended

    def load_model(self, model: str | None, dtype: Dtype | None = None) -> None:
        """Load another model, in the precision chosen last if none is named.

        A reply under way is stopped, one that waits for a model waits for this one.
        """
        self.model_slot.load(model, dtype)

    # Messages

    def send(self, text: str) -> None:
        """Add a prompt and have it answered, or say why not with `prompt_refused`."""
        conversation_id = self._chat.id
        reason = self._writer.reason_to_refuse(text, conversation_id) or self.files.reason_to_wait()
        if reason := reason or (TOO_LONG if self.context.refuses(text) else ""):
            self.prompt_refused.emit(text, reason)
            return
        try:
            prompt = self._chat.add_prompt(text, self.files.to_send())
        except StorageError as error:
            self.files.follow(conversation_id, self._chat.id)
            self._storage.report(error)
            self.prompt_refused.emit(text, str(error))
            self.desk.refresh()  # the chat may have been stored, if its prompt was not
            return
        self._storage.note_success()
        self.files.clear(conversation_id)
        self.message_added.emit(prompt)
        with self._storage.writing():
            self._answer()
        self.desk.refresh()

    def stop(self) -> None:
        """Stop the reply that is being written, or that waits for the model."""
        self._writer.stop()

    def edit_message(self, message_id: int, text: str) -> None:
        """Add another version of a message, and have a prompt answered; the old one is kept as an alternative."""
        if not text.strip():
            self.notice_raised.emit(Notice("The message is empty", "Type something to ask. The old one was kept."))
            return
        old = self._chat.path.find(message_id)
        if old is not None and old.role is Role.ASSISTANT:
            self._writer.stop()
            self.text.edit_reply(message_id, text)
            return
        if not self._may_write(without_model=True):
            return
        self._writer.stop()
        with self._storage.writing():
            self._chat.add_prompt_version(message_id, text)
            self.transcript_changed.emit()
            self._answer()
        self.desk.refresh()

    def regenerate(self, message_id: int, wish: ReplyWish = ReplyWish()) -> None:  # noqa: B008  it is frozen
        """Have another reply written; the old one is kept as an alternative. A prompt without a reply gets one.

        A wish holds for this reply alone. Another model is loaded for it, and the present one again when it has ended.
        """
        if not self._may_write(without_model=wish.other is not None):
            return
        self._writer.stop()
        with self._storage.writing():
            if not ends_with_question(self._chat.path_to_prompt(message_id)):
                self.notice_raised.emit(NO_QUESTION)
                return
            own_name, made_with = self.model_slot.name, self.asked_with.made_with()
            if wish != ReplyWish():
                made_with = MadeWith(wish.sampling or made_with.sampling, wish.system_prompt, once=True)
            model = wish.other.name if wish.other else own_name
            reply = self._chat.add_another_reply(message_id, self.preferences.settings, model, made_with)
            self.transcript_changed.emit()
            if wish.other:
                self.borrowed.borrow(wish.other, reply.id, own_name or "")
            self._write(reply)
        self.desk.refresh()

    def continue_reply(self, message_id: int) -> None:
        """Have the reply at the end of the path written on, once it has ended."""
        is_ended = self._chat.ends_with(message_id) and message_id != self.streaming_message_id
        if not is_ended or not self._may_write():
            return
        path = self.messages
        if not path[-1].text.strip() and not ends_with_question(path[:-1]):
            self.notice_raised.emit(NO_QUESTION)
            return
        self._writer.stop()
        with self._storage.writing():
            self._recorder.flush()  # what is reopened is what the store has
            reply = self._chat.reopen_reply(self.asked_with.made_with(path[-1]))
            self.message_changed.emit(reply)
            self._write(reply, continued=bool(reply.text.strip()))

    def show_alternative(self, message_id: int, step: int) -> None:
        """Show the alternative of a message that is `step` places on, and what was said after it."""
        with self._storage.writing():
            self._chat.select_alternative(message_id, step)
            self.transcript_changed.emit()

    def _answer(self) -> None:
        """Add a reply to the prompt that ends the path and have it written."""
        reply = self._chat.add_reply(self.preferences.settings, self.model_slot.name, self.asked_with.made_with())
        self.message_added.emit(reply)
        self._write(reply)

    def _write(self, reply: Message, *, continued: bool = False) -> None:
        """Have the reply that ends the path written, or written on, by the chat's own model or one borrowed for it."""
        if not self.borrowed.is_for(reply.id):
            self.borrowed.give_back()
        path = self.messages if continued else self.messages[:-1]
        if continued:
            path = path[:]
            path.put(replace(path[-1], context_cut=None))  # what is written on is told
        told, sampling = self.asked_with.telling(path, reply), self.asked_with.sampling_of(reply)
        self._writer.write(told, sampling, reply, continued=continued, thinking=self._chat.thinking)

    @Slot(str, str, object)
    def _go_on_anew(self, system_prompt: str, asked: str, files: list[tuple[AttachedFile, str]]) -> None:
        """Open a chat that begins with a summary of the open one."""
        title, before = self.desk.conversation.title if self.desk.conversation else "", self._chat.id
        self.desk.begin_chat(f"{title} (continued)", system_prompt, self._chat.sampling)
        self.notice_raised.emit(GOES_ON)
        if asked or files:
            self.files.follow(before, self._chat.id)
            self.files.bring_back(files)
            self.text_given_back.emit(asked)

    def _may_write(self, *, without_model: bool = False) -> bool:
        """Whether a reply can be written now; else say why not."""
        if notice := self._writer.notice_against(without_model=without_model):
            self.notice_raised.emit(notice)
        return notice is None

    @Slot()
    def _show_last_statistics(self) -> None:
        if not self._recorder.live:
            self.statistics_changed.emit(self._chat.last_statistics())

    @Slot(int, str)
    def _on_text_added(self, message_id: int, text: str) -> None:
        if self._chat.has(message_id):
            self.reply_text_added.emit(message_id, text)

    @Slot(Message)
    def _on_reply_changed(self, reply: Message) -> None:
        if self._chat.has(reply.id):
            self.message_changed.emit(self._chat.replace(reply))

    @Slot(Message)
    def _on_reply_ended(self, ended: Message) -> None:
        self._on_reply_changed(ended)
        self.desk.refresh()

    @Slot(ModelInfo)
    def _on_loaded(self, info: ModelInfo) -> None:
        if info.warning:
            self.notice_raised.emit(Notice("Memory is tight", info.warning))
