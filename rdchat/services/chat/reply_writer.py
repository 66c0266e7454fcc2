"""Has replies written by the engine as soon as there is a model, and takes them into the recorder."""

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Drafting, Message, Notice
from rdchat.errors import RdchatError
from rdchat.inference.api.events import FinishReason, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, GenerationRequest, Role, SamplingParams, ThinkingChoice
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.reply_recorder import LiveReply, ReplyRecorder
from rdchat.services.chat.trace_recorder import TraceRecorder
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import EngineState, Failure, ReplyProgress
from rdchat.services.engine.model_slot import ModelSlot

_UNREAD = "…"  # stands in a request, which is never empty, until its messages are read
_MEASURING = "A race or a benchmark is running"


class ReplyWriter(QObject):
    """Sends requests, follows their events and knows what the engine is busy with."""

    text_added = Signal(int, str)  # message id, new characters
    reply_changed = Signal(Message)  # something else than its text, while it is written
    reply_ended = Signal(Message)
    statistics_changed = Signal(Statistics)
    changed = Signal()  # the state may be another

    def __init__(
        self,
        engine: EngineClient,
        model: ModelSlot,
        drafting: DraftControl,
        recorder: ReplyRecorder,
        traces: TraceRecorder,
        *,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._model = model
        self._drafting = drafting
        self._recorder = recorder
        self._traces = traces
        self._reading = BackgroundWork("what the model is told", self)
        self._closed = False
        engine.prefill_progressed.connect(self._on_prefill_progressed)
        engine.reply_progressed.connect(self._on_progressed)
        engine.reply_finished.connect(self._on_finished)
        engine.reply_failed.connect(self._on_failed)
        model.load_started.connect(self._on_load_started)
        model.loaded.connect(self._on_model_loaded)
        model.failed.connect(self._on_model_failed)
        model.unload_started.connect(self._on_unload_started)

    @property
    def state(self) -> EngineState:
        if self._model.loading:
            return EngineState.LOADING
        if self._model.info is None:
            return EngineState.NO_MODEL
        live = self._recorder.live
        if not live:
            return EngineState.IDLE
        return EngineState.WRITING if live[-1].writing else EngineState.PREFILL

    def reason_to_refuse(self, prompt: str, conversation_id: int | None) -> str:
        """Say why a prompt cannot be sent now; empty if it can."""
        if not prompt.strip():
            return "Type something to ask."
        if live := self._recorder.live:
            if live[-1].stopping:
                return "The last reply is still being stopped. Try again in a moment."
            where = "" if live[-1].message.conversation_id == conversation_id else " in another chat"
            return f"A reply is still being written{where}. Wait for it, or stop it first."
        if self._engine.measuring:
            return f"{_MEASURING}. Wait for its end, or stop it in its window."
        return "No model is loaded. Choose one first." if self.state is EngineState.NO_MODEL else ""

    def notice_against(self, *, without_model: bool) -> Notice | None:
        """Say why no other reply can be written now; None if one can, `without_model` once its model is there."""
        if self.state is EngineState.NO_MODEL and not without_model:
            return Notice("No model is loaded", "Choose a model, then try again.")
        if self._engine.measuring:
            return Notice(_MEASURING, "Wait for its end, or stop it in its window, then try again.")
        return None

    def write(
        self,
        read: Callable[[Callable[[], object]], tuple[ChatMessage, ...]],
        sampling: SamplingParams,
        reply: Message,
        *,
        continued: bool = False,
        thinking: ThinkingChoice | None = None,
    ) -> None:
        """Have `reply` written once what the model is told is read and the model is there; without one it fails.

        Args:
            read: Returns what the model is told; called on a thread, as all of a long chat is read from the disk. It
                is given a function that it calls now and then, and that raises once the reply is not wanted.
            sampling: How it is sampled.
            reply: The message.
            continued: It is written on.
            thinking: The person's choice.
        """
        request_id = self._engine.new_request_id()
        unread = (ChatMessage(Role.ASSISTANT if continued else Role.USER, _UNREAD),)
        request = GenerationRequest(unread, sampling, reply.seed or 0, request_id, continued, thinking=thinking)
        live = self._recorder.begin(request, reply)
        self._traces.begin(reply.id, live.begins_at)
        if self._model.info is None and not self._model.loading:
            self._fail(live, self._model.failure)
        else:
            self._reading.do(lambda: self._read(live, read), lambda outcome: self._on_read(live, outcome))
        self.changed.emit()

    def close(self) -> None:
        """Read no more; replies that were not sent end with the recorder."""
        self._closed = True
        self._reading.close()

    def _read(
        self, live: LiveReply, read: Callable[[Callable[[], object]], tuple[ChatMessage, ...]]
    ) -> GenerationRequest:
        def check() -> None:
            if live.ended or self._closed:
                raise RdchatError("The reply was stopped.")

        check()  # it may have been stopped while others were read
        return replace(live.request, messages=read(check))

    def _on_read(self, live: LiveReply, outcome: GenerationRequest | RdchatError) -> None:
        if live.ended:
            return
        if isinstance(outcome, RdchatError):
            self._fail(live, Failure(live.request.request_id, outcome.message, outcome.hint))
            self.changed.emit()
            return
        live.request, live.read = outcome, True
        if self._model.info is not None:
            self._send(live)
            self.changed.emit()

    def stop(self, conversation_id: int | None = None) -> None:
        """Stop the replies of one conversation, or all; each ends in its own time."""
        for live in self._recorder.live:
            if conversation_id in {None, live.message.conversation_id}:
                live.stopping = True
                if live.sent:
                    self._engine.stop(live.request.request_id)
                else:
                    self._finish(live, None)
        self.changed.emit()

    def _send(self, live: LiveReply) -> None:
        live.sent = True
        thinking, model = live.request.thinking, self._model.info
        if model is None or thinking not in model.thinking:
            thinking = None  # it was chosen for another model
        draft = self._drafting.begin(live.request.request_id)
        live.request = replace(live.request, draft=draft, thinking=thinking)
        self._engine.generate(live.request)

    def _finish(self, live: LiveReply, end: ReplyEnd | None) -> None:
        """End a reply as the engine says, or as stopped where the engine never had it."""
        if end is None:
            self._traces.end(live.message.id)
            self._recorder.finish(live, "", FinishReason.CANCELLED)
        elif end.finish_reason is FinishReason.CANCELLED and not (end.token_ids or live.stopping):
            self._traces.end(live.message.id)  # nobody stopped it: rdchat closes before it has begun
            self._recorder.interrupt(live)
        else:
            self._traces.end(live.message.id, len(end.token_ids), end.trailing_text)
            self._recorder.finish(
                live,
                end.text,
                end.finish_reason,
                statistics=end.statistics,
                drafting=Drafting(end.mode, end.mode_reason or "", end.drafter or "", kind=end.kind),
                model=self._model.info.name if self._model.info else None,
                control_offsets=end.control_offsets,
            )
        self.reply_ended.emit(live.message)

    def _fail(self, live: LiveReply, failure: Failure | None) -> None:
        words = f"{failure.message} {failure.hint}".strip() if failure else "No model is loaded."
        self._traces.end(live.message.id)
        self._recorder.fail(live, words)
        self.reply_ended.emit(live.message)

    @Slot(PrefillProgress)
    def _on_prefill_progressed(self, progress: PrefillProgress) -> None:
        live = self._recorder.find(progress.request_id)
        if live is not None and progress.in_thought and not live.message.thinking.begun:
            self._recorder.begin_in_thought(live)
            self.reply_changed.emit(live.message)

    @Slot(ReplyProgress)
    def _on_progressed(self, progress: ReplyProgress) -> None:
        if (live := self._recorder.find(progress.request_id)) is None:
            return
        is_first, in_thought = not live.writing, live.in_thought
        self._recorder.add_text(live, progress.text, progress.written_at)
        self._traces.add(live.message.id, progress.tokens)
        if progress.text:
            self.text_added.emit(live.message.id, progress.text)
        if in_thought and not live.in_thought:
            self.reply_changed.emit(live.message)  # how long it thought is known now
        self.statistics_changed.emit(progress.statistics)
        if is_first:
            self.changed.emit()

    @Slot(ReplyEnd)
    def _on_finished(self, end: ReplyEnd) -> None:
        if (live := self._recorder.find(end.request_id)) is None:
            return
        self._finish(live, end)
        self.statistics_changed.emit(end.statistics)
        self.changed.emit()

    @Slot(Failure)
    def _on_failed(self, failure: Failure) -> None:
        if failure.request_id is not None and (live := self._recorder.find(failure.request_id)) is not None:
            self._fail(live, failure)
            self.changed.emit()

    @Slot()
    def _on_load_started(self) -> None:
        for live in self._recorder.live:
            live.stopping = live.stopping or live.sent  # the engine stops what runs before it loads
        self.changed.emit()

    @Slot()
    def _on_unload_started(self) -> None:
        for live in self._recorder.live:
            if live.sent:
                live.stopping = True  # the engine stops what runs before it frees the model
            else:
                self._fail(live, None)
        self.changed.emit()

    @Slot(ModelInfo)
    def _on_model_loaded(self, _info: ModelInfo) -> None:
        for live in self._recorder.live:
            if live.read and not live.sent:
                self._send(live)
        self.changed.emit()

    @Slot(Failure)
    def _on_model_failed(self, failure: Failure) -> None:
        for live in self._recorder.live:
            if not live.sent:
                self._fail(live, failure)
        self.changed.emit()
