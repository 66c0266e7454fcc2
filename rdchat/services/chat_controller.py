"""The one coordinator of conversations, settings and engine; widgets talk only to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Conversation, Message, MessageStatus, Notice
from rdchat.chat.settings import Settings
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.chat.titles import title_from_prompt
from rdchat.errors import StorageError
from rdchat.inference.protocol import (
    Dtype,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    Role,
    SamplingParams,
    Statistics,
    fresh_seed,
    reply_seed,
)
from rdchat.services.chat_history import history
from rdchat.services.engine_client import EngineClient
from rdchat.services.events import EngineState, Failure
from rdchat.services.model_slot import ModelSlot
from rdchat.services.reply_recorder import ReplyRecorder
from rdchat.services.reply_writer import ReplyWriter


class ChatController(QObject):
    """Commands come in as calls and are never refused by an exception; what follows from them goes out as signals.

    A new chat is stored with its first prompt. One reply is written at a time, in the open conversation or, after
    another one was opened, behind it. Editing and regenerating stop it first; sending waits for the person to.
    """

    conversations_changed = Signal()
    conversation_opened = Signal()
    conversation_deleted = Signal(Conversation)
    message_added = Signal(Message)
    message_changed = Signal(Message)
    reply_text_added = Signal(int, str)
    transcript_changed = Signal()
    prompt_refused = Signal(str, str)
    state_changed = Signal()
    load_progressed = Signal(LoadProgress)
    prefill_progressed = Signal(PrefillProgress)
    statistics_changed = Signal(Statistics)
    settings_changed = Signal(Settings)
    notice_raised = Signal(Notice)
    storage_failed = Signal(Notice)
    storage_recovered = Signal()

    def __init__(
        self, store: ConversationStore, settings: SettingsStore, engine: EngineClient, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._settings = settings
        self._engine = engine
        self._model = ModelSlot(engine, self)
        self._recorder = ReplyRecorder(store, self)
        self._writer = ReplyWriter(engine, self._model, self._recorder, self)
        self._search = ""
        self._listed: list[Conversation] = []
        self._conversation: Conversation | None = None
        self._new_chat_options: tuple[str | None, SamplingParams | None] = (None, None)
        self._path: list[Message] = []
        self._last_deleted: int | None = None
        self._connect()

    def _connect(self) -> None:
        self._engine.load_progressed.connect(self.load_progressed)
        self._engine.prefill_progressed.connect(self.prefill_progressed)
        self._model.loaded.connect(self._on_model_loaded)
        self._recorder.storage_failed.connect(self.storage_failed)
        self._recorder.storage_recovered.connect(self.storage_recovered)
        self._writer.statistics_changed.connect(self.statistics_changed)
        self._writer.changed.connect(self.state_changed)
        self._writer.text_added.connect(self._on_text_added)
        self._writer.reply_ended.connect(self._on_reply_ended)

    # What is to be shown

    def conversations(self) -> list[Conversation]:
        """The conversations that the search leaves, newest first."""
        return list(self._listed)

    @property
    def conversation(self) -> Conversation | None:
        """The open conversation; None for a new chat that has no message yet."""
        return self._conversation

    @property
    def messages(self) -> list[Message]:
        """The active path of the open conversation, with the text that is being written."""
        return [self._recorder.shown(message) for message in self._path]

    @property
    def chat_system_prompt(self) -> str | None:
        """The open chat's own system prompt; None where it takes the one of the preferences."""
        return self._conversation.system_prompt if self._conversation else self._new_chat_options[0]

    @property
    def chat_sampling(self) -> SamplingParams | None:
        """The open chat's own sampling; None where it takes the one of the preferences."""
        return self._conversation.sampling if self._conversation else self._new_chat_options[1]

    @property
    def state(self) -> EngineState:
        return self._writer.state

    @property
    def model(self) -> ModelInfo | None:
        return self._model.info

    @property
    def model_failure(self) -> Failure | None:
        return self._model.failure

    @property
    def streaming_message_id(self) -> int | None:
        """The message of the open path that is being written, or waits for the model."""
        shown = {message.id for message in self._path}
        return next((live.message.id for live in reversed(self._recorder.live) if live.message.id in shown), None)

    @property
    def settings(self) -> Settings:
        return self._settings.settings

    # The app

    def start(self) -> None:
        """Open the latest conversation and load the model of the settings."""
        for notice in (self._store.notice, self._settings.notice):
            if notice:
                self.notice_raised.emit(notice)
        self._list_conversations()
        if self._listed:
            self.open_conversation(self._listed[0].id)
        else:
            self.new_chat()
        self._model.load(self.settings.model, self.settings.dtype)

    def close(self) -> bool:
        """Stop, save and end the engine thread; False if that did not come back (`EngineClient.shutdown`)."""
        ended = self._engine.shutdown()
        self._recorder.close()
        return ended

    def load_model(self, model: str | None, dtype: Dtype = Dtype.AUTO) -> None:
        """Load another model; a reply under way is stopped, one that waits for a model waits for this one."""
        self._model.load(model, dtype)

    def retry_model(self) -> None:
        self._model.retry()

    def change_settings(self, settings: Settings) -> None:
        with self._storage():
            self._settings.save(settings)
        self.settings_changed.emit(settings)

    # Conversations

    def new_chat(self) -> None:
        self._conversation, self._path, self._new_chat_options = None, [], (None, None)
        self._announce_opened()

    def open_conversation(self, conversation_id: int) -> None:
        with self._storage():
            conversation = self._store.conversation(conversation_id)
            self._path = self._store.messages(conversation_id)
            self._conversation = conversation
            self._announce_opened()

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        with self._storage():
            self._take(self._store.rename_conversation(conversation_id, title))
        self._list_conversations()

    def delete_conversation(self, conversation_id: int) -> None:
        """Delete a conversation, until `undo_delete`; where it was open, its neighbour in the list is opened."""
        with self._storage():
            conversation = self._store.conversation(conversation_id)
            self._writer.stop(conversation_id)
            self._store.delete_conversation(conversation_id)
            self._last_deleted = conversation_id
            place = next((i for i, listed in enumerate(self._listed) if listed.id == conversation_id), 0)
            self._list_conversations()
            if self._conversation and self._conversation.id == conversation_id:
                if self._listed:
                    self.open_conversation(self._listed[min(place, len(self._listed) - 1)].id)
                else:
                    self.new_chat()
            self.conversation_deleted.emit(conversation)

    def undo_delete(self) -> None:
        """Bring back the conversation that was deleted last, and open it."""
        if self._last_deleted is not None:
            with self._storage():
                restored = self._store.restore_conversation(self._last_deleted)
                self._last_deleted = None
                self._list_conversations()
                self.open_conversation(restored.id)

    def search(self, text: str) -> None:
        """List only the conversations that have these words."""
        self._search = text
        self._list_conversations()

    def set_chat_options(self, system_prompt: str | None, sampling: SamplingParams | None) -> None:
        """Give the open chat its own system prompt and sampling; None takes those of the preferences."""
        if self._conversation is None:
            self._new_chat_options = (system_prompt, sampling)
            return
        with self._storage():
            self._take(self._store.set_chat_options(self._conversation.id, system_prompt, sampling))

    # Messages

    def send(self, text: str) -> None:
        """Add a prompt and have it answered, or say why not with `prompt_refused`."""
        if reason := self._reason_not_to_send(text):
            self.prompt_refused.emit(text, reason)
            return
        try:
            conversation = self._conversation or self._store_new_chat(text)
            parent_id = self._path[-1].id if self._path else None
            prompt = self._store.add_message(conversation.id, parent_id, Role.USER, text)
        except StorageError as error:
            self.storage_failed.emit(Notice(error.message, error.hint))
            self.prompt_refused.emit(text, str(error))
            return
        self._path.append(prompt)
        self.message_added.emit(prompt)
        with self._storage():
            self._answer(prompt)
        self._list_conversations()

    def stop(self) -> None:
        """Stop the reply that is being written, waits for the model, or is read for."""
        self._writer.stop()

    def edit_message(self, message_id: int, text: str) -> None:
        """Add another version of a prompt and have it answered; the old one is kept as an alternative."""
        if not text.strip():
            self.notice_raised.emit(Notice("The message is empty", "Type something to ask. The old one was kept."))
            return
        self._writer.stop()
        with self._storage():
            old = self._store.message(message_id)
            prompt = self._store.add_message(old.conversation_id, old.parent_id, Role.USER, text)
            self._show(self._store.path_to(prompt.id))
            self._answer(prompt)
        self._list_conversations()

    def regenerate(self, message_id: int) -> None:
        """Have another reply written; the old one is kept as an alternative. Answers a prompt that has no reply."""
        if not self._has_model():
            return
        self._writer.stop()
        with self._storage():
            old = self._store.message(message_id)
            is_reply = old.role is Role.ASSISTANT and old.parent_id is not None
            path = self._store.path_to(old.parent_id if is_reply and old.parent_id is not None else old.id)
            self._show(path)
            self._answer(path[-1], earlier_replies=old.siblings if is_reply else 0)
        self._list_conversations()

    def continue_reply(self, message_id: int) -> None:
        """Have the last reply of the path written on, where it has ended."""
        is_last = bool(self._path) and self._path[-1].id == message_id
        if not is_last or message_id == self.streaming_message_id or not self._has_model():
            return
        self._writer.stop()
        with self._storage():
            self._recorder.flush()
            reply = self._store.reopen_message(message_id)
            self._path[-1] = reply
            self.message_changed.emit(reply)
            continued = bool(reply.text.strip())
            told = history(self.messages if continued else self.messages[:-1], self._system_prompt())
            self._writer.write(told, self._sampling(), reply, continued=continued)

    def show_alternative(self, message_id: int, step: int) -> None:
        """Show the alternative of a message that is `step` places on, and what was said after it."""
        with self._storage():
            self._show(self._store.select_sibling(message_id, step))

    def _reason_not_to_send(self, text: str) -> str:
        if not text.strip():
            return "Type something to ask."
        if live := self._recorder.live:
            if live[-1].stopping:
                return "The last reply is still being stopped. Try again in a moment."
            return "A reply is still being written. Wait for it, or stop it first."
        return "" if self._has_model_or_soon() else "No model is loaded. Choose one first."

    def _has_model_or_soon(self) -> bool:
        return self._model.loading or self._model.info is not None

    def _has_model(self) -> bool:
        if not self._has_model_or_soon():
            self.notice_raised.emit(Notice("No model is loaded", "Choose a model, then try again."))
        return self._has_model_or_soon()

    def _store_new_chat(self, prompt: str) -> Conversation:
        self._conversation = self._store.create_conversation(title_from_prompt(prompt))
        if self._new_chat_options != (None, None):
            self._take(self._store.set_chat_options(self._conversation.id, *self._new_chat_options))
        return self._conversation

    def _answer(self, prompt: Message, earlier_replies: int = 0) -> None:
        """Add a reply to the last message of the path and have it written."""
        settings = self.settings
        seed = settings.seed if settings.seed is not None else fresh_seed()
        reply = self._store.add_message(
            prompt.conversation_id,
            prompt.id,
            Role.ASSISTANT,
            "",
            status=MessageStatus.STREAMING,
            model=self._model.info.name if self._model.info else None,
            seed=reply_seed(seed, len(self._path), earlier_replies),
        )
        told = history(self.messages, self._system_prompt())
        self._path.append(reply)
        self.message_added.emit(reply)
        self._writer.write(told, self._sampling(), reply)

    def _system_prompt(self) -> str:
        own = self.chat_system_prompt
        return self.settings.system_prompt if own is None else own

    def _sampling(self) -> SamplingParams:
        return self.chat_sampling or self.settings.sampling

    # What follows

    def _announce_opened(self) -> None:
        self.conversation_opened.emit()
        if not self._recorder.live:
            known = (message.statistics for message in reversed(self._path) if message.statistics)
            self.statistics_changed.emit(next(known, Statistics()))

    def _show(self, path: list[Message]) -> None:
        self._path = path
        self.transcript_changed.emit()

    def _take(self, conversation: Conversation) -> None:
        if self._conversation and self._conversation.id == conversation.id:
            self._conversation = conversation

    def _list_conversations(self) -> None:
        with self._storage():
            self._listed = self._store.conversations(self._search)
        self.conversations_changed.emit()

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Tell the person of what the store could not do; the rest of the block is left out."""
        try:
            yield
        except StorageError as error:
            self.storage_failed.emit(Notice(error.message, error.hint))

    @Slot(int, str)
    def _on_text_added(self, message_id: int, text: str) -> None:
        if any(message.id == message_id for message in self._path):
            self.reply_text_added.emit(message_id, text)

    @Slot(Message)
    def _on_reply_ended(self, ended: Message) -> None:
        for place, message in enumerate(self._path):
            if message.id == ended.id:
                self._path[place] = replace(ended, sibling=message.sibling, siblings=message.siblings)
                self.message_changed.emit(self._path[place])
        self._list_conversations()

    @Slot(ModelInfo)
    def _on_model_loaded(self, _info: ModelInfo) -> None:
        remembered = self._model.remembered_in(self.settings)
        if remembered != self.settings:
            self.change_settings(remembered)
