"""The speed panel's section of the server: the client that is being answered, and how many wait."""

from PySide6.QtCore import Qt, Slot

from rdchat.server.facts import Phase, RequestFacts
from rdchat.services.chat.replies import Replies
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.server.server_control import ServerControl
from rdchat.ui.speed.figures import DEFINITIONS
from rdchat.ui.speed.sections import FigureRow, Section
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.labels import ElidedLabel, set_tip
from rdchat.ui.style.layouts import keep_room, row
from rdchat.ui.style.theme import TIGHT, Theme

_WAITING = "Requests that wait for this one to end. Clients take turns."
_BUSY = (EngineState.PREFILL, EngineState.WRITING)
_PHASES = {
    Phase.WAITING: "Waiting",
    Phase.LOADING: "Loading a model",
    Phase.READING: "Reading the prompt",
    Phase.WRITING: "Writing",
}


class ServerSection(Section):
    """Shown while the server runs. Its rows stay where they are when requests come and go.

    Args:
        server: The server.
        replies: A reply in the window pauses that of a client.
        theme: The appearance to follow.
    """

    def __init__(self, server: ServerControl, replies: Replies, theme: Theme) -> None:
        super().__init__(theme, "Server")
        self._server, self._replies = server, replies
        self._last: RequestFacts | None = None  # its figures stay until the next request
        self.client = ElidedLabel(theme)
        self.stop = TextButton("Stop", theme, self._stop_request)
        self.stop.setAccessibleName("Stop the reply to this program")
        self.stop.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        set_tip(self.stop, "Stop the reply to this program")
        # The button is as high as a line.
        self.stop.setFixedHeight(self.stop.fontMetrics().height() + TIGHT)
        keep_room(self.stop)
        self._rows.addLayout(row((self.client, 1), self.stop))
        self.doing = self.add(ElidedLabel(theme, "", "muted", -1))
        self.speed = self.add(FigureRow(theme, "Tokens/s", DEFINITIONS["Speed"]))
        self.accepted = self.add(FigureRow(theme, "Acceptance"))
        self.waiting = self.add(FigureRow(theme, "Waiting", _WAITING))
        for changed in (server.facts_changed, server.changed, replies.state_changed):
            changed.connect(self.refresh)
        self.refresh()

    @property
    def has_server(self) -> bool:
        """Whether the server runs."""
        return bool(self._server.address)

    @Slot()
    def refresh(self) -> None:
        """Show what the server does now."""
        facts = self._server.facts
        running = facts.running
        self._last = request = (running or self._last) if self.has_server else None
        self.client.setText((request.user_agent or "A program without a name") if request else "No requests")
        self.client.set_color("text" if running else "muted")
        self.client.setAccessibleName(f"Program: {self.client.text()}")
        answered = f"{formatting.counted(facts.answered, 'request')} answered"
        self.doing.setText(self._doing(running) if running else answered)
        self.stop.setVisible(running is not None)
        self.speed.show_value(formatting.rate(request.tokens_per_second if request else None))
        self.accepted.show_value(formatting.percent(request.acceptance if request else None))
        self.waiting.show_value(formatting.count(len(facts.waiting)) if facts.waiting else formatting.NONE)

    def _doing(self, running: RequestFacts) -> str:
        """Return what a request does, such as `Writing · smollm2-135m-instruct · 120 tokens`."""
        paused = running.phase is not Phase.LOADING and self._replies.state in _BUSY
        phase = "Waits for your reply" if paused else _PHASES[running.phase]
        tokens = [formatting.counted(running.tokens, "token")] if running.tokens else []
        return "  ·  ".join([phase, *tokens])

    def _stop_request(self) -> None:
        running = self._server.facts.running
        if running is not None:
            self._server.cancel(running.request_id)
