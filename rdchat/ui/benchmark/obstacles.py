"""Why no race or benchmark can start now, in words."""

from PySide6.QtCore import QObject, Signal

from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.engine_events import EngineState


class Obstacles(QObject):
    """What prevents a race or a benchmark: there is one at a time, and it needs a loaded model."""

    changed = Signal()

    def __init__(self, controller: ChatController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        controller.replies.state_changed.connect(self.changed)
        for job in (controller.race, controller.benchmark):
            for happened in (job.started, job.ended, job.failed):
                happened.connect(self.changed)

    def obstacle(self) -> str:
        """Return why nothing can be measured now; empty if it can."""
        state = self._controller.replies.state
        if state is EngineState.NO_MODEL:
            return "No model is loaded. Choose one first."
        if state is EngineState.LOADING:
            return "The model is still loading."
        if self._controller.race.running:
            return "A race is running."
        return "A benchmark is running." if self._controller.benchmark.running else ""

    def waiting_words(self) -> str:
        """Return what a race or a benchmark that has not begun yet waits for."""
        replying = self._controller.replies.state in (EngineState.PREFILL, EngineState.WRITING)
        return "Waiting for the reply that is being written…" if replying else "Starting…"
