"""Has replies written by the engine as soon as there is a model."""

from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Conversation, MadeWith, Message, MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError
from rdchat.inference.api.events import FinishReason, PrefillProgress, ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import GenerationRequest, SamplingParams
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.earlier_replies import EarlierReplyIndex
from rdchat.services.chat.reply_recorder import LiveReply, ReplyRecorder
from rdchat.services.chat.storage_watch import SettingsControl, StorageWatch
from rdchat.services.chat.trace_recorder import TraceRecorder
from rdchat.services.engine.engine_events import EngineEvent, EngineState, Failure, ReplyProgress
from rdchat.services.engine.model_slot import ModelSlot


class Replies(QObject):
    """The replies of all chats that are being written, one at a time.

    Args:
        store: The conversations.
        storage: Reports where replies cannot be stored.
        model: Has the loaded model and its engine, which writes.
        drafting: Has the draft settings, and learns how each reply was drafted.
        preferences: Have the person's sampling.
        earlier: Has the earlier replies that drafts may come from.

    Attributes:
        recorder: Stores the replies.
        traces: Stores their tokens.
        file_text: Reads the text of a file in a prompt.
    """

    grew = Signal(Message, str)  # it has gained this text
    changed = Signal(Message)  # something else than its text, while it is written
    ended = Signal(Message)
    prefill_progressed = Signal(PrefillProgress)
    engine_ended = Signal(object)  # the `ReplyEnd` or `Failure` of a reply that the engine had
    statistics_changed = Signal(Statistics)  # of the reply that is being written
    state_changed = Signal()  # the state may be another

    def __init__(
        self,
        store: ConversationStore,
        storage: StorageWatch,
        model: ModelSlot,
        drafting: DraftControl,
        preferences: SettingsControl,
        *,
        earlier: EarlierReplyIndex,
    ) -> None:
        super().__init__(drafting)
        self._earlier = earlier
        self.model, self._drafting, self._preferences = model, drafting, preferences
        self.recorder, self.traces = ReplyRecorder(store, storage, self), TraceRecorder(store, self)
        self.file_text = store.file_text
        storage.recovered.connect(self.traces.save)
        self._reading = BackgroundWork("prompts", self)
        self._closed = False
        drafting.loading_changed.connect(self.state_changed)
        for changed in (model.load_started, model.loaded, model.failed, model.unload_started):
            changed.connect(self._on_model_changed)

    @property
    def state(self) -> EngineState:
        if self.model.loading or self._drafting.loading:
            return EngineState.LOADING
        if self.model.info is None:
            return EngineState.NO_MODEL
        if not (live := self.live):
            return EngineState.IDLE
        return EngineState.WRITING if live[-1].writing else EngineState.PREFILL

    @property
    def live(self) -> list[LiveReply]:
        """The replies that have not ended, oldest first."""
        return self.recorder.live

    @property
    def free(self) -> bool:
        """Whether nothing else would have to end before another reply."""
        return not self.live and not self.model.engine.measuring

    @property
    def chats_being_written(self) -> set[int]:
        """Ids of the chats with a reply that has not ended."""
        return {reply.message.conversation_id for reply in self.live}

    @property
    def usual_sampling(self) -> SamplingParams:
        """The sampling of a chat without one of its own: the person's values over the model's."""
        return self._preferences.settings.sampling_for(self.model.sampling)

    def write(self, reply: Message, prompt: ChatPrompt, sampling: SamplingParams | None, about: Conversation) -> None:
        """Have a reply written once its prompt is read and the model is there; without a model it fails.

        Args:
            reply: The message. A text that it has is written on; it is at the end of the prompt then.
            prompt: It is read on a thread, as all of a long chat is read from the disk.
            sampling: How tokens are chosen; None for the usual way with the model that writes it.
            about: The chat, for the person's choice of thinking and of the answers' shape.
        """
        live = self.recorder.begin(reply, sampling)
        self.traces.begin(reply.id, live.begins_at)
        if self.model.info is None and not self.model.loading:
            self._fail(live, self.model.failure)
        else:

            def check() -> None:
                if live.ended or self._closed:
                    raise RdchatError("The reply was stopped.")

            def read() -> GenerationRequest:
                check()  # it may have been stopped while others were read
                turns = prompt.with_files(self.file_text, check).turns(check)
                continues = live.begins_at > 0
                thinking, shape = about.thinking_choice, about.answer_shape
                return GenerationRequest(
                    turns, seed=reply.seed or 0, continue_last=continues, thinking=thinking, shape=shape
                )

            self._reading.do(read, lambda outcome: self._on_read(live, outcome))
        self.state_changed.emit()

    def close(self) -> None:
        """Read no more; replies that were not sent end with the recorder."""
        self._closed = True
        self._reading.close()

    def _on_read(self, live: LiveReply, outcome: GenerationRequest | RdchatError) -> None:
        if live.ended:
            return
        if isinstance(outcome, RdchatError):
            self._fail(live, Failure(outcome.message, outcome.hint))
        else:
            live.generation = outcome
            self._send(live)
        self.state_changed.emit()

    @Slot(int)
    def stop(self, conversation_id: int | None = None) -> None:
        """Stop the replies of one conversation, or all; each ends in its own time."""
        for live in self.live:
            if conversation_id in {None, live.message.conversation_id}:
                live.stopping = True
                if live.request is not None:
                    live.request.cancel()
                else:
                    self._finish(live, None)
        self.state_changed.emit()

    def _send(self, live: LiveReply) -> None:
        """Give a reply to the engine, if it is read and there is a model."""
        generation, model = live.generation, self.model.info
        if generation is None or model is None or live.request is not None:
            return
        thinking = generation.thinking if generation.thinking in model.thinking else None  # chosen for another model
        draft, sampling = self._drafting.requested, live.sampling or self.usual_sampling
        earlier = self._earlier.index
        generation = replace(generation, draft=draft, thinking=thinking, sampling=sampling, earlier=earlier)
        made_with = replace(live.message.made_with or MadeWith(), sampling=sampling)
        live.message = replace(live.message, made_with=made_with)
        live.request = self.model.engine.submit(generation, lambda event: self._on_event(live, event))
        self._drafting.begin(live.request, draft)

    def _on_event(self, live: LiveReply, event: EngineEvent) -> None:
        if live.ended:
            return
        match event:
            case PrefillProgress():
                self.prefill_progressed.emit(event)
                if event.in_thought and not live.message.thinking.begun:
                    self.recorder.begin_in_thought(live)
                    self.changed.emit(live.message)
            case ReplyProgress():
                self._on_progress(live, event)
            case ReplyEnd() | Failure():
                self._drafting.end(live.request, event)
                self.engine_ended.emit(event)
                if isinstance(event, ReplyEnd):
                    self._finish(live, event)
                else:
                    self._fail(live, event)
                self.state_changed.emit()

    def _on_progress(self, live: LiveReply, progress: ReplyProgress) -> None:
        is_first, in_thought = not live.writing, live.in_thought
        self.recorder.add_text(live, progress.text, progress.written_at)
        self.traces.add(live.message.id, progress.tokens)
        if in_thought and not live.in_thought:
            self.changed.emit(live.message)  # how long it thought is known now
        elif progress.text:
            self.grew.emit(live.message, progress.text)
        self.statistics_changed.emit(progress.statistics)
        if is_first:
            self.state_changed.emit()

    def _finish(self, live: LiveReply, end: ReplyEnd | None) -> None:
        """End a reply as the engine says, or as stopped where the engine never had it."""
        kept, trailing_text = (len(end.token_ids), end.trailing_text) if end else (None, "")
        self.traces.end(live.message.id, kept, trailing_text)
        cancelled = end is not None and end.finish_reason is FinishReason.CANCELLED
        if cancelled and not (kept or live.stopping):  # nobody stopped it: rdchat closes before it has begun
            self.recorder.break_off(live, MessageStatus.INTERRUPTED)
        else:
            self.recorder.finish(live, end, self.model.name)
            if end is not None and not live.begins_at:  # of a continued reply the engine has the last part only
                self._earlier.add(live.message.id, end.token_ids)
        self.ended.emit(live.message)

    def _fail(self, live: LiveReply, failure: Failure | None) -> None:
        error = f"{failure.message} {failure.hint}".strip() if failure else "No model is loaded."
        self.traces.end(live.message.id)
        self.recorder.break_off(live, MessageStatus.FAILED, error)
        self.ended.emit(live.message)

    @Slot()
    def _on_model_changed(self) -> None:
        """Send the replies that waited for the model, or end them where none comes."""
        for live in self.live:
            if live.request is not None:
                if self.model.info is None and not live.stopping:  # the engine stops what runs before it loads or frees
                    live.stopping = True
                    why = "another model was loaded" if self.model.loading else "the model was unloaded"
                    live.message = replace(live.message, error=f"Stopped: {why}.")
            elif self.model.info is not None:
                self._send(live)
            elif not self.model.loading:
                self._fail(live, self.model.failure)
        self.state_changed.emit()
