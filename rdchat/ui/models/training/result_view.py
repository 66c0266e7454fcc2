"""The result of a training: the new drafter beside the old one, and what to do with it."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QGridLayout, QPushButton, QWidget

from rdchat.inference.api.training import ComparedGroup, Comparison
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.formatting import NONE, decimal, memory
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, SMALL, TIGHT, Theme
from rdchat.ui.models.training.training_view import lay_out
from rdchat.ui.models.training.words import amount

_ALL = "all"
_FASTER, _SLOWER = 0.005, -0.005  # tokens a call that are no difference
_GROUPS = {
    "explaining": "Explaining",
    "code": "Code",
    "story": "A story",
    "list": "A list",
    "summary": "A summary",
    "copy": "Copying",
    _ALL: "All",
}
_WHAT = (
    "Tokens that a call of the model brings, when {setup} drafts on six everyday questions; 1 is plain decoding. More "
    "is not always faster, as drafting takes time too: a race shows it."
)


class ResultView(QWidget):
    """A table of figures, and the choice between the new drafter and none.

    Args:
        training: The training.
        theme: The appearance to follow.
    """

    discard_requested = Signal()
    race_requested = Signal()

    def __init__(self, training: TrainingControl, theme: Theme) -> None:
        super().__init__()
        self._training, self._theme = training, theme
        self._shown: Comparison | None = None
        self.title = ThemedLabel(theme, "", points_more=3, bold=True, wraps=True)
        self.summary = ThemedLabel(theme, "", "muted", wraps=True)
        self.explanation = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.problem = ThemedLabel(theme, "", "warning", wraps=True)
        self.data = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.table = QWidget()
        self.table.setAccessibleName("Tokens per call")
        self._grid = QGridLayout(self.table)
        self.use = QPushButton("Use it")
        self.race = QPushButton("Try in a race…")
        self.discard = QPushButton("Discard…")
        self._grid.setContentsMargins(0, SMALL, 0, SMALL)
        self._grid.setHorizontalSpacing(LARGE)
        self._grid.setVerticalSpacing(TIGHT + 2)
        self._grid.setColumnStretch(0, 1)
        shown = [self.title, self.summary, self.table, self.explanation, self.problem]
        lay_out(self, theme, shown, [(self.data, 1), self.discard, self.race, self.use])
        self.use.clicked.connect(training.take)
        self.race.clicked.connect(self.race_requested)
        self.discard.clicked.connect(self.discard_requested)
        training.changed.connect(self.show_state)
        self.show_state()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._choose_default()

    def offer_race(self, can_race: bool) -> None:
        """Enable the race where the drafter's model is loaded."""
        self.race.setEnabled(can_race)
        set_tip(self.race, "" if can_race else "Load the model first.")

    def show_state(self) -> None:
        """Show the figures, and what can be done."""
        training, comparison = self._training, self._training.comparison
        self.use.setEnabled(training.state is TrainingState.FINISHED)
        self.discard.setEnabled(training.state is TrainingState.FINISHED)
        size = training.data_bytes
        words = f"The data it was trained on, {memory(size)}, is removed either way." if size else ""
        self.data.setText(f"{training.problem} {training.hint}".strip() or words)
        self.data.set_color("danger" if training.problem else "muted")
        order = training.order
        if comparison is None or order is None or comparison == self._shown:
            return
        self._shown = comparison
        self.title.setText(_title(comparison))
        how = "for" if order.hours is not None else "on"
        self.summary.setText(f"{order.kind.words} drafter for {order.name}, trained {how} {amount(order)}.")
        self.explanation.setText(_WHAT.format(setup=f"each of them ({comparison.setup})" if comparison.old else "it"))
        missing = f"{comparison.old} could not be measured: {comparison.problem}"
        self.problem.say(missing if comparison.problem else "")
        self._fill(comparison)
        self._choose_default()

    def _choose_default(self) -> None:
        """Make `Use it` the default button, unless the old drafter is better."""
        self.use.setDefault(self._shown is None or _color(_of_all(self._shown)) != "warning")

    def _fill(self, comparison: Comparison) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if widget := item.widget():
                widget.deleteLater()
        both = bool(comparison.old) and not comparison.problem
        titles = ["", "New", "Old", "Difference"] if both else ["", "New"]
        for column, title in enumerate(titles):
            self._put(0, column, title, "muted")
        groups = sorted(comparison.groups, key=lambda each: each.group == _ALL)
        for number, group in enumerate(groups):
            last = group.group == _ALL
            row = 2 + number + last
            if last:
                self._grid.addWidget(Separator(self._theme), row - 1, 0, 1, len(titles))
            self._put(row, 0, _GROUPS.get(group.group, group.group), bold=last)
            self._put(row, 1, decimal(group.new), bold=last)
            if both:
                self._put(row, 2, decimal(group.old), "muted")
                self._put(row, 3, _difference(group), _color(group), bold=last)
        self._grid.addWidget(Separator(self._theme), 1, 0, 1, len(titles))
        self.table.setAccessibleDescription(_spoken(comparison))

    def _put(self, row: int, column: int, words: str, color: str = "text", *, bold: bool = False) -> None:
        label = ThemedLabel(self._theme, words, color, bold=bold, tabular=True)
        label.setMinimumWidth(72 if column else 0)
        side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
        label.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self._grid.addWidget(label, row, column)


def _of_all(comparison: Comparison) -> ComparedGroup:
    return next((group for group in comparison.groups if group.group == _ALL), ComparedGroup(_ALL, None))


def _title(comparison: Comparison) -> str:
    found = _of_all(comparison)
    if found.new is None:
        return "The drafter is trained; nothing could be measured."
    if found.old is None:
        return f"The new drafter brings {decimal(found.new)} tokens a call."
    better = found.new - found.old
    if better > _FASTER:
        return f"The new drafter is better: {decimal(found.new)} tokens a call, {decimal(found.old)} before."
    if better < _SLOWER:
        return f"The old drafter is better: {decimal(found.old)} tokens a call, the new one {decimal(found.new)}."
    return f"Both drafters bring {decimal(found.new)} tokens a call."


def _difference(group: ComparedGroup) -> str:
    if group.new is None or group.old is None:
        return NONE
    difference = round(group.new - group.old, 2)
    sign = "+" if difference > 0 else "\N{MINUS SIGN}" if difference < 0 else ""
    return f"{sign}{abs(difference):.2f}"


def _color(group: ComparedGroup) -> str:
    if group.new is None or group.old is None or _SLOWER <= group.new - group.old <= _FASTER:
        return "muted"
    return "success" if group.new > group.old else "warning"


def _spoken(comparison: Comparison) -> str:
    parts = []
    for group in comparison.groups:
        old = f", old {decimal(group.old)}" if group.old is not None else ""
        parts.append(f"{_GROUPS.get(group.group, group.group)}: new {decimal(group.new)}{old}")
    return "; ".join(parts)
