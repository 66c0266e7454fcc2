"""A training under way, paused or failed: which step it is at, how far, and what was measured."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QScrollArea, QVBoxLayout, QWidget

from rdchat.inference.api.training import News, TrainingNews
from rdchat.services.models.training.job_folder import CurvePoint
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.formatting import memory, percent, rate
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.training.words import PHASE_WORDS, STEPS, about, amount
from rdchat.ui.plots.curves import Curve, CurvesPlot
from rdchat.ui.plots.plot_view import PlotView

_MEANWHILE = (
    "You can chat meanwhile; replies come slower. Closing this window changes nothing. Quitting rdchat pauses the "
    "training, and you can resume it the next time."
)
_NOTHING_YET = "How often the drafter is right is measured once it begins to learn, about every minute. Nothing yet."
_PLACES = ("1st token", "2nd token", "3rd token", "4th token", "5th token", "6th token", "7th token")
_TITLES = {
    TrainingState.STARTING: "Starting",
    TrainingState.PAUSING: "Pausing",
    TrainingState.PAUSED: "Paused",
    TrainingState.FAILED: "Stopped",
    TrainingState.ENDING: "Removing",
    TrainingState.LOOKING: "Looking",
}


class ProgressView(QWidget):
    """Shows it and has it pause, go on or end.

    Args:
        training: What is shown.
        theme: The appearance to follow.
    """

    discard_requested = Signal()

    def __init__(self, training: TrainingControl, theme: Theme) -> None:
        super().__init__()
        self._training, self._theme = training, theme
        self._drawn: tuple[CurvePoint, ...] | None = None
        self.title = ThemedLabel(theme, "", points_more=3, bold=True)
        self.step = self._words("muted", tabular=True)
        self.facts = self._words("muted", tabular=True)
        self.problem = self._words("danger")
        self.meanwhile = self._words("muted")
        self.nothing_yet = self._words("muted")
        self.nothing_yet.setText(_NOTHING_YET)
        self.bar = QProgressBar(textVisible=False, maximum=1000)
        self.bar.setFixedHeight(6)
        self.bar.setAccessibleName("Progress of this step")
        self.curves = PlotView(theme, "What was measured while learning")
        self.pause = QPushButton("Pause")
        self.discard = QPushButton("Discard…")
        for button in (self.pause, self.discard):
            button.setAutoDefault(False)
        self._lay_out()
        self.pause.clicked.connect(self._press_pause)
        self.discard.clicked.connect(self.discard_requested)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self.show_state)
        training.changed.connect(self._throttle.note)
        self.show_state()

    def _words(self, color: str, *, tabular: bool = False) -> ThemedLabel:
        label = ThemedLabel(self._theme, "", color, tabular=tabular)
        label.setWordWrap(True)
        return label

    def _lay_out(self) -> None:
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(LARGE, MEDIUM, LARGE, LARGE)
        column.setSpacing(SMALL)
        for part in (self.title, self.step, self.bar, self.facts, self.problem):
            column.addWidget(part)
        column.addSpacing(TIGHT)
        column.addWidget(self.nothing_yet)
        column.addWidget(self.curves)
        column.addStretch(1)
        area = QScrollArea(widgetResizable=True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidget(inner)
        bar = QHBoxLayout()
        bar.setContentsMargins(LARGE, SMALL, LARGE, MEDIUM)
        bar.setSpacing(SMALL)
        bar.addWidget(self.meanwhile, 1)
        bar.addWidget(self.discard)
        bar.addWidget(self.pause)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(area, 1)
        layout.addWidget(Separator(self._theme))
        layout.addLayout(bar)

    def show_state(self) -> None:
        """Show where the training stands."""
        training = self._training
        state, news = training.state, training.news
        self.title.setText(_TITLES.get(state) or _phase_words(news))
        self.step.setText(self._step_words())
        self._show_bar(news)
        self.facts.setText(_facts(news) if state is TrainingState.TRAINING else "")
        self.facts.setVisible(bool(self.facts.text()))
        problem = f"{training.problem} {training.hint}".strip()
        self.problem.setText(problem)
        self.problem.set_color("danger" if state is TrainingState.FAILED else "muted")
        self.problem.setVisible(bool(problem))
        can_go_on = state in {TrainingState.PAUSED, TrainingState.FAILED}
        self.pause.setText("Resume" if can_go_on else "Pause")
        self.pause.setEnabled(can_go_on or state in {TrainingState.STARTING, TrainingState.TRAINING})
        if self.isVisible():
            self.pause.setDefault(can_go_on)
        self.discard.setEnabled(state not in {TrainingState.ENDING, TrainingState.LOOKING, TrainingState.NOTHING})
        self.meanwhile.setText(_MEANWHILE if state.is_active else "")
        self._show_curves()

    def _show_bar(self, news: TrainingNews | None) -> None:
        active = self._training.state.is_active
        fraction = news.fraction if news is not None else None
        self.bar.setVisible(active)
        if active and fraction is None:
            self.bar.setRange(0, 0)
        else:
            self.bar.setRange(0, 1000)
            self.bar.setValue(round(1000 * (fraction or 0.0)))

    def _step_words(self) -> str:
        training = self._training
        order, news = training.order, training.news
        if order is None:
            return ""
        what = f"{order.kind.words} drafter for {order.name}, {amount(order)}"
        if training.state is TrainingState.STARTING and news is not None and news.words:
            return f"{what}. {news.words}…"
        phase = _phase(news)
        if training.state is TrainingState.TRAINING and phase in STEPS:
            return f"{what}. Step {STEPS.index(phase) + 1} of {len(STEPS)}."
        return f"{what}."

    def _show_curves(self) -> None:
        points = tuple(self._training.points)
        self.curves.setVisible(bool(points))
        learning = self._training.state.is_active
        self.nothing_yet.setVisible(not any(point.accuracy for point in points) and learning)
        if points != self._drawn:
            self._drawn = points
            self.curves.show_plots([*_accuracy_plot(points), _loss_plot(points)])

    def _press_pause(self) -> None:
        if self._training.state in {TrainingState.PAUSED, TrainingState.FAILED}:
            self._training.resume()
        else:
            self._training.pause()


def _accuracy_plot(points: tuple[CurvePoint, ...]) -> list[CurvesPlot]:
    looked = [point for point in points if point.accuracy]
    if not looked:
        return []
    places = len(looked[-1].accuracy)
    curves = [
        Curve(
            _PLACES[place],
            tuple((point.fraction, point.accuracy[place]) for point in looked if place < len(point.accuracy)),
        )
        for place in range(min(places, len(_PLACES)))
    ]
    line = "On answers kept out of the training, each token given that those before it were right."
    return [CurvesPlot("How often a drafted token is right", line, curves, shares=True)]


def _loss_plot(points: tuple[CurvePoint, ...]) -> CurvesPlot:
    curve = Curve("Loss", tuple((point.fraction, point.loss) for point in points))
    return CurvesPlot(
        "Loss", "How surprised the drafter is by what the model writes; lower is better.", [curve], shares=False
    )


def _phase(news: TrainingNews | None) -> str:
    if news is None:
        return ""
    return "compare" if news.kind is News.COMPARING else news.phase


def _phase_words(news: TrainingNews | None) -> str:
    return PHASE_WORDS.get(_phase(news), "Starting")


def _facts(news: TrainingNews | None) -> str:
    """Return the figures of the step: `34 %  ·  12 min left  ·  1,204 tokens/s  ·  1.20 GB of memory`."""
    if news is None:
        return ""
    parts = [percent(news.fraction)] if news.fraction is not None else []
    if news.left_s is not None:
        parts.append(f"{about(news.left_s)} left in this step")
    if news.tokens_per_second:
        parts.append(f"{rate(news.tokens_per_second)} tokens/s")
    if news.memory_bytes:
        parts.append(f"{memory(news.memory_bytes)} of memory")
    return "  ·  ".join(parts)
