"""Has the model write a summary, piece by piece where the text is longer than its context."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Notice
from rdchat.inference.api.events import FinishReason, PrefillProgress, ReplyEnd
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams, ThinkingChoice
from rdchat.services.context.cutting import summary_request
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import Failure, ReplyProgress
from rdchat.thoughts import split_thoughts

_STOPPED = Notice("The summary was stopped", "The chat is as it was.")
_CUT_OFF = Notice("The summary was cut off", "The chat is as it was. Leave out the oldest turns instead.")
_NOTHING = Notice("The model wrote no summary", "The chat is as it was. Leave out the oldest turns instead.")


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """How far a summary is.

    Attributes:
        part: Of the text, from 1, that the model is at.
        parts: All of them.
        read: Tokens of the part's prompt that the model has read.
        to_read: All of them; 0 before that is known.
        written: Tokens of the part's summary so far.
    """

    part: int
    parts: int
    read: int = 0
    to_read: int = 0
    written: int = 0


class Summariser(QObject):
    """One summary at a time, beside the chat: another request stops it.

    Args:
        engine: Writes.
        parent: The Qt parent.
    """

    progressed = Signal(SummaryProgress)
    written = Signal(str)
    failed = Signal(Notice)

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._pieces: list[str] = []
        self._most = self._thoughts = 0
        self._in_thought = False  # the chat template began a thought
        self._request_id = 0
        self._progress = SummaryProgress(0, 0)
        engine.aside_progressed.connect(self._on_progressed)
        engine.aside_ended.connect(self._on_ended)

    def start(self, pieces: Sequence[str], most: int, thoughts: int) -> None:
        """Summarise pieces of a text, each together with the summary of those before it.

        Args:
            pieces: Of the text.
            most: Tokens that a summary may have.
            thoughts: Tokens that the model may think before it; 0 switches that off, which its template must allow.
        """
        self._pieces, self._most, self._thoughts = list(pieces), most, thoughts
        self._progress = SummaryProgress(0, len(pieces))
        self._ask("")

    def stop(self) -> None:
        """Write no more; nothing is told of it."""
        if self._request_id:
            self._engine.stop(self._request_id)
        self._request_id, self._pieces = 0, []

    def _ask(self, earlier: str) -> None:
        messages = summary_request(self._pieces.pop(0), earlier)
        sampling = SamplingParams(temperature=0.0, max_tokens=self._most + self._thoughts)
        thinking = None if self._thoughts else ThinkingChoice.OFF
        self._in_thought = False
        self._request_id = self._engine.new_request_id()
        self._progress = SummaryProgress(self._progress.part + 1, self._progress.parts)
        self._engine.generate_aside(
            GenerationRequest(
                messages, sampling, 0, self._request_id, draft=DraftSettings(Mode.AUTO), thinking=thinking
            )
        )

    @Slot(object)
    def _on_progressed(self, event: ReplyProgress | PrefillProgress) -> None:
        if event.request_id != self._request_id:
            return
        if isinstance(event, PrefillProgress):
            self._in_thought = event.in_thought
            self._progress = replace(self._progress, read=event.processed, to_read=event.total)
        else:
            self._progress = replace(self._progress, written=self._progress.written + len(event.tokens))
        self.progressed.emit(self._progress)

    @Slot(int, object)
    def _on_ended(self, request_id: int, end: ReplyEnd | Failure) -> None:
        if request_id != self._request_id:
            return
        self._request_id = 0
        if isinstance(end, Failure):
            self.failed.emit(Notice(end.message, end.hint))
        elif end.finish_reason is FinishReason.CANCELLED:
            self.failed.emit(_STOPPED)
        elif not (summary := split_thoughts(end.text, begun=self._in_thought).answer.strip()):
            self.failed.emit(_NOTHING)
        elif end.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT_FULL):
            self.failed.emit(_CUT_OFF)
        elif self._pieces:
            self._ask(summary)
        else:
            self.written.emit(summary)
