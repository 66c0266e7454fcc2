"""The training page: the form, the progress or the result of the app's one training."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QCheckBox, QHeaderView, QSpinBox, QWidget

from rdchat.inference.api.requests import Mode
from rdchat.inference.api.training import DEFAULT_TOKENS, DRAFTER, Comparison, TrainingOrder
from rdchat.services.models.library import Library
from rdchat.services.models.training.training_control import CurvePoint, TrainingControl, TrainingState
from rdchat.ui.benchmark.results import TableCell, TableView
from rdchat.ui.models.training import texts
from rdchat.ui.plots.plot_view import PlotView
from rdchat.ui.style.buttons import IconButton, push_button
from rdchat.ui.style.formatting import MACHINE, counted, memory, percent, rough_time
from rdchat.ui.style.labels import ElidedLabel, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import ThinBar, column, row, scrolled, show_share
from rdchat.ui.style.opening import ask
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.style.throttle import Throttle

_LITTLE_TOKENS = 20_000
# Indent of an explanation, which begins below the text of its button.
_INDENT = 24
_CHATS = (
    "The drafter also learns from the first question of each chat, which the model answers again. The questions stay "
    f"on {MACHINE}, in the training data, and are deleted with it. The drafter's card records only their number."
)
_MORE = (
    "The model writes answers, and the drafter learns from them. More answers make a better drafter: the default "
    "model's own drafter was trained on 6.9 million tokens."
)
_LATER = "The time left is shown once training has begun."
# Time of a training for each of its tokens, in tokens of a plain reply: from learning alone, where rdchat ships the
# answers, to writing them too; then the drafter is measured. With the default model, on two CPU cores.
_SHORTEST = 0.25
_LONGEST = 1.5
_MEASURED_TOKENS = 5000
_LITTLE = "This is too little for a useful drafter. Choose more."


class TrainingForm(QWidget):
    """The fields of a training.

    Args:
        library: Knows for which model.
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
        self.time = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self._lay_out()
        self.tokens.valueChanged.connect(self.show_size)
        self.show_size()

    def _lay_out(self) -> None:
        size, chats = (ThemedLabel(self._theme, name, bold=True) for name in ("How much", "Your chats"))
        self.tokens.setAccessibleName("Tokens of answers")
        self.tokens.setAccessibleDescription(_MORE)
        self.tokens.setFixedWidth(170)
        amount = row(self.tokens, (self.time, 1), spacing=SMALL)
        sizes = (size, self._note(_MORE), amount, self.little)
        column(*sizes, MEDIUM, chats, self.chats, self._note(_CHATS, self.chats), within=self, spacing=TIGHT)

    def _note(self, text: str, button: QWidget | None = None) -> ThemedLabel:
        """Return an explanation, indented below its box if it has one."""
        label = ThemedLabel(self._theme, text, "muted", -1, wraps=True)
        if button is not None:
            label.setContentsMargins(_INDENT, 0, 0, TIGHT)
            button.setAccessibleDescription(text)
        return label

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_size()

    def show_size(self) -> None:
        """Show what the number of tokens comes to, as far as the loaded model's speed is known."""
        tokens = self.tokens.value()
        library = self._library
        self.little.setVisible(tokens < _LITTLE_TOKENS)
        pace = library.pace() if library.chosen and library.chosen.is_loaded else None
        counts = [tokens * each + _MEASURED_TOKENS for each in (_SHORTEST, _LONGEST)]
        times = [rough_time(count / pace) for count in counts] if pace else []
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


# Width of a column of text, in pixels.
_WIDEST = 620
_HINT = "rdchat loads the model a second time for training."
_NO_MODEL = "Load a model first, or choose an installed one."
_ACTIVE_HINT = (
    "You can chat while training runs: it waits while a reply is written. You can close this window. Quitting rdchat "
    "pauses the training; resume it next time."
)
_RESUMABLE = {TrainingState.PAUSED, TrainingState.FAILED}
# States in which the main button is disabled.
_BUSY = {TrainingState.LOOKING, TrainingState.PAUSING, TrainingState.ENDING}


class TrainingPage(QWidget):
    """Shows the form, the progress or the result, and a main button for the next step.

    Args:
        training: The app's one training.
        library: The chosen model, which a training is for.
        theme: The appearance to follow.
    """

    left = Signal()

    def __init__(self, training: TrainingControl, library: Library, theme: Theme) -> None:
        super().__init__()
        self._training = training
        self._library = library
        self._state = training.state
        self._points: list[CurvePoint] = []
        self.form = TrainingForm(library, theme)
        self.back = IconButton("previous", "Back to the drafters", theme, act=self.left.emit)
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
        self.race = push_button("Try in a Race…", "", self._race)
        self.main = push_button("", "", self._press_main)
        self._lay_out(theme)
        QShortcut(QKeySequence.StandardKey.Back, self, self.left.emit)
        self._throttle = Throttle(self, self._show_state)
        training.changed.connect(self._throttle.note)
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
        training = self._training
        chosen = self._library.chosen
        self._state = training.state
        order = training.order
        result = training.comparison
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
        chosen = self._library.chosen
        training = self._training
        free = chosen is not None and self._state is TrainingState.NOTHING
        self.form.setEnabled(free)
        self.form.show_size()
        for label in (self.title, self.step, self.figures, self.notes, self.problem):
            label.show_text("")
        self._offer("Start Training", free)
        self.main.setEnabled(free)
        problem = f"{training.problem} {training.hint}".strip()
        self.status.set_color("danger" if problem and chosen else "muted")
        self.status.setText(problem or _HINT if chosen else _NO_MODEL)

    def _show_progress(self) -> None:
        training = self._training
        progress = self._training.progress
        assert training.order is not None
        running = self._state is TrainingState.TRAINING
        active = self._state.is_active
        self.title.show_text(texts.state_title(self._state, progress))
        self.step.show_text(texts.step_text(training.order, self._state, progress))
        show_share(self.bar, progress.fraction if progress else None)
        far = training.points[-1].fraction if training.points else None
        stopped = f"{percent(far)} learnt" if far is not None and self._state in _RESUMABLE else ""
        self.figures.show_text(texts.figures(progress) if running and progress else stopped)
        notes = [texts.costs(training.plan)] if running and training.plan else []
        if active and not any(point.accuracy for point in training.points):
            notes.append(texts.NOTHING_YET)
        self.notes.show_text("\n".join(notes))
        color = "danger" if self._state is TrainingState.FAILED else "muted"
        self.problem.show_text(f"{training.problem} {training.hint}".strip(), color)
        self._offer("Resume" if self._state in _RESUMABLE else "Pause", self._state in _RESUMABLE)
        self.status.set_color("muted")
        self.status.setText(_ACTIVE_HINT if active else "")
        if training.points != self._points:
            self._points = list(training.points)
            self.curves.show_plots(texts.curves(self._points))

    def _show_result(self, result: Comparison) -> None:
        training = self._training
        order = self._training.order
        assert order is not None
        self.title.show_text(texts.result_title(result))
        tokens = counted(order.tokens, "token")
        self.step.show_text(f"Recurrent drafter for {order.name}, trained on {tokens}.")
        self.notes.show_text(texts.result_text(result))
        for label in (self.figures, self.problem):
            label.show_text("")
        titles, *rows = [[TableCell(text) for text in line] for line in texts.result_rows(result)]
        self.table.show_rows(titles, rows)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.table.setFixedHeight(header.sizeHint().height() + self.table.verticalHeader().length())
        self._offer("Use Drafter", not texts.is_worse(result))
        loaded = self._library.loaded
        record = training.record
        can_race = loaded is not None and record is not None and str(loaded.path) == record.model_folder
        self.race.setEnabled(can_race)
        set_tip(self.race, "" if can_race else "Load the model first.")
        size = training.data_bytes
        data = f"Either way, its training data ({memory(size)}) is deleted." if size else ""
        self.status.set_color("danger" if training.problem else "muted")
        self.status.setText(f"{training.problem} {training.hint}".strip() or data)

    def _offer(self, text: str, default: bool) -> None:
        """Name the main button; as the default button, it is pressed by Return."""
        self.main.setText(text)
        self.main.setDefault(default)

    def _press_main(self) -> None:
        if self._state is TrainingState.FINISHED:
            self._training.take()
        elif self._state in _RESUMABLE:
            self._training.resume()
        elif self._state is not TrainingState.NOTHING:
            self._training.pause()
        elif (order := self.form.order()) is not None:
            self._training.start(order)

    def _ask_to_discard(self) -> None:
        text = "The drafter and its training data are deleted. This cannot be undone."
        ask(self, "Discard this training?", text, "Discard", self._training.discard, leave="Keep", removes=True)

    def _race(self) -> None:
        drafter = str(self._training.folder / DRAFTER)
        self._library.race_requested.emit(replace(self._library.settings, mode=Mode.DRAFTER, drafter=drafter))
