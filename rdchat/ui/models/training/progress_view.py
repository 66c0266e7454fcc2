"""A training under way, paused or failed: its step, progress and learning curve."""

from collections.abc import Callable

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.inference.api.training import COMPARING, LOADING, Phase, TrainingProgress
from rdchat.services.models.training.job_folder import CurvePoint
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.formatting import file_size, memory, percent, rate
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import Part
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.progress_line import ProgressLine
from rdchat.ui.models.training.parts import about, amount, lay_out
from rdchat.ui.plots.curves import Curve, CurvesPlot
from rdchat.ui.plots.plot_view import PlotView

_MEANWHILE = (
    "You can chat meanwhile; replies come slower. Closing this window changes nothing. Quitting rdchat pauses the "
    "training, and you can resume it the next time."
)
_NOTHING_YET = "How often the drafter is right is measured once it begins to learn, about every minute. Nothing yet."
_PHASES = {
    Phase.DATA: "Writing answers to learn from",
    Phase.PREPARE: "Reading the answers",
    Phase.TRAIN: "Learning",
    Phase.WATCH: "Measuring how often it is right",
    Phase.EVALUATE: "Measuring the drafter",
    Phase.WRITE: "Saving the drafter",
    Phase.DONE: "Saving the drafter",
    COMPARING: "Comparing it with the drafter you have",
}
_STEPS = (Phase.DATA, Phase.PREPARE, Phase.TRAIN, Phase.WATCH, Phase.EVALUATE, COMPARING)
_WIDEST = 16_777_215  # QWIDGETSIZE_MAX: the curves take all the width
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
    """Shows the training, and buttons to pause, resume and discard it.

    Args:
        training: The training.
        discard: Asks whether to discard it.
        theme: The appearance to follow.
    """

    def __init__(self, training: TrainingControl, discard: Callable[[], object], theme: Theme) -> None:
        super().__init__()
        self._training, self._theme = training, theme
        self._drawn: tuple[CurvePoint, ...] | None = None
        self.title = ThemedLabel(theme, "", points_more=3, bold=True)
        self.step, self.facts, self.takes, self.problem, self.meanwhile, self.nothing_yet = (
            ThemedLabel(theme, "", "muted", tabular=True, wraps=True) for _ in range(6)
        )
        self.nothing_yet.setText(_NOTHING_YET)
        self.bar = ProgressLine("Progress of this step")
        self.curves = PlotView(theme, "Learning curve")
        self.pause = QPushButton("Pause")
        self.discard = QPushButton("Discard…")
        above = [self.title, self.step, self.bar, self.facts, self.takes, self.problem]
        below: list[Part] = [(self.meanwhile, 1), self.discard, self.pause]
        lay_out(self, theme, [*above, TIGHT, self.nothing_yet, self.curves], below, widest=_WIDEST)
        self.pause.clicked.connect(self._press_pause)
        self.discard.clicked.connect(discard)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self.show_state)
        training.changed.connect(self._throttle.note)
        self.show_state()

    def show_state(self) -> None:
        """Show the state of the training."""
        training = self._training
        state, progress = training.state, training.progress
        phase = progress.phase if progress else ""
        self.title.setText(_TITLES.get(state) or _PHASES.get(phase, "Starting"))
        self.step.setText(self._step_words())
        self.bar.setVisible(state.is_active)
        self.bar.show_share(progress.fraction if progress is not None else None)
        self.facts.say(_facts(progress) if state is TrainingState.TRAINING and progress else "")
        self.takes.say(self._takes_words() if state is TrainingState.TRAINING else "")
        self.problem.say(f"{training.problem} {training.hint}".strip())
        self.problem.set_color("danger" if state is TrainingState.FAILED else "muted")
        can_go_on = state in {TrainingState.PAUSED, TrainingState.FAILED}
        self.pause.setText("Resume" if can_go_on else "Pause")
        self.pause.setEnabled(can_go_on or state in {TrainingState.STARTING, TrainingState.TRAINING})
        if self.isVisible():
            self.pause.setDefault(can_go_on)
        self.discard.setEnabled(state not in {TrainingState.ENDING, TrainingState.LOOKING, TrainingState.NOTHING})
        self.meanwhile.setText(_MEANWHILE if state.is_active else "")
        self._show_curves()

    def _step_words(self) -> str:
        training = self._training
        order, progress = training.order, training.progress
        if order is None:
            return ""
        what = f"{order.kind.words} drafter for {order.name}, {amount(order)}."
        if progress is None:
            return what
        if training.state is TrainingState.STARTING and progress.phase == LOADING:
            return f"{what} {progress.words}…"
        if training.state is TrainingState.TRAINING and progress.phase in _STEPS:
            return f"{what} Step {_STEPS.index(progress.phase) + 1} of {len(_STEPS)}. {progress.words}".strip()
        return what

    def _takes_words(self) -> str:
        plan = self._training.plan
        if plan is None:
            return ""
        disk, most = file_size(plan.disk_bytes), memory(plan.memory_bytes)
        return f"It takes up to {disk} of disk, until it is done or discarded, and up to {most} of memory."

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


def _facts(progress: TrainingProgress) -> str:
    """Return the figures of the step: `34 %  ·  12 min left  ·  1,204 tokens/s  ·  1.20 GB of memory`."""
    parts = [percent(progress.fraction)] if progress.fraction is not None else []
    if progress.left_s is not None:
        parts.append(f"{about(progress.left_s)} left in this step")
    if progress.tokens_per_second:
        parts.append(f"{rate(progress.tokens_per_second)} tokens/s")
    if progress.memory_bytes:
        parts.append(f"{memory(progress.memory_bytes)} of memory")
    return "  ·  ".join(parts)
