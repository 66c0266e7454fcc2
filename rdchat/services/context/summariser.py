"""Has the model write a summary, piece by piece where the text is longer than its context."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Notice
from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams
from rdchat.services.context.cutting import summary_request
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_events import Failure
from rdchat.thoughts import split_thoughts

_STOPPED = Notice("The summary was stopped", "The chat is as it was.")
_NOTHING = Notice("The model wrote no summary", "The chat is as it was. Leave out the oldest turns instead.")


class Summariser(QObject):
    """One summary at a time, beside the chat: another request stops it.

    Args:
        engine: Writes.
        parent: The Qt parent.
    """

    written = Signal(str)
    failed = Signal(Notice)

    def __init__(self, engine: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._pieces: list[str] = []
        self._most = 0
        self._request_id = 0
        engine.aside_ended.connect(self._on_ended)

    def start(self, pieces: Sequence[str], most: int) -> None:
        """Summarise pieces of a text, each together with the summary of those before it, in at most `most` tokens."""
        self._pieces, self._most = list(pieces), most
        self._ask("")

    def stop(self) -> None:
        """Write no more; nothing is told of it."""
        if self._request_id:
            self._engine.stop(self._request_id)
        self._request_id, self._pieces = 0, []

    def _ask(self, earlier: str) -> None:
        messages = summary_request(self._pieces.pop(0), earlier)
        sampling = SamplingParams(temperature=0.0, max_tokens=self._most)
        self._request_id = self._engine.new_request_id()
        self._engine.generate_aside(
            GenerationRequest(messages, sampling, 0, self._request_id, draft=DraftSettings(Mode.OFF))
        )

    @Slot(int, object)
    def _on_ended(self, request_id: int, end: ReplyEnd | Failure) -> None:
        if request_id != self._request_id:
            return
        self._request_id = 0
        if isinstance(end, Failure):
            self.failed.emit(Notice(end.message, end.hint))
        elif end.finish_reason is FinishReason.CANCELLED:
            self.failed.emit(_STOPPED)
        elif not (summary := split_thoughts(end.text).answer.strip()):
            self.failed.emit(_NOTHING)
        elif self._pieces:
            self._ask(summary)
        else:
            self.written.emit(summary)
