"""Has the model write a summary, piece by piece where the text is longer than its context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rdchat.chat.conversation import Notice
from rdchat.inference.api.events import FinishReason, PrefillProgress, ReplyEnd
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams, ThinkingChoice
from rdchat.services.context.cutting import summary_request
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import EngineEvent, Failure, ReplyProgress
from rdchat.services.engine.engine_request import EngineRequest
from rdchat.thoughts import split_thoughts

_STOPPED = Notice("The summary was stopped", "The chat is as it was.")
_CUT_OFF = Notice("The summary was cut off", "The chat is as it was. Leave out the oldest turns instead.")
_NOTHING = Notice("The model wrote no summary", "The chat is as it was. Leave out the oldest turns instead.")


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """How far a summary is."""

    part: int  # of the text, from 1, that the model is at
    parts: int
    read: int = 0  # tokens of the part's prompt
    to_read: int = 0  # all of them; 0 before that is known
    written: int = 0  # tokens of the part's summary


class Summariser:
    """Writes one summary at a time in the background: another request to the engine stops it.

    Args:
        engine: Writes.
        on_progress: Called with each step.
        on_end: Called with the summary, or with why there is none.
    """

    def __init__(
        self,
        engine: EngineClient,
        on_progress: Callable[[SummaryProgress], object],
        on_end: Callable[[str | Notice], object],
    ) -> None:
        self._engine, self._on_progress, self._on_end = engine, on_progress, on_end
        self._pieces: list[str] = []
        self._most = self._thoughts = 0
        self._in_thought = False  # the chat template began a thought
        self._request: EngineRequest | None = None
        self._progress = SummaryProgress(0, 0)

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
        """Write no more, and call nothing."""
        if self._request is not None:
            self._request.cancel()
        self._request = None

    def _ask(self, earlier: str) -> None:
        messages = summary_request(self._pieces.pop(0), earlier)
        sampling = SamplingParams(temperature=0.0, max_tokens=self._most + self._thoughts)
        thinking = None if self._thoughts else ThinkingChoice.OFF
        self._in_thought = False
        self._progress = SummaryProgress(self._progress.part + 1, self._progress.parts)
        generation = GenerationRequest(messages, sampling, draft=DraftSettings(Mode.AUTO), thinking=thinking)
        request = self._engine.submit(generation, lambda event: self._on_event(request, event), background=True)
        self._request = request

    def _on_event(self, request: EngineRequest, event: EngineEvent) -> None:
        if request is not self._request:
            return
        match event:
            case PrefillProgress():
                self._in_thought = event.in_thought
                self._show(read=event.processed, to_read=event.total)
            case ReplyProgress():
                self._show(written=self._progress.written + len(event.tokens))
            case ReplyEnd():
                self._request = None
                self._take(event)
            case Failure():
                self._request = None
                self._on_end(Notice(event.message, event.hint))

    def _show(self, **figures: int) -> None:
        self._progress = replace(self._progress, **figures)
        self._on_progress(self._progress)

    def _take(self, end: ReplyEnd) -> None:
        summary = split_thoughts(end.text, begun=self._in_thought).answer.strip()
        if end.finish_reason is FinishReason.CANCELLED:
            self._on_end(_STOPPED)
        elif not summary:
            self._on_end(_NOTHING)
        elif end.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT_FULL):
            self._on_end(_CUT_OFF)
        elif self._pieces:
            self._ask(summary)
        else:
            self._on_end(summary)
