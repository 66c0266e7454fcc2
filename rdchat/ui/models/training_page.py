"""The training page, behind a button below the drafters: the form, the progress or the result of the one training.

First the page and its form, then its texts, figures and curves as pure functions. The drafters and the speed panel
use `state_title` and `short_text` too.

In texts for the person, "tokens per step" are those that one call of the model brings, and "step 3 of 5" is the third
of the training's phases (`_STEPS`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QCheckBox, QHeaderView, QSpinBox, QWidget

from rdchat.inference.api import (
    COMPARED_BEAMS,
    COMPARING,
    DEFAULT_TOKENS,
    DRAFTER,
    LOADING,
    ComparedGroup,
    Comparison,
    Mode,
    Phase,
    TrainingOrder,
    TrainingProgress,
    TrainingStart,
    draft_size,
)
from rdchat.services.models.library import Library
from rdchat.services.models.training_control import CurvePoint, TrainingControl, TrainingState, training_folder
from rdchat.ui.benchmark.results import TableCell, TableView
from rdchat.ui.plots.drawing import PlotView
from rdchat.ui.plots.measured_plots import Curve, CurvesPlot
from rdchat.ui.style import (
    LARGE,
    MACHINE,
    MEDIUM,
    NONE,
    SMALL,
    TIGHT,
    TRAINING,
    ElidedLabel,
    IconButton,
    Separator,
    Theme,
    ThemedLabel,
    ThinBar,
    Throttle,
    ask,
    column,
    decimal,
    memory,
    percent,
    push_button,
    rate,
    row,
    scrolled,
    set_tip,
    show_share,
    small_text,
)
from rdchat.wording import counted, rough_time, size_text, time_left

# Width of a column of text, and the indent of an explanation, which begins below the text of its button. In pixels.
_WIDEST = 620
_INDENT = 24

# The page
_RESUMABLE = {TrainingState.PAUSED, TrainingState.FAILED}
# States in which the main button is disabled.
_BUSY = {TrainingState.LOOKING, TrainingState.PAUSING, TrainingState.ENDING}
_NO_MODEL = "Load a model first, or choose an installed one."
_HINT = "rdchat loads the model a second time for training."
_ACTIVE_HINT = (
    "You can chat while training runs: it waits while a reply is written. You can close this window. Quitting rdchat "
    "pauses the training; resume it next time."
)
_NOTHING_YET = "While the drafter learns, its accuracy is measured about once a minute. No result yet."

# The form
_MORE = (
    "The model writes answers, and the drafter learns from them. More answers make a better drafter: the default "
    "model's own drafter was trained on 6.9 million tokens."
)
_CHATS = (
    "The drafter also learns from the first question of each chat, which the model answers again. The questions stay "
    f"on {MACHINE}, in the training data, and are deleted with it. The drafter's card records only their number."
)
_LITTLE_TOKENS = 20_000
_LITTLE = "This is too little for a useful drafter. Choose more."
_LATER = "The time left is shown once training has begun."
# A training takes, for each token of answers, the time of so many tokens of a plain reply: the shortest where rdchat
# ships the answers and the drafter only learns from them, the longest where the model writes them first. The comparison
# at the end takes the time of `_MEASURED_TOKENS` more. Measured with the default model, on two CPU cores.
_SHORTEST = 0.25
_LONGEST = 1.5
_MEASURED_TOKENS = 5000

# Progress and result
_PHASES, _STATES, _OUTCOMES = (TRAINING[name] for name in ("phases", "states", "outcomes"))
# The phases that are shown with a number.
_STEPS = (Phase.DATA, Phase.PREPARE, Phase.TRAIN, Phase.EVALUATE, COMPARING)
_POSITIONS = ("1st token", "2nd token", "3rd token", "4th token", "5th token", "6th token", "7th token")
# The name of the group with the average of all groups.
_ALL = "all"
# A smaller difference, in tokens a call, counts as none.
_SAME = 0.005


class TrainingPage(QWidget):
    """Shows the form, the progress or the result, and a main button for the next step.

    Args:
        training: The app's one training.
        library: The chosen model, which a training is for.
        theme: The appearance to follow.
        leave: Goes back to the drafters.
    """

    def __init__(self, training: TrainingControl, library: Library, theme: Theme, leave: Callable[[], object]) -> None:
        super().__init__()
        self._training = training
        self._library = library
        # The state that is shown; the training's own may be newer by the interval of the throttle.
        self._state = training.state
        # The points of the curves that are shown.
        self._points: list[CurvePoint] = []
        self.form = TrainingForm(library, theme)
        self.back = IconButton("previous", "Back to the drafters", theme, act=leave)
        self.heading = ElidedLabel(theme, "", bold=True)
        self.title = ThemedLabel(theme, "", points_more=3, bold=True, wraps=True)
        self.step, self.figures, self.notes, self.problem, self.status = (
            ThemedLabel(theme, "", color, tabular=True, wraps=True)
            for color in ("muted", "muted", "muted", "danger", "muted")
        )
        self.bar = ThinBar("Progress of this step")
        self.curves = PlotView(theme, "Learning curve")
        self.table = TableView("Tokens per step")
        self.discard = push_button("Discard…", "", self._ask_to_discard)
        self.race = push_button("Try in a Benchmark…", "", self._race)
        self.main = push_button("", "", self._press_main)
        self._lay_out(theme)
        QShortcut(QKeySequence.StandardKey.Back, self, leave)
        training.changed.connect(Throttle(self, self._show_state).note)
        library.drafters_changed.connect(self._show_state)
        self._show_state()

    def _lay_out(self, theme: Theme) -> None:
        inner = QWidget()
        content = QWidget()
        inner.setMaximumWidth(_WIDEST)
        labels = (self.title, self.step, self.bar, self.figures, self.table, self.notes, self.problem)
        column(self.form, *labels, within=inner)
        column(inner, self.curves, None, within=content, margins=(LARGE, MEDIUM, LARGE, LARGE))
        top = row(self.back, (self.heading, 1), margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        margins = (LARGE, SMALL, LARGE, MEDIUM)
        below = row((self.status, 1), self.discard, self.race, self.main, margins=margins)
        parts = (top, Separator(theme), (scrolled(content), 1), Separator(theme), below)
        column(*parts, within=self, spacing=0)

    def _show_state(self) -> None:
        """Show the form, the progress or the result, whichever the state of the training asks for."""
        training = self._training
        chosen = self._library.chosen
        self._state = training.state
        order = training.order
        result = training.comparison
        # There is no training yet, or none is known yet (LOOKING): the form is shown.
        fresh = self._state is TrainingState.NOTHING or order is None
        model = order or chosen
        self.heading.setText(f"Train a drafter for {model.name}" if model else "Train a drafter")
        self.form.setVisible(fresh)
        self.discard.setVisible(not fresh)
        self.discard.setEnabled(self._state not in {TrainingState.LOOKING, TrainingState.ENDING})
        for part in (self.race, self.table):
            part.setVisible(result is not None and not fresh)
        going = result is None and not fresh
        self.bar.setVisible(going and self._state.is_active)
        self.curves.setVisible(going and bool(training.points))
        self.main.setEnabled(self._state not in _BUSY)
        if fresh:
            self._show_form()
        elif result is not None:
            self._show_result(result)
        else:
            self._show_progress()

    def _show_form(self) -> None:
        """Show the fields of a new training; the main button starts it if there is a model for it.

        The line beside the button says what went wrong last, else a hint; without a model, that there is none.
        """
        chosen = self._library.chosen
        free = chosen is not None and self._state is TrainingState.NOTHING
        self.form.setEnabled(free)
        self.form.show_size()
        for label in (self.title, self.step, self.figures, self.notes, self.problem):
            label.show_text("")
        self._name_main("Start Training", default=free)
        self.main.setEnabled(free)
        problem = self._problem
        self.status.set_color("danger" if problem and chosen else "muted")
        self.status.setText(problem or _HINT if chosen else _NO_MODEL)

    def _show_progress(self) -> None:
        """Show what the training does, or where it has stopped; the main button pauses or resumes it."""
        training = self._training
        progress = training.progress
        assert training.order is not None
        running = self._state is TrainingState.TRAINING
        active = self._state.is_active
        self.title.show_text(state_title(self._state, progress))
        self.step.show_text(step_text(training.order, self._state, progress))
        show_share(self.bar, progress.fraction if progress else None)
        resumable = self._state in _RESUMABLE
        learnt = f"{percent(training.points[-1].fraction)} learnt" if training.points and resumable else ""
        self.figures.show_text(figures(progress) if running and progress else learnt)
        notes = [costs(training.plan)] if running and training.plan else []
        if active and not any(point.accuracy for point in training.points):
            notes.append(_NOTHING_YET)
        self.notes.show_text("\n".join(notes))
        color = "danger" if self._state is TrainingState.FAILED else "muted"
        self.problem.show_text(self._problem, color)
        self._name_main("Resume" if resumable else "Pause", default=resumable)
        self.status.set_color("muted")
        self.status.setText(_ACTIVE_HINT if active else "")
        if training.points != self._points:
            self._points = list(training.points)
            self.curves.show_plots(curves(self._points))

    def _show_result(self, result: Comparison) -> None:
        """Show the new drafter beside the old one; the main button takes it into use."""
        training = self._training
        order = training.order
        assert order is not None
        self.title.show_text(result_title(result))
        tokens = counted(order.tokens, "token")
        self.step.show_text(f"Recurrent drafter for {order.name}, trained on {tokens}.")
        self.notes.show_text(result_text(result))
        for label in (self.figures, self.problem):
            label.show_text("")
        titles, *rows = [[TableCell(text) for text in line] for line in result_rows(result)]
        self.table.show_rows(titles, rows)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.table.setFixedHeight(header.sizeHint().height() + self.table.verticalHeader().length())
        self._name_main("Use Drafter", default=not is_worse(result))
        loaded = self._library.loaded
        record = training.record
        can_race = loaded is not None and record is not None and str(loaded.path) == record.model_folder
        self.race.setEnabled(can_race)
        set_tip(self.race, "" if can_race else "Load the model first.")
        size = training.data_bytes
        data = f"Either way, its training data ({memory(size)}) is deleted." if size else ""
        self.status.set_color("danger" if training.problem else "muted")
        self.status.setText(self._problem or data)

    @property
    def _problem(self) -> str:
        """What went wrong last, and what to do about it; empty if nothing did."""
        return f"{self._training.problem} {self._training.hint}".strip()

    def _name_main(self, text: str, *, default: bool) -> None:
        """Name the main button; as the default button, it is pressed by Return."""
        self.main.setText(text)
        self.main.setDefault(default)

    def _press_main(self) -> None:
        """Do what the main button says in this state; in those of `_BUSY` it is disabled."""
        if self._state is TrainingState.FINISHED:
            self._training.take_drafter()
        elif self._state in _RESUMABLE:
            self._training.resume()
        elif self._state is not TrainingState.NOTHING:
            self._training.pause_training()
        elif (order := self.form.order()) is not None:
            self._training.start_training(order)

    def _ask_to_discard(self) -> None:
        text = "The drafter and its training data are deleted. This cannot be undone."
        ask(self, "Discard this training?", text, "Discard", self._training.discard, leave="Keep", removes=True)

    def _race(self) -> None:
        drafter = str(training_folder() / DRAFTER)
        self._library.race_requested.emit(replace(self._library.settings, mode=Mode.DRAFTER, drafter=drafter))


class TrainingForm(QWidget):
    """The fields of a training that has not begun.

    Args:
        library: Has the model to train for, and the speed of the loaded one.
        theme: The appearance to follow.
    """

    def __init__(self, library: Library, theme: Theme) -> None:
        super().__init__()
        self._library = library
        self._theme = theme
        self.tokens = QSpinBox(
            minimum=1000, maximum=100_000_000, singleStep=50_000, value=DEFAULT_TOKENS, suffix=" tokens"
        )
        self.tokens.setGroupSeparatorShown(True)
        self.chats = QCheckBox("Learn from my questions too")
        self.little = ThemedLabel(theme, _LITTLE, "warning", wraps=True)
        self.time = small_text(theme)
        self._lay_out()
        self.tokens.valueChanged.connect(self.show_size)
        self.show_size()

    def _lay_out(self) -> None:
        size, chats = (ThemedLabel(self._theme, name, bold=True) for name in ("How much", "Your chats"))
        self.tokens.setAccessibleName("Tokens of answers")
        self.tokens.setAccessibleDescription(_MORE)
        self.tokens.setFixedWidth(170)
        amount = row(self.tokens, (self.time, 1), spacing=SMALL)
        chats_note = small_text(self._theme, _CHATS)
        chats_note.setContentsMargins(_INDENT, 0, 0, TIGHT)
        self.chats.setAccessibleDescription(_CHATS)
        sizes = (size, small_text(self._theme, _MORE), amount, self.little)
        column(*sizes, MEDIUM, chats, self.chats, chats_note, within=self, spacing=TIGHT)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_size()

    def show_size(self) -> None:
        """Show how long the training takes, if the loaded model's speed is known, and whether it is too short."""
        tokens = self.tokens.value()
        library = self._library
        self.little.setVisible(tokens < _LITTLE_TOKENS)
        # Tokens a second, without drafting.
        pace = library.pace() if library.chosen and library.chosen.is_loaded else None
        counts = [tokens * each + _MEASURED_TOKENS for each in (_SHORTEST, _LONGEST)]
        times = [rough_time(count / pace) for count in counts] if pace else []
        # Both ends may be rounded to the same time.
        self.time.setText(f"That takes {' to '.join(dict.fromkeys(times))}." if times else _LATER)

    def order(self) -> TrainingOrder | None:
        """Return the chosen training; None where there is no model to train for."""
        chosen = self._library.chosen
        if chosen is None:
            return None
        return TrainingOrder(
            model=chosen.model or None,
            name=chosen.name,
            tokens=self.tokens.value(),
            with_chats=self.chats.isChecked(),
            dtype=self._library.dtype if chosen.is_loaded else "auto",
            old=self._library.settings.drafter if chosen.is_loaded else None,
        )


def state_title(state: TrainingState, progress: TrainingProgress | None) -> str:
    """Return the name of a state; while the training runs, that of its phase."""
    return _STATES.get(state) or _PHASES.get(progress.phase if progress else "", "Starting")


def short_text(training: TrainingControl) -> str:
    """Return `Training a drafter: step 3 of 5, 34 %`, or what became of it; empty where there is nothing to say."""
    state = training.state
    progress = training.progress
    if state in _OUTCOMES or not state.is_active:
        return _OUTCOMES.get(state, "")
    if progress is None or progress.phase not in _STEPS:
        return "Training a drafter"
    step = f"step {_STEPS.index(progress.phase) + 1} of {len(_STEPS)}"
    share = "" if progress.fraction is None else f", {percent(progress.fraction)}"
    return f"Training a drafter: {step}{share}"


def step_text(order: TrainingOrder, state: TrainingState, progress: TrainingProgress | None) -> str:
    """Return what is trained on how many tokens, and while it runs, the number of the step and what that does."""
    what = f"Recurrent drafter for {order.name}, {counted(order.tokens, 'token')}."
    if progress is None:
        return what
    if state is TrainingState.STARTING and progress.phase == LOADING:
        return f"{what} {progress.text}…"
    if state is TrainingState.TRAINING and progress.phase in _STEPS:
        return f"{what} Step {_STEPS.index(progress.phase) + 1} of {len(_STEPS)}. {progress.text}".strip()
    return what


def figures(progress: TrainingProgress) -> str:
    """Return the figures of the step: `34 %  ·  12 min left in this step  ·  1,204 tokens/s  ·  1.20 GB of memory`."""
    parts = (
        "" if progress.fraction is None else percent(progress.fraction),
        "" if progress.left_s is None else f"{time_left(progress.left_s)} in this step",
        f"{rate(progress.tokens_per_second)} tokens/s" if progress.tokens_per_second else "",
        f"{memory(progress.memory_bytes)} of memory" if progress.memory_bytes else "",
    )
    return "  ·  ".join(filter(None, parts))


def costs(plan: TrainingStart) -> str:
    """Return in two sentences how much disk and memory a training takes at most."""
    disk = size_text(plan.disk_bytes)
    limit = memory(plan.memory_bytes)
    room = f"The answers take up to {disk} of disk space, besides the drafter and its checkpoint."
    return f"{room} Training uses up to {limit} of memory."


def curves(points: Sequence[CurvePoint]) -> list[CurvesPlot]:
    """Return the learning curves: the accuracy at each draft position, once it is measured, and the loss.

    The number of positions is that of the last measurement.
    """
    measured = [point for point in points if point.accuracy]
    plots = []
    if measured:
        rates = [
            Curve(
                name,
                tuple((each.fraction, each.accuracy[position]) for each in measured if position < len(each.accuracy)),
            )
            for position, name in enumerate(_POSITIONS[: len(measured[-1].accuracy)])
        ]
        line = "On answers that it did not learn from. Each token counts if those before it were right."
        plots.append(CurvesPlot("How often a drafted token is right", line, rates, shares=True))
    line = "How far the drafter is from what the model writes. Lower is better."
    loss = Curve("Loss", tuple((point.fraction, point.loss) for point in points))
    return [*plots, CurvesPlot("Loss", line, [loss], shares=False)]


def result_title(comparison: Comparison) -> str:
    """Return whether the new drafter is better, with the figures."""
    group = _of_all(comparison)
    change = _change(group)
    if group.new is None:
        return "The drafter is trained, but could not be measured."
    if change is None:
        return f"The new drafter brings {decimal(group.new)} tokens per step."
    if change > _SAME:
        return f"The new drafter is better: {decimal(group.new)} tokens per step, {decimal(group.old)} before."
    if change < -_SAME:
        return f"The old drafter is better: {decimal(group.old)} tokens per step, the new one {decimal(group.new)}."
    return f"Both drafters bring {decimal(group.new)} tokens per step."


def is_worse(comparison: Comparison) -> bool:
    """Return whether the old drafter is better."""
    change = _change(_of_all(comparison))
    return change is not None and change < -_SAME


def result_text(comparison: Comparison) -> str:
    """Explain the figures of the table, and say which could not be measured."""
    drafter = (
        f"each drafter ({draft_size(COMPARED_BEAMS.width, COMPARED_BEAMS.length)})" if comparison.old else "the drafter"
    )
    text = (
        f"Average tokens per step on six everyday questions, with {drafter}. Without drafting it is 1. Drafting takes "
        "time too: a benchmark shows which is faster."
    )
    return f"{text}\n{comparison.old} could not be measured: {comparison.problem}" if comparison.problem else text


def result_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the table, the titles first; the average of all groups is the last.

    A row is `("Story", "2.41", "2.10", "+0.31")`; without an old drafter that was measured, only its first two.
    """
    rows = [("", "New", "Old", "Difference")]
    for group in sorted(comparison.groups, key=lambda each: each.group == _ALL):
        change = _change(group)
        difference = NONE if change is None else f"{change:+.2f}".replace("-", "\N{MINUS SIGN}")
        rows.append((group.group.capitalize(), decimal(group.new), decimal(group.old), difference))
    return [row if comparison.old and not comparison.problem else row[:2] for row in rows]


def _of_all(comparison: Comparison) -> ComparedGroup:
    """Return the average of all groups; one without figures if nothing could be measured."""
    return next((group for group in comparison.groups if group.group == _ALL), ComparedGroup(_ALL, None))


def _change(group: ComparedGroup) -> float | None:
    """Return how many more tokens a call the new drafter brings; None if that is unknown."""
    return None if group.new is None or group.old is None else group.new - group.old
