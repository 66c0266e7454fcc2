"""Queues the replies of all chats, sends them to the engine when a model is loaded, and reports what it writes.

A `Reply` waits for the model, for the chat's servers of tools, and for the person's consent to a remote server; then
`Replies` submits its request. The prompt is read on the engine's thread, all else happens on the main thread.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import (
    NEW_CHAT,
    Conversation,
    Message,
    MessagePath,
    MessageStatus,
    Notice,
    from_cut,
)
from rdchat.chat.notes import Note, notes_text
from rdchat.chat.option_order import OptionOrder
from rdchat.chat.projects import Folder
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationRequest,
    ImageCap,
    Mode,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
    Statistics,
    ThinkingChoice,
)
from rdchat.inference.library.local_models import is_known
from rdchat.services.chat.borrowed_model import BorrowedModel, OtherModel
from rdchat.services.chat.chat_prompt import ChatPrompt, Count, FilledPrompt, ProjectTexts
from rdchat.services.chat.project_files import ProjectFiles
from rdchat.services.chat.reply_recorder import Reply, ReplyRecorder, TraceRecorder
from rdchat.services.engine.chat_caches import DiskCacheControl
from rdchat.services.engine.draft_control import DraftControl
from rdchat.services.engine.earlier_replies import EarlierReplyIndex
from rdchat.services.engine.engine_request import (
    EngineEvent,
    EngineRequest,
    EngineState,
    Failure,
    ReplyProgress,
    WriteReply,
)
from rdchat.services.files.part_choice import tokens_of
from rdchat.services.files.prompt_images import PromptImages
from rdchat.services.servers.tool_servers import ChatTools, ToolServers, tools_json
from rdchat.services.storage_watch import StorageWatch
from rdchat.work import SerialThread

# A smaller model repeats its answer where it is asked for a title.
_MIN_PARAMETERS = 1_000_000_000
# Notes take this part of the context at most: a quarter.
_NOTES_SHARE = 4
_NOT_STARTED = "Settings > Tools says why."


class Replies(QObject):
    """The replies of all chats that are being written, one at a time.

    Args:
        store: The conversations.
        storage: Reports that replies cannot be stored.
        drafting: The loaded model and its draft settings; it is informed how each reply was drafted.
        earlier: The earlier replies that drafts may come from.
        caches: Says where KV caches are kept on disk.
        servers: The servers of tools.

    Attributes:
        drafting: The argument.
        recorder: Stores the replies.
        traces: Stores their tokens.
        borrowed: Loads another model for one of them.
        caches: The argument.
        tools: The tools of chats.
        file_text: Reads the text of a file in a prompt.
        image_of: Gives an image in a prompt as a file; not on the main thread.

    Signals:
        grew: A reply has gained this text.
        changed: Something else than its text has changed, while it is written.
        ended: It has ended.
        written: It has ended, and the engine worked on it.
        prefill_progressed: The engine has read more of its prompt.
        statistics_changed: The engine has other counters of it, or its last ones.
        state_changed: `state` may have changed.
        tools_left_out: A reply begins without the tools of a server that does not work.
        sending_asked: A reply waits until the person agrees that the chat goes to a remote server (`agree`).
        chat_allowed: A chat may go to another server, as its options now say.
    """

    grew = Signal(Message, str)
    changed = Signal(Message)
    ended = Signal(Message)
    written = Signal(Message)
    prefill_progressed = Signal(PrefillProgress)
    statistics_changed = Signal(Statistics)
    state_changed = Signal()
    tools_left_out = Signal(Notice)
    sending_asked = Signal(Reply)
    chat_allowed = Signal(Conversation)

    def __init__(
        self,
        store: ConversationStore,
        storage: StorageWatch,
        drafting: DraftControl,
        earlier: EarlierReplyIndex,
        caches: DiskCacheControl,
        *,
        servers: ToolServers,
    ) -> None:
        super().__init__(drafting)
        self._store = store
        self._storage = storage
        self.model = drafting.model
        self.drafting = drafting
        self._earlier = earlier
        self.caches = caches
        self.recorder = ReplyRecorder(store, storage)
        self.traces = TraceRecorder(store, self)
        self.borrowed = BorrowedModel(self.model, self)
        self.ended.connect(self.borrowed.end_reply)
        self.file_text = store.file_text
        self.image_of = PromptImages(store).image
        self._project_files = ProjectFiles(store.file_text)
        # Counts tokens for the engine's thread, which asks for Stop meanwhile.
        self._counting = SerialThread("counting")
        self.tools = ChatTools(servers, lambda chat: self.order.tools(chat))  # noqa: PLW0108  the order changes
        servers.changed.connect(self._on_model_changed)
        storage.recovered.connect(self.traces.save_traces)
        for changed in (self.model.load_started, self.model.loaded, self.model.failed, self.model.unload_started):
            changed.connect(self._on_model_changed)

    @property
    def state(self) -> EngineState:
        if self.model.loading:
            return EngineState.LOADING
        if self.model.info is None:
            return EngineState.NO_MODEL
        if not (live := self.live):
            return EngineState.IDLE
        return EngineState.WRITING if live[-1].writing else EngineState.PREFILL

    @property
    def live(self) -> list[Reply]:
        """The replies that have not ended, oldest first."""
        return [each for each in self.recorder.live if each.message.role is Role.ASSISTANT]

    @property
    def free(self) -> bool:
        """Whether nothing else would have to end before another reply."""
        return not self.live and not self.model.engine.measuring

    @property
    def may_write_aside(self) -> bool:
        """Whether the model is idle, runs here, and is large enough to be asked for a title or for notes."""
        model = self.model.info
        large = model is not None and not model.server and model.parameters >= _MIN_PARAMETERS
        return large and self.free and self.state is EngineState.IDLE

    def ask_aside(
        self,
        messages: tuple[ChatMessage, ...],
        max_tokens: int,
        on_event: Callable[[EngineEvent], object],
        mode: Mode = Mode.OFF,
        **options: Any,
    ) -> EngineRequest:
        """Ask the model for text outside of chats; any other request stops it. `options` go to `GenerationRequest`."""
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        request = GenerationRequest(messages, sampling, draft=DraftSettings(mode), **options)
        return self.model.engine.submit(request, on_event, background=True)

    def ask_of_chat(
        self,
        conversation: Conversation,
        messages: tuple[ChatMessage, ...],
        max_tokens: int,
        on_event: Callable[[EngineEvent], object],
    ) -> EngineRequest:
        """Ask the loaded model for text with a chat's own prompt, of which `messages` are more, so that its KV cache is
        read on; any other request stops it.
        """
        info = self.model.info
        options = self._options_of_prompt(conversation, info) if info else {}
        return self.ask_aside(messages, max_tokens, on_event, Mode.AUTO, **options)

    @property
    def chats_being_written(self) -> set[int]:
        """Ids of the chats with a reply or a call of a tool that has not ended."""
        return {each.message.conversation_id for each in self.recorder.live}

    @property
    def order(self) -> OptionOrder:
        """The options that chats use with the loaded model."""
        info = self.model.info

        def find_folder(folder_id: int) -> Folder | None:
            return self._storage.read_or_default(lambda: self._store.organiser.find_folder(folder_id), None)

        return OptionOrder(self.drafting.control.values, self.model.sampling, info.path if info else None, find_folder)

    def load_model(self, chat: Conversation = NEW_CHAT) -> None:
        """Load the model of a chat's project if it is not the chosen one, unless another reply is written.

        Otherwise, if no model is loaded, load the chosen one. A project takes the model from no other chat: where its
        own is not here, nothing is loaded, and where that fails, the model from before is loaded again.
        """
        model = self.order.model_name(chat)
        if self.missing_model(chat):
            return
        if model not in {None, self.model.chosen} and not self.live:
            self.model.load_model(model, tries=True)
        elif self.state is EngineState.NO_MODEL:
            self.model.retry()

    def missing_model(self, chat: Conversation) -> str:
        """Return that the model of a chat's project is gone; empty where it is here, or the project has none."""
        model = self.order.model_name(chat)
        is_loaded = self.model.info is not None and model == self.model.chosen
        servers = [each.name for each in self.drafting.control.values.remote_servers]
        if model is None or is_loaded or is_known(model, servers):
            return ""
        return f"The model of this project is not here: {model[:200]}. Choose another one in Project Settings."

    def write_reply(
        self, reply: Message, conversation: Conversation, path: MessagePath, other: OtherModel | None = None
    ) -> None:
        """Have a reply written once the model is there; without a model, or without its project's, it fails.

        Args:
            reply: The message, with its own options. A text that it has is continued.
            conversation: Its chat, with the person's options. If it is not stored, the reply is not either, until
                `ReplyRecorder.continue_reply`.
            path: The messages of the prompt; the last one may be the reply itself, with its text. They are read on the
                engine thread, as all of a long chat is read from the disk.
            other: Another model to load for this reply; the chat's own is loaded again when it has ended.
        """
        self.borrowed.begin_reply(reply.id, other)
        own = reply.made_with.system_prompt if reply.made_with is not None else None
        order = self.order
        system_prompt = order.effective_values(conversation).system_prompt if own is None else own
        files = order.files(conversation)
        prompt = ChatPrompt(from_cut(path), system_prompt, files=files, notes=self.notes(conversation))
        # Between the rounds of calls a server that failed is not tried again.
        if not prompt.ends_with_result:
            self.tools.start_servers(conversation)
        live = self.recorder.begin_reply(reply, prompt, conversation)
        if conversation.id:
            self.traces.begin_trace(reply.id, live.begins_at)
        if other is None and (problem := self.missing_model(conversation)):
            self._fail(live, problem)
        else:
            self._send(live)
        self.state_changed.emit()

    def stop_replies(self, conversation_id: int | None = None) -> None:
        """Stop the replies of one conversation, or all.

        One that the engine has begun ends with the engine's last event, the others end here.
        """
        for live in self.live:
            if conversation_id in {None, live.message.conversation_id}:
                live.stopping = True
                if live.request is not None:
                    live.request.cancel()
                if live.request is None or not live.request.begun:
                    self._finish(live, None)
        self.state_changed.emit()

    def forget_chat(self, conversation_id: int) -> None:
        """End the replies of a chat that is gone, and keep nothing of them; the engine stops in its own time."""
        for live in [each for each in self.recorder.held if each.message.conversation_id == conversation_id]:
            self.recorder.held.remove(live)
            if live.request is not None:
                live.request.cancel()
            if not live.ended:
                live.break_off(MessageStatus.INTERRUPTED)
                self.ended.emit(live.message)
            self.traces.drop_trace(live.message.id)
        self.state_changed.emit()

    def new_chat(self, chat: Conversation = NEW_CHAT) -> Conversation:
        """Return a chat before its first message, allowed to go to the server of the loaded model without a question.

        It is returned as it is where no remote model is loaded, where its project loads another one, and where it has
        notes or its project has files: these go to a server only once the person was asked.
        """
        model = self.model.info
        is_other = self.order.model_name(chat) not in {None, self.model.chosen}
        if model is None or not model.server or is_other or self.order.files(chat) or self.notes(chat):
            return chat
        return chat.allowed(model.device)

    def may_send(self, chat: Conversation, prompt: ChatPrompt | None = None) -> bool:
        """Return whether a chat may go to the loaded model without a question, with a prompt or all it has now."""
        model = self.model.info
        if model is None or not model.server:
            return True
        prompt = prompt or ChatPrompt((), "", files=self.order.files(chat), notes=self.notes(chat))
        return prompt.permission(model.device) in chat.own.sent_to

    def agree(self, waiting: Reply, address: str) -> None:
        """Let a chat go to a remote server from now on; the reply that waits for it is written."""
        # The files and notes of the prompt that the person was asked about; the chat may have others by now.
        permission = waiting.prompt.permission(address)
        chat = waiting.conversation.allowed(permission)
        if chat.id:
            with self._storage.writing():
                chat = self._store.set_chat_options(self._store.conversation(chat.id).allowed(permission))
        for live in self.live:
            if live.conversation.id == chat.id:
                live.conversation = chat
        self.chat_allowed.emit(chat)
        self._on_model_changed()

    def notes(self, chat: Conversation | None = None) -> list[Note]:
        """Return the notes that a chat has, or all with those from imports, the newest last."""
        folders = self.order.note_folders(chat) if chat else ()
        notes = self._storage.read_or_default(self._store.organiser.notes, ())
        return [each for each in notes if chat is None or (each.kept and each.folder_id in folders)]

    def counter(self, conversation: Conversation) -> Count:
        """Return a function for any thread that counts the tokens of a conversation with the chat's tools.

        Without tools and with the usual size of images it is the engine's own.
        """
        tools = tools_json(self.tools.definitions(conversation))
        count = self.model.engine.count_tokens
        cap = self._image_cap
        if not tools and cap is ImageCap.MEDIUM:
            return count
        request = partial(GenerationRequest, tools=tools, image_cap=cap)
        return lambda messages: count(request(tuple(messages)) if messages else messages)

    def complete(
        self, prompt: ChatPrompt, count: Count, check: Callable[[], None], *, counted: bool = True
    ) -> FilledPrompt:
        """Return a prompt with its files, its project's, and the newest notes that fit; not on the main thread.

        See `PromptImages.image` for `counted`.
        """
        model = self.model.info
        shared = ProjectTexts()
        if model is not None:
            limit = min(self.drafting.control.values.notes_tokens, model.context_length // _NOTES_SHARE)
            notes = prompt.notes
            # Leaving out more of the oldest notes never adds tokens: search for the fewest to leave out.
            fits = lambda first: tokens_of(notes_text(notes[first:]), count).tokens <= limit  # noqa: E731
            prompt = replace(prompt, notes=notes[bisect_left(range(len(notes)), True, key=fits) :])
            length = model.context_length
            goes_back = model.goes_back
            shared = self._project_files.texts(prompt, str(model.path), length, count, check, for_all=not goes_back)
        image_of = partial(self.image_of, counted=counted)
        return prompt.with_files(self.file_text, check, image_of=image_of, shared=shared)

    @property
    def _image_cap(self) -> ImageCap:
        return self.drafting.control.values.image_cap

    def _send(self, live: Reply) -> None:
        """Give a reply to the engine, with the options that apply now, if nothing is missing, in this order:

        1. A model: it waits while one is loaded, and fails without one.
        2. The person's consent, if the model is on a remote server.
        3. The chat's servers of tools that are starting; those that failed are left out, with a notice.

        Where it waits, `_on_model_changed` calls this again. The request has two parts: `fixed` here, on the main
        thread, and `filled` on the engine's, which reads the prompt when the reply's turn comes.
        """
        if (model := self.model.info) is None:
            if not self.model.loading:
                self._fail(live, str(self.model.failure or "No model is loaded."))
            return
        prompt = live.prompt
        conversation = live.conversation
        if not self.may_send(conversation, prompt):
            self.sending_asked.emit(live)
            return
        if self.tools.names(conversation, "starting"):
            return
        failed = ", ".join(self.tools.names(conversation, "failed"))
        if failed and not prompt.ends_with_result:
            self.tools_left_out.emit(Notice(f"This reply has no tools of {failed}", _NOT_STARTED))
        order = self.order
        values = order.effective_values(conversation)
        draft = self.drafting.requested(values.draft)
        # An answer with a format cannot have calls.
        live.offered = {} if values.answer_shape else self.tools.definitions(conversation)
        fixed = partial(
            GenerationRequest,
            sampling=live.set_sampling(values.sampling),
            seed=live.message.seed or 0,
            draft=draft,
            continue_last=live.begins_at > 0,
            shape=values.answer_shape,
            earlier=self._earlier.index,
            **self._options_of_prompt(conversation, model),
        )
        count = self.counter(conversation)
        # A system prompt of the chat's own is nothing to keep with the project.
        shares = prompt.system_prompt == order.usual(conversation).system_prompt
        folder = order.project_folder(conversation)

        def read(check: Callable[[], None]) -> GenerationRequest:
            # A count that was stopped ends in its own time: the next one waits less for it than for another process.
            asking: Count = lambda messages: self._counting.do(lambda _: count(messages)).result(check)  # noqa: E731
            filled = self.complete(prompt, asking, check, counted=False)
            if not prompt.ends_with_result:
                live.passages = tuple(f"{file.name}: {file.taken}" for file in filled.shared.found)
            keep = self.caches.folder(conversation, folder, filled.notes)
            return fixed(messages=filled.turns(check), keep=keep, shared=filled.beginning if shares else ())

        live.request = self.model.engine.submit(WriteReply(read), lambda event: self._on_event(live, event))
        self.drafting.follow_reply(live.request, draft, conversation.id, values.draft)

    def _options_of_prompt(self, conversation: Conversation, model: ModelInfo) -> dict[str, Any]:
        """Return what decides a chat's prompt besides its messages, by the names of `GenerationRequest`."""
        values = self.order.effective_values(conversation)
        # The choice of thinking may have been made for another model, or for one without a switch. Off still holds for
        # such a model, as a limit of 0 tokens for thinking (`is_off`).
        thinking = values.thinking_choice if values.thinking_choice in model.thinking else None
        is_off = values.thinking_choice is ThinkingChoice.OFF and thinking is None
        return {
            "thinking": thinking,
            "thinking_tokens": 0 if is_off else values.thinking_tokens,
            "tools": "" if values.answer_shape else tools_json(self.tools.definitions(conversation)),
            "image_cap": self._image_cap,
        }

    def _on_event(self, live: Reply, event: EngineEvent) -> None:
        """Take an event of a reply's request: of the prompt, of new text, or the end."""
        # These two also for a reply that ended here before, since it was stopped or its chat is gone.
        if isinstance(event, ReplyEnd | Failure):
            self.drafting.note_reply(live.request, event)
            # No other reply needs the images of a temporary chat as files any more.
            if all(each is live for each in self.live):
                self._store.delete_temporary_images()
        if live.ended:
            return
        match event:
            case PrefillProgress():
                self.prefill_progressed.emit(event)
                if event.in_thought and not live.message.thinking.begun:
                    live.begin_thought()
                    self.changed.emit(live.message)
            case ReplyProgress():
                self._on_progress(live, event)
            case ReplyEnd():
                self.statistics_changed.emit(event.statistics)
                self._finish(live, event)
            case Failure():
                self._fail(live, str(event))
        if isinstance(event, ReplyEnd | Failure):
            self.written.emit(live.message)
            self.state_changed.emit()

    def _on_progress(self, live: Reply, progress: ReplyProgress) -> None:
        """Add new tokens to a reply's text and trace, and emit what changed."""
        is_first = not live.writing
        in_thought = live.in_thought
        length = len(live.message.text)
        self.recorder.append_text(live, progress.tokens, progress.written_at)
        self.traces.append_tokens(live.message.id, progress.tokens)
        # The end of a thought changes more than the text, and so do the passages: the message is shown anew.
        if (is_first and live.set_passages()) or (in_thought and not live.in_thought):
            self.changed.emit(live.message)
        elif text := live.message.text[length:]:
            self.grew.emit(live.message, text)
        self.statistics_changed.emit(progress.statistics)
        if is_first:
            self.state_changed.emit()

    def _finish(self, live: Reply, end: ReplyEnd | None) -> None:
        """End a reply as the engine reports, or as stopped if the engine never had it."""
        if end is None:
            self.traces.end_trace(live.message.id)
        else:
            self.traces.end_trace(live.message.id, len(end.token_ids), end.trailing_text)
        cancelled = end is not None and end.finish_reason is FinishReason.CANCELLED and not end.token_ids
        if cancelled and not live.stopping:  # Nobody stopped it: rdchat closes before it has begun.
            live.break_off(MessageStatus.INTERRUPTED)
        else:
            live.end_reply(end, self.model.info)
        self.recorder.save_texts()
        is_complete = live.message.status is MessageStatus.COMPLETE
        # Not of a continued reply: the engine has only its last part.
        if end is not None and not live.begins_at and is_complete:
            self._earlier.add_reply(live.message.id, end.token_ids)
        self.ended.emit(live.message)

    def _fail(self, live: Reply, error: str) -> None:
        self.traces.end_trace(live.message.id)
        live.break_off(MessageStatus.FAILED, error)
        self.recorder.save_texts()
        self.ended.emit(live.message)

    def _on_model_changed(self) -> None:
        """Send the replies that waited, or end them where no model comes; stop a sent one whose model is gone."""
        for live in self.live:
            if live.request is None:
                self._send(live)
            elif self.model.info is None and not live.stopping:
                # The engine stops it before it loads or frees a model.
                why = "another model was loaded" if self.model.loading else "the model was unloaded"
                live.stopping = True
                live.message = replace(live.message, error=f"Stopped: {why}.")
                if not live.request.begun:
                    self._finish(live, None)
        self.state_changed.emit()
