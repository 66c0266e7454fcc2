"""What the app does now, as one value that all places show."""

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from rdchat.inference.api import LoadProgress, PrefillProgress
from rdchat.services.chat.chat_context import ChatContext, Doing
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.tool_call_control import ToolCalls
from rdchat.services.engine.engine_request import EngineState

# What a message that is sent now waits for, where that is not a reply.
_SENT_WHEN = {
    EngineState.LOADING: "rdchat is ready",
    EngineState.NO_MODEL: "the model is loaded",
    EngineState.MEASURING: "the measurement is finished",
    EngineState.RUNNING: "the tool is finished",
}


@dataclass(frozen=True, slots=True)
class Status:
    """What the app does now.

    Attributes:
        state: The state; `IDLE` only if a question would be answered at once.
        text: Its name, with how far it is.
        share: How much of it is done, from 0 to 1; None where that is unknown.
        detail: The step of a load that is done now.
        sent_when: What a message that is sent now waits for, such as `the tool is finished`; empty for nothing.
    """

    state: EngineState
    text: str
    share: float | None = None
    detail: str = ""
    sent_when: str = ""


class AppStatus(QObject):
    """Finds the status, from what the engine does and from the open chat; `changed` says that `value` is another one.

    Args:
        chat: The open chat, with the replies of all chats.
        calls: The calls of tools.
        context: Shortens the open chat.
    """

    changed = Signal()

    def __init__(self, chat: OpenChat, calls: ToolCalls, context: ChatContext) -> None:
        super().__init__(chat)
        self._chat = chat
        self._replies = chat.replies
        self._calls = calls
        self._context = context
        self._model = chat.replies.model
        # What the engine reported last in the present state, and the largest share of a load.
        self._progress: object = None
        self._reached = 0.0
        self.value = Status(EngineState.LOADING, EngineState.LOADING)
        self._model.load_started.connect(lambda: self._note_progress(None))
        for progressed in (self._model.load_progressed, chat.replies.prefill_progressed):
            progressed.connect(self._note_progress)
        engine = self._model.engine
        for changed in (
            chat.replies.state_changed,
            chat.replies.drafting.changed,
            calls.changed,
            context.changed,
            engine.request_accepted,
            engine.request_ended,
            engine.asleep_changed,
        ):
            changed.connect(self._refresh)

    def _note_progress(self, progress: object) -> None:
        self._progress = progress
        self._refresh()

    def _refresh(self) -> None:
        state = self._state()
        if state is not self.value.state:
            self._progress = None
        sent_when = _SENT_WHEN.get(state, "the current reply is finished" if self._replies.live else "")
        if self._context.is_awaited:
            sent_when = "the chat is shortened"
        value = Status(state, *self._described(state), sent_when)
        if value != self.value:
            self.value = value
            self.changed.emit()

    def _state(self) -> EngineState:
        state = self._replies.state
        if state is EngineState.PREFILL:
            return self._waiting_state()
        return self._idle_state() if state is EngineState.IDLE else state

    def _waiting_state(self) -> EngineState:
        """Return the state while a reply has no text yet."""
        replies = self._replies
        reply = replies.live[-1]
        if reply.request is None:
            may_send = replies.may_send(reply.conversation, reply.prompt)
            return EngineState.STARTING if may_send else EngineState.ASKING
        loads = replies.drafting.checking and not reply.request.begun
        return EngineState.LOADING if loads else EngineState.PREFILL

    def _idle_state(self) -> EngineState:
        """Return the state while no reply is written: what holds a question up, the first that does."""
        engine = self._model.engine
        if engine.measuring:
            return EngineState.MEASURING
        if self._calls.runs_in(self._chat.id):
            return EngineState.RUNNING
        if self._context.doing is not Doing.NOTHING:
            return EngineState.SHORTENING
        if self._calls.waiting or self._context.outgrown:
            return EngineState.ASKING
        if self._replies.drafting.checking:
            return EngineState.LOADING
        return EngineState.ASLEEP if engine.asleep else EngineState.IDLE

    def _described(self, state: EngineState) -> tuple[str, float | None, str]:
        """Return the text, the share and the detail of the present state."""
        match self._progress:
            case LoadProgress(stage, fraction, once):
                text = "Getting ready, once…" if once else state
                # A step that would take the bar back has no share.
                if fraction is None or fraction < self._reached:
                    return text, None, stage
                self._reached = fraction
                return f"{text} {fraction * 100:.0f}\N{NARROW NO-BREAK SPACE}%", fraction, stage
            case PrefillProgress(images=images) if images:
                return f"Seeing images: {images} left", None, ""
            case PrefillProgress(processed=done, total=total):
                return f"Reading the prompt: {done:,} of {total:,} tokens", done / max(total, 1), ""
        self._reached = 0.0
        return (self._context.doing.value if state is EngineState.SHORTENING else state), None, ""
