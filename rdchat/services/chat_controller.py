"""Builds the services of a window, and carries out the commands that need several of them: sending, regenerating."""

import logging
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import MadeWith, Message, Notice
from rdchat.chat.message_path import from_cut
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.requests import Role
from rdchat.services.chat.chat_prompt import ChatPrompt, ends_with_question
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.one_reply import BorrowedModel, ReplyWish
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.replies import Replies
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.chat.storage_watch import StorageWatch
from rdchat.services.chat.time_ledger import TimeLedger
from rdchat.services.chat.unsaved_replies import UnsavedReplies, left_behind
from rdchat.services.context.chat_context import TOO_LONG, ChatContext
from rdchat.services.engine.benchmark import Benchmark, Race
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.order.chat_list import ChatList
from rdchat.services.order.message_editor import MessageEditor
from rdchat.services.order.title_writer import TitleWriter

_LOG = logging.getLogger(__name__)
_EMPTY_MESSAGE = Notice("The message is empty", "Type something to ask. The old one was kept.")
_NO_QUESTION = Notice("There is no question to answer", "Type one below, or start a new chat.")


class ChatController(QObject):
    """The commands are never refused by an exception. Views connect to the services, its attributes, directly.

    A new chat is stored with its first prompt. One reply is written at a time, in the open conversation or, after
    another one was opened, behind it. Editing and regenerating stop it first; sending waits for the person to.
    """

    notice_raised = Signal(Notice)
    prompt_refused = Signal(str, str)  # the text, and why it was not sent

    def __init__(
        self, store: ConversationStore, settings: SettingsStore, engine: EngineClient, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store, self._engine = store, engine
        self.storage = StorageWatch(self)
        preferences = self.preferences = SettingsControl(settings, self.storage, self)
        model = self.model_slot = ModelSlot(engine, settings.settings, self)
        self.drafting = DraftControl(model, lambda: preferences.settings, preferences.change)
        replies = self.replies = Replies(store, self.storage, model, self.drafting)
        self.recorder, self.traces, self.texts = replies.recorder, replies.traces, replies.texts
        self.chat = OpenChat(store, self.storage, preferences, replies)
        self.chats = ChatList(store, self.chat, self.storage)
        self.unsaved = UnsavedReplies(self.recorder, self.chats.title_of, store.path.parent)
        self.time_ledger = TimeLedger(self.drafting)
        self.race, self.benchmark = Race(engine, self), Benchmark(engine, self)
        self.borrowed = BorrowedModel(replies)
        self.titles = TitleWriter(store, replies, preferences, self.chats.refresh)
        self.context = ChatContext(self.chat, replies, self.storage, self.notice_raised.emit)
        self.editor = MessageEditor(self.chats, self.recorder, self.notice_raised.emit)
        self._closed = False
        self._connect()

    def _connect(self) -> None:
        self._store.tell(self.notice_raised.emit)
        for happened in (self.model_slot.loaded, self.model_slot.failed, self.borrowed.stayed):
            happened.connect(self._remember_model)
        self.model_slot.loaded.connect(self._warn_of_memory)
        self.model_slot.loaded.connect(self.time_ledger.forget_rates)
        self.replies.progressed.connect(self.time_ledger.add_progress)
        self.replies.engine_ended.connect(self.time_ledger.add_end)
        self.replies.ended.connect(self.chats.refresh)
        self.chats.conversation_removed.connect(self.replies.stop)
        self.context.reply_wanted.connect(self.continue_reply)

    def start(self) -> None:
        """Open the latest conversation and load the model of the settings."""
        for notice in (self._store.notice, self.preferences.notice):
            if notice:
                self.notice_raised.emit(notice)
        self.chats.start()
        if notice := left_behind(self._store.path.parent):
            self.notice_raised.emit(notice)
        self.model_slot.retry()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop, save and end the engine thread; False if that did not come back (`EngineClient.shutdown`).

        What cannot be saved goes into a file beside the chats, unless the person gave it up. Closing again saves again
        what could not be saved, but waits for the thread no longer.
        """
        for part in (self.titles, self.context, self.chat.files, self.chats, self.replies):
            part.close()
        ended = self._engine.shutdown(0.0 if self._closed else timeout_s)
        self._closed = True
        self.recorder.close()
        self.traces.close()
        self.unsaved.rescue()
        self._store.tell(lambda notice: _LOG.warning("%s: %s", notice.title, notice.detail))
        return ended

    # Messages

    def send(self, text: str) -> None:
        """Add a prompt and have it answered, or say why not with `prompt_refused`."""
        reason = self.replies.reason_to_refuse(text, self.chat.id) or self.chat.files.reason_to_wait()
        if reason := reason or (TOO_LONG if self.context.refuses(text) else ""):
            self.prompt_refused.emit(text, reason)
            return
        try:
            self.chat.add_prompt(text)
        except StorageError as error:
            self.storage.report(error)
            self.prompt_refused.emit(text, str(error))
        else:
            with self.storage.writing():
                self._answer()

    @Slot()
    def stop(self) -> None:
        """Stop the reply that is being written, or that waits for the model."""
        self.replies.stop()

    @Slot(int, str)
    def edit_message(self, message_id: int, text: str) -> None:
        """Add another version of a message, and have a prompt answered; the old one is kept as an alternative."""
        if not text.strip():
            self.notice_raised.emit(_EMPTY_MESSAGE)
            return
        old = self.chat.path.find(message_id)
        is_reply = old is not None and old.role is Role.ASSISTANT
        if not is_reply and not self._may_write(without_model=True):
            return
        self.replies.stop()
        with self.storage.writing():
            self.recorder.flush()  # the edit begins with the stored text
            message = self._store.message(message_id)
            if is_reply and text == message.parts.answer.strip("\n"):
                return
            self.chat.add_version(message, text)
            if not is_reply:
                self._answer()

    @Slot(int)
    def regenerate(self, message_id: int, wish: ReplyWish = ReplyWish()) -> None:  # noqa: B008  it is frozen
        """Have another reply written; the old one is kept as an alternative. A prompt without a reply gets one.

        A wish holds for this reply alone. Another model is loaded for it, and the present one again when it has ended.
        """
        if not self._may_write(without_model=wish.other is not None):
            return
        self.replies.stop()
        with self.storage.writing():
            path = self.chat.path_to_prompt(message_id)
            if not ends_with_question(path):
                self.notice_raised.emit(_NO_QUESTION)
                return
            made_with = MadeWith(
                wish.sampling or self.chat.options.sampling, wish.system_prompt, once=wish != ReplyWish()
            )
            name = wish.other.name if wish.other else self.model_slot.name
            reply = self.chat.add_reply(path, name, made_with)
            if wish.other:
                self.borrowed.borrow(wish.other, reply.id)
            self._write(reply)

    @Slot(int)
    def continue_reply(self, message_id: int) -> None:
        """Have the reply at the end of the path written on, once it has ended."""
        path = self.chat.path
        is_ended = bool(path) and path.ids[-1] == message_id != self.chat.streaming_id
        if not is_ended or not self._may_write():
            return
        if not path[-1].text.strip() and not ends_with_question(path[:-1]):
            self.notice_raised.emit(_NO_QUESTION)
            return
        self.replies.stop()
        with self.storage.writing():
            self.recorder.flush()  # the store reopens its own text
            self._write(self.chat.reopen_reply())

    def _answer(self) -> None:
        """Add a reply to the prompt that ends the path and have it written."""
        made_with = MadeWith(self.chat.options.sampling)
        self._write(self.chat.add_reply(self.chat.path, self.model_slot.name, made_with))

    def _write(self, reply: Message) -> None:
        """Have the reply that ends the path written, or written on, by the chat's own model or one borrowed for it."""
        if self.borrowed.loan is not None and self.borrowed.loan.reply_id != reply.id:
            self.borrowed.give_back()
        path = self.chat.path[:-1]
        if reply.text.strip():
            path = self.chat.path[:]
            path.put(replace(path[-1], context_cut=None))  # the text that is continued is in the prompt
        options = self.chat.options.of(reply)
        prompt = ChatPrompt(from_cut(path.told()), options.system_prompt)
        self.replies.write(reply, prompt, options.sampling, self.chat.thinking)

    def _may_write(self, *, without_model: bool = False) -> bool:
        """Whether a reply can be written now; else say why not."""
        if notice := self.replies.notice_against(without_model=without_model):
            self.notice_raised.emit(notice)
        return notice is None

    # Models

    @Slot()
    def _remember_model(self) -> None:
        """Keep the chosen model for the next start, also one that did not load: another precision may mend it.

        Not before the outcome: a model that takes the whole process down must not do so at every start. One that is
        borrowed for a reply is kept once the person stays with it.
        """
        if self.borrowed.loan is not None or self.model_slot.loading:
            return
        remembered = self.model_slot.remembered_in(self.preferences.settings)
        if remembered != self.preferences.settings:
            self.preferences.change(remembered)

    @Slot(ModelInfo)
    def _warn_of_memory(self, info: ModelInfo) -> None:
        if info.warning:
            self.notice_raised.emit(Notice("Memory is tight", info.warning))
