"""The speed panel at the right of the window: speed, times and drafting of a reply, each figure with its definition.

At first it shows what fits into a window of 900 x 560. Two folds below that have the draft settings and all other
figures. While the server runs, `ServerLines` show the request of another program.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSize, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from rdchat.chat.conversation import Drafting, Message, MessageStatus
from rdchat.inference.api import Mode, Role, Statistics
from rdchat.server.server_settings import Phase, RequestFacts
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.servers.server_control import ServerControl
from rdchat.services.window.app_status import AppStatus
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.speed.draft_controls import DraftControls
from rdchat.ui.speed.figures import FigureSource
from rdchat.ui.speed.sections import Details, SpeedFigures, StatusLine, Verdict, verdict
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    PANEL_WIDTH,
    REQUEST_PHASES,
    TIGHT,
    ElidedLabel,
    Ground,
    Separator,
    TextButton,
    Theme,
    ThemedLabel,
    Throttle,
    column,
    formatting,
    keep_room,
    row,
    scrolled,
    set_tip,
)
from rdchat.wording import counted

if TYPE_CHECKING:
    from rdchat.services.models.training_control import TrainingControl

_BUSY = (EngineState.PREFILL, EngineState.WRITING)
_FIGURES = "Of this request; those that wait come after it. Clients take turns."


class ServerLines(QWidget):
    """What the server does, visible while it runs. The lines do not move when requests come and go.

    Args:
        server: The server.
        status: What the window does, which pauses the reply to a client.
        theme: The appearance to follow.
    """

    def __init__(self, server: ServerControl, status: AppStatus, theme: Theme) -> None:
        super().__init__()
        self._server = server
        self._status = status
        # The request that is shown. It stays after its end, until the next one begins or the server stops.
        self._request: RequestFacts | None = None
        self.client = ElidedLabel(theme)
        self.stop = TextButton("Stop", theme, self._stop_request)
        self.stop.setAccessibleName("Stop the reply to this program")
        set_tip(self.stop, "Stop the reply to this program")
        # No higher than a line, so that the row does not grow when the button appears.
        self.stop.setFixedHeight(self.stop.fontMetrics().height() + TIGHT)
        keep_room(self.stop)
        self.doing = ElidedLabel(theme, "", "muted", -1)
        self.figures = ElidedLabel(theme, "", "muted", -1)
        set_tip(self.figures, _FIGURES)
        head = ThemedLabel(theme, "Server", points_more=-0.5, bold=True)
        client = row((self.client, 1), self.stop)
        column(Separator(theme), head, client, self.doing, self.figures, within=self, spacing=TIGHT)
        for changed in (server.facts_changed, server.changed, status.changed):
            changed.connect(self.show_server)
        self.show_server()

    @property
    def has_server(self) -> bool:
        """Whether the server runs."""
        return bool(self._server.address)

    @Slot()
    def show_server(self) -> None:
        """Show what the server does now."""
        facts = self._server.facts
        running = facts.running
        request = (running or self._request) if self.has_server else None
        self._request = request
        self.client.setText((request.user_agent or "A program without a name") if request else "No requests")
        self.client.set_color("text" if running else "muted")
        self.client.setAccessibleName(f"Program: {self.client.text()}")
        answered = f"{counted(facts.answered, 'request')} answered"
        self.doing.setText(self._doing(running) if running else answered)
        self.stop.setVisible(running is not None)
        figures = []
        if request is not None and request.tokens_per_second is not None:
            figures.append(f"{formatting.rate(request.tokens_per_second)} tokens/s")
        if request is not None and request.acceptance is not None:
            figures.append(f"{formatting.percent(request.acceptance)} acceptance")
        if facts.waiting:
            figures.append(f"{len(facts.waiting):,} waiting")
        self.figures.setText(" · ".join(figures))

    def _doing(self, running: RequestFacts) -> str:
        """Return what a request does, such as `Writing  ·  120 tokens`."""
        phase = REQUEST_PHASES[running.phase]
        if (sent_when := self._status.value.sent_when) and running.phase is not Phase.LOADING:
            phase = f"Waits until {sent_when}"
        return f"{phase}  ·  {counted(running.tokens, 'token')}" if running.tokens else phase

    def _stop_request(self) -> None:
        running = self._server.facts.running
        if running is not None:
            self._server.cancel_request(running.request_id)


class SpeedPanel(QScrollArea):
    """Follows the reply that is being written, in any chat, at most ten times a second; its figures stay at the end.

    When a chat is opened, or its path has changed, it shows the figures that are stored with the chat's last reply.
    """

    def __init__(self, controller: ChatController, theme: Theme) -> None:
        super().__init__()
        self._controller = controller
        self._settings = controller.settings
        # What the panel shows; only `_show` changes it.
        self._source = FigureSource(state=controller.replies.state)
        # The newest statistics of the shown reply. While it is being written, the throttle shows them.
        self._pending = Statistics()
        # Whether the figures are those of a reply that is written in another chat; `_show_state` sees its end.
        self._is_elsewhere = False
        # Whether they are of a reply that is or was written while the chat was open, and of one before the last.
        self._is_now = True
        self._is_earlier = False
        self.throttle = Throttle(self, self._show_pending)
        self.setAccessibleName("Speed panel")
        self.setMinimumWidth(220)
        self.status = StatusLine(controller.status, theme)
        self._training: TrainingControl | None = None
        self.training = TextButton("", theme)
        self.training.setAccessibleName("Show the training")
        set_tip(self.training, "Show the training in the Models window")
        self.training.hide()
        self.speed = SpeedFigures(theme)
        self.server = ServerLines(controller.server, controller.status, theme)
        self.drafting = DraftControls(controller.drafting, theme)
        self.details = Details(theme)
        self.sections = self.drafting, self.details
        self._column = self._build_column(theme)
        scrolled(self._column, self)
        controller.replies.state_changed.connect(self._show_state)
        controller.replies.statistics_changed.connect(self._note_statistics)
        controller.chat.message_changed.connect(self._note_message)
        controller.chat.path_changed.connect(self.show_last_reply)
        controller.server.changed.connect(self._show_server)
        self._show_state()
        self._show_server()
        self.show_last_reply()

    def _build_column(self, theme: Theme) -> QWidget:
        ground = Ground(theme, "window")
        margins = (LARGE - 4, MEDIUM + TIGHT, LARGE - 4, MEDIUM)
        folds = Separator(theme), self.drafting, Separator(theme), self.details
        parts = self.status, self.training, self.speed, self.server, *folds
        column(*parts, None, within=ground, margins=margins)
        for section in self.sections:
            section.fold(section.name not in self._settings.values.panel_unfolded)
            section.folded.connect(self._remember_fold)
        return ground

    def follow_training(self, training: "TrainingControl", text: Callable[["TrainingControl"], str]) -> None:
        """Show the state of a training below that of the engine; `text` describes it."""
        self._training = training

        def show() -> None:
            self.training.setText(text(training))
            self.training.setVisible(bool(text(training)))

        training.changed.connect(show)
        show()

    def show_drafting(self) -> None:
        """Go to the draft controls."""
        if not self.drafting.head.isChecked():
            self.drafting.head.click()
        self.ensureWidgetVisible(self.drafting)
        self.drafting.mode.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the scroll bar's room free while there is none, so that no figure moves when it appears."""
        self._column.setMaximumWidth(self.width() - self.verticalScrollBar().sizeHint().width())
        super().resizeEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(PANEL_WIDTH, 600)

    def _show_server(self) -> None:
        self.server.setVisible(self.server.has_server)

    def _show_state(self) -> None:
        state = self._controller.replies.state
        if state is EngineState.PREFILL and self._source.state is not state:
            # A reply begins, or begins again.
            self._clear_figures()
        self._show(state=state, model=self._controller.model_slot.info)
        if self._is_elsewhere and state not in _BUSY:
            # The reply in another chat has ended: go back to the open chat.
            self._is_elsewhere = False
            self.show_last_reply()

    def _note_statistics(self, statistics: Statistics) -> None:
        self._pending = statistics
        self.throttle.note()

    def _show_pending(self) -> None:
        self._show(statistics=self._pending)

    def _verdict(self) -> Verdict:
        """Return what the shown figures mean."""
        if not self._has_figures:
            return Verdict("")
        if self._source.how.server:
            return Verdict("No comparison with a remote model")
        now = self._is_now
        model = self._controller.model_slot.info
        parameters = model.parameters if now and model else 0
        training = now and self._training is not None and self._training.state.is_active
        figures = self._source.statistics
        return verdict(figures, now=now, training=training, writing=self._is_busy, parameters=parameters)

    def _note_message(self, message: Message, *, now: bool = True) -> None:
        """Show the figures stored with a reply that has ended.

        `now` is false for a reply that ended before the chat was opened.
        """
        if message.role is not Role.ASSISTANT or message.status is MessageStatus.STREAMING or not message.statistics:
            return
        self._pending = message.statistics
        self._is_now = now
        last = self._controller.chat.path.last_reply
        self._is_earlier = last is not None and last.id != message.id
        how = message.drafting or Drafting(None)
        self._show(statistics=message.statistics, finish=message.finish_reason, how=how)

    def show_reply(self, message: Message) -> None:
        """Show the figures of a reply of the open chat, unless one is being written."""
        if not self._is_busy:
            self._note_message(message, now=False)

    def show_last_reply(self) -> None:
        """Show the figures of the open chat's last reply, unless one is being written."""
        if self._is_busy:
            # The figures are those of the reply that is being written.
            self._show()
        elif (last := self._controller.chat.path.last_reply) and last.statistics:
            self._note_message(last, now=False)
        else:
            self._clear_figures()

    def _clear_figures(self) -> None:
        self._pending = Statistics()
        self._is_now = True
        self._is_earlier = False
        self._show(statistics=self._pending, finish=None, how=Drafting(None))

    def _show(self, **changes: Any) -> None:
        """Change the given fields of the shown `FigureSource`, and show it.

        While a reply is written, `how` is not the caller's: it is the reply's drafting mode, or the remote server that
        writes it.
        """
        busy = self._is_busy
        if busy:
            live = self._controller.replies.live
            self._is_elsewhere = not live or live[-1].message.conversation_id != self._controller.chat.id
            model = self._controller.model_slot.info
            server = model.server if model else ""
            changes["how"] = Drafting(None if server else self._controller.drafting.reply_mode, server=server)
        source = self._source._replace(**changes)
        self._source = source
        meaning = self._verdict()
        self.speed.figures.setVisible(self._has_figures)
        self.speed.owner.setText(self._owner())
        self.speed.show_figures(source, meaning)
        self.drafting.show_reply(source.statistics, writing=busy, busy=meaning.color == "muted")
        self.details.show_figures(source)

    @property
    def _is_busy(self) -> bool:
        """Whether a reply is being written, in any chat."""
        return self._controller.replies.state in _BUSY

    @property
    def _has_figures(self) -> bool:
        """Whether a reply is being written, or there are figures of one."""
        statistics = self._source.statistics
        return self._is_busy or statistics.ttft_ms > 0 or statistics.prompt_tokens > 0

    def _owner(self) -> str:
        """Return a text that names the reply of the figures: `Last reply · Auto`, `Last reply · last part · Off`.

        A reply that was continued has figures of its last part only.
        """
        busy = self._is_busy
        how = self._source.how
        if not self._has_figures:
            return "The last reply has no figures" if self._controller.chat.path.last_reply else "No reply yet"
        reply = "Earlier reply" if self._is_earlier else "Last reply"
        if busy:
            reply = "Reply in another chat" if self._is_elsewhere else "This reply"
        if busy and how.mode and self._controller.drafting.problem(how.mode):
            return f"{reply} · Nothing is drafted"
        # That an ended reply was not drafted stands in the line above.
        is_shown = busy or how.mode is not Mode.OFF
        mode = how.mode.label if how.mode and is_shown else ""
        part = "last part" if how.last_part else ""
        server = f"on {how.server}" if how.server else ""
        return " · ".join(filter(None, (reply, part, server, mode)))

    def _remember_fold(self, name: str, folded: bool) -> None:
        others = tuple(each for each in self._settings.values.panel_unfolded if each != name)
        self._settings.change_values(panel_unfolded=others if folded else (*others, name))
