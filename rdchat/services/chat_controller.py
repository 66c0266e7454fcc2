"""The one coordinator of conversations, settings and engine; widgets talk only to it."""

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Conversation, Message, Notice
from rdchat.chat.settings import Settings
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.events import LoadProgress, ModelInfo, PrefillProgress
from rdchat.inference.requests import Dtype, SamplingParams
from rdchat.inference.statistics import Statistics
from rdchat.services.chat_history import history
from rdchat.services.conversation_list import ConversationList
from rdchat.services.engine_client import EngineClient
from rdchat.services.events import EngineState, Failure
from rdchat.services.model_slot import ModelSlot
from rdchat.services.open_chat import OpenChat
from rdchat.services.reply_recorder import ReplyRecorder
from rdchat.services.reply_writer import ReplyWriter
from rdchat.services.storage_watch import StorageWatch


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
        self._model = ModelSlot(engine, settings.settings, self)
        self._recorder = ReplyRecorder(store, self)
        self._writer = ReplyWriter(engine, self._model, self._recorder, self)
        self._chat = OpenChat(store)
        self._list = ConversationList(store)
        self._storage = StorageWatch(self)
        self._closed = False
        self._connect()

    def _connect(self) -> None:
        self._engine.load_progressed.connect(self.load_progressed)
        self._engine.prefill_progressed.connect(self.prefill_progressed)
        self._model.loaded.connect(self._remember_model)
        self._model.failed.connect(self._remember_model)
        self._storage.failed.connect(self.storage_failed)
        self._storage.recovered.connect(self.storage_recovered)
        self._recorder.storage_failed.connect(self.storage_failed)
        self._recorder.storage_recovered.connect(self.storage_recovered)
        self._writer.statistics_changed.connect(self.statistics_changed)
        self._writer.changed.connect(self.state_changed)
        self._writer.text_added.connect(self._on_text_added)
        self._writer.reply_ended.connect(self._on_reply_ended)

    # What is to be shown

    def conversations(self) -> list[Conversation]:
        """The conversations that the search leaves, newest first."""
        return list(self._list.shown)

    @property
    def conversation(self) -> Conversation | None:
        """The open conversation; None for a new chat that has no message yet."""
        return self._chat.conversation

    @property
    def messages(self) -> list[Message]:
        """The active path of the open conversation, with the text that is being written."""
        return [self._recorder.shown(message) for message in self._chat.path]

    @property
    def chat_system_prompt(self) -> str | None:
        """The open chat's own system prompt; None where it takes the one of the preferences."""
        return self._chat.system_prompt

    @property
    def chat_sampling(self) -> SamplingParams | None:
        """The open chat's own sampling; None where it takes the one of the preferences."""
        return self._chat.sampling

    @property
    def state(self) -> EngineState:
        return self._writer.state

    @property
    def model(self) -> ModelInfo | None:
        return self._model.info

    @property
    def chosen_model(self) -> str | None:
        """The model that was chosen last, whether it loaded or not; None is the default one."""
        return self._model.chosen

    @property
    def chosen_dtype(self) -> Dtype:
        """The precision that was chosen last."""
        return self._model.dtype

    @property
    def model_failure(self) -> Failure | None:
        return self._model.failure

    @property
    def streaming_message_id(self) -> int | None:
        """The message of the open path that is being written, or waits for the model."""
        live = (reply.message.id for reply in reversed(self._recorder.live))
        return next((message_id for message_id in live if self._chat.has(message_id)), None)

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
        self._open_or_new(next(iter(self._list.shown), None))
        self._model.retry()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop, save and end the engine thread; False if that did not come back (`EngineClient.shutdown`).

        Closing again saves again what could not be saved, but waits for the thread no longer.
        """
        ended = self._engine.shutdown(0.0 if self._closed else timeout_s)
        self._closed = True
        self._recorder.close()
        return ended

    def load_model(self, model: str | None, dtype: Dtype | None = None) -> None:
        """Load another model, in the precision chosen last if none is named.

        A reply under way is stopped, one that waits for a model waits for this one.
        """
        self._model.load(model, dtype or self.chosen_dtype)

    def load_precision(self, dtype: Dtype) -> None:
        """Load the model that was chosen last in another precision, also where it did not load in the present one."""
        self._model.load(self.chosen_model, dtype)

    def retry_model(self) -> None:
        """Load what was chosen last."""
        self._model.retry()

    def change_settings(self, settings: Settings) -> None:
        with self._storage.reading():
            self._settings.save(settings)
        self.settings_changed.emit(settings)

    # Conversations

    def new_chat(self) -> None:
        self._chat.start_new()
        self._announce_opened()

    def open_conversation(self, conversation_id: int) -> None:
        with self._storage.reading():
            self._chat.open(conversation_id)
            self._announce_opened()

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.open_conversation(conversation.id)
        else:
            self.new_chat()

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        with self._storage.writing():
            self._chat.update(self._store.rename_conversation(conversation_id, title))
        self._list_conversations()

    def delete_conversation(self, conversation_id: int) -> None:
        """Delete a conversation, until `undo_delete`; where it was open, its neighbour in the list is opened."""
        with self._storage.writing():
            neighbour = self._list.neighbour_of(conversation_id)
            deleted = self._list.delete(conversation_id)
            self._writer.stop(conversation_id)
            self._list_conversations()
            if self._chat.is_open(conversation_id):
                self._open_or_new(neighbour)
            self.conversation_deleted.emit(deleted)

    def undo_delete(self) -> None:
        """Bring back the conversation that was deleted last, and open it."""
        with self._storage.writing():
            if restored := self._list.restore_last():
                self._list_conversations()
                self.open_conversation(restored.id)

    def search(self, text: str) -> None:
        """List only the conversations that have these words."""
        self._list.search = text
        self._list_conversations()

    def set_chat_options(self, system_prompt: str | None, sampling: SamplingParams | None) -> None:
        """Give the open chat its own system prompt and sampling; None takes those of the preferences."""
        stored = self.conversation is not None
        with self._storage.writing() if stored else self._storage.reading():
            self._chat.set_options(system_prompt, sampling)

    # Messages

    def send(self, text: str) -> None:
        """Add a prompt and have it answered, or say why not with `prompt_refused`."""
        conversation_id = self.conversation.id if self.conversation else None
        if reason := self._writer.reason_to_refuse(text, conversation_id):
            self.prompt_refused.emit(text, reason)
            return
        try:
            prompt = self._chat.add_prompt(text)
        except StorageError as error:
            self._storage.report(error)
            self.prompt_refused.emit(text, str(error))
            self._list_conversations()  # the chat may have been stored, if its prompt was not
            return
        self._storage.note_success()
        self.message_added.emit(prompt)
        with self._storage.writing():
            self._answer()
        self._list_conversations()

    def stop(self) -> None:
        """Stop the reply that is being written, or that waits for the model."""
        self._writer.stop()

    def edit_message(self, message_id: int, text: str) -> None:
        """Add another version of a prompt and have it answered; the old one is kept as an alternative."""
        if not text.strip():
            self.notice_raised.emit(Notice("The message is empty", "Type something to ask. The old one was kept."))
            return
        self._writer.stop()
        with self._storage.writing():
            self._chat.add_prompt_version(message_id, text)
            self.transcript_changed.emit()
            self._answer()
        self._list_conversations()

    def regenerate(self, message_id: int) -> None:
        """Have another reply written; the old one is kept as an alternative. A prompt without a reply gets one."""
        if not self._check_model():
            return
        self._writer.stop()
        with self._storage.writing():
            reply = self._chat.add_another_reply(message_id, self.settings, self._model_name())
            self.transcript_changed.emit()
            self._write(reply)
        self._list_conversations()

    def continue_reply(self, message_id: int) -> None:
        """Have the reply at the end of the path written on, once it has ended."""
        is_ended = self._chat.ends_with(message_id) and message_id != self.streaming_message_id
        if not is_ended or not self._check_model():
            return
        self._writer.stop()
        with self._storage.writing():
            self._recorder.flush()  # what is reopened is what the store has
            reply = self._chat.reopen_reply()
            self.message_changed.emit(reply)
            self._write(reply, continued=bool(reply.text.strip()))

    def show_alternative(self, message_id: int, step: int) -> None:
        """Show the alternative of a message that is `step` places on, and what was said after it."""
        with self._storage.writing():
            self._chat.select_alternative(message_id, step)
            self.transcript_changed.emit()

    def _answer(self) -> None:
        """Add a reply to the prompt that ends the path and have it written."""
        reply = self._chat.add_reply(self.settings, self._model_name())
        self.message_added.emit(reply)
        self._write(reply)

    def _write(self, reply: Message, *, continued: bool = False) -> None:
        """Have the reply that ends the path written, or written on."""
        told = self.messages if continued else self.messages[:-1]
        own = self._chat.system_prompt
        system_prompt = self.settings.system_prompt if own is None else own
        sampling = self._chat.sampling or self.settings.sampling
        self._writer.write(history(told, system_prompt), sampling, reply, continued=continued)

    def _model_name(self) -> str | None:
        return self.model.name if self.model else None

    def _check_model(self) -> bool:
        if self.state is EngineState.NO_MODEL:
            self.notice_raised.emit(Notice("No model is loaded", "Choose a model, then try again."))
            return False
        return True

    # What follows

    def _announce_opened(self) -> None:
        self.conversation_opened.emit()
        if not self._recorder.live:
            self.statistics_changed.emit(self._chat.last_statistics())

    def _list_conversations(self) -> None:
        with self._storage.reading():
            self._list.refresh()
        self.conversations_changed.emit()

    @Slot(int, str)
    def _on_text_added(self, message_id: int, text: str) -> None:
        if self._chat.has(message_id):
            self.reply_text_added.emit(message_id, text)

    @Slot(Message)
    def _on_reply_ended(self, ended: Message) -> None:
        if self._chat.has(ended.id):
            self.message_changed.emit(self._chat.replace(ended))
        self._list_conversations()

    @Slot()
    def _remember_model(self) -> None:
        """Keep the choice, also of what did not load: it is mended by another precision, or tried again later.

        Not before the outcome: a model that takes the whole process down must not do so at every start.
        """
        remembered = self._model.remembered_in(self.settings)
        if remembered != self.settings:
            self.change_settings(remembered)
