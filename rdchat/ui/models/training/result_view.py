"""The result of a training: the new drafter beside the old one, and what to do with it."""

from collections.abc import Callable

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHeaderView, QWidget

from rdchat.inference.api.training import ComparedGroup, Comparison
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.benchmark.results import TableCell, TableView
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.formatting import NONE, decimal, memory
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.models.training.parts import amount, lay_out

_ALL = "all"
_SAME = 0.005  # tokens a call that are no difference
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
        discard: Asks whether to discard it.
        race: Opens a race with the new drafter.
        theme: The appearance to follow.
    """

    def __init__(
        self, training: TrainingControl, discard: Callable[[], object], race: Callable[[], object], theme: Theme
    ) -> None:
        super().__init__()
        self._training = training
        self._shown: Comparison | None = None
        self.title = ThemedLabel(theme, "", points_more=3, bold=True, wraps=True)
        self.summary = ThemedLabel(theme, "", "muted", wraps=True)
        self.table = TableView(theme, "Tokens per call")
        self.explanation = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.problem = ThemedLabel(theme, "", "warning", wraps=True)
        self.data = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.use = push_button("Use it", "", training.take)
        self.race = push_button("Try in a race…", "", race)
        self.discard = push_button("Discard…", "", discard)
        shown = [self.title, self.summary, self.table, self.explanation, self.problem]
        lay_out(self, theme, shown, [(self.data, 1), self.discard, self.race, self.use])
        training.changed.connect(self.show_state)
        self.show_state()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._choose_default()

    def offer_race(self, can_race: bool) -> None:
        """Enable the race if the drafter's model is loaded."""
        self.race.setEnabled(can_race)
        set_tip(self.race, "" if can_race else "Load the model first.")

    def show_state(self) -> None:
        """Show the figures, and enable what can be done."""
        training, comparison, order = self._training, self._training.comparison, self._training.order
        for button in (self.use, self.discard):
            button.setEnabled(training.state is TrainingState.FINISHED)
        size = training.data_bytes
        words = f"The data it was trained on, {memory(size)}, is removed either way." if size else ""
        self.data.setText(f"{training.problem} {training.hint}".strip() or words)
        self.data.set_color("danger" if training.problem else "muted")
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
        difference = _change(_of_all(self._shown)) if self._shown is not None else None
        self.use.setDefault(difference is None or difference >= -_SAME)

    def _fill(self, comparison: Comparison) -> None:
        titles = ["", "New", "Old", "Difference"] if comparison.old and not comparison.problem else ["", "New"]
        rows = [
            (_GROUPS.get(group.group, group.group), decimal(group.new), decimal(group.old), _difference(group))
            for group in sorted(comparison.groups, key=lambda each: each.group == _ALL)
        ]
        cells = [[TableCell(text) for text in row[: len(titles)]] for row in rows]
        self.table.table.show_rows([TableCell(title) for title in titles], cells)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        header = self.table.horizontalHeader().sizeHint().height()
        self.table.setFixedHeight(header + self.table.verticalHeader().length())


def _of_all(comparison: Comparison) -> ComparedGroup:
    return next((group for group in comparison.groups if group.group == _ALL), ComparedGroup(_ALL, None))


def _title(comparison: Comparison) -> str:
    found = _of_all(comparison)
    change = _change(found)
    if found.new is None:
        return "The drafter is trained; nothing could be measured."
    if change is None:
        return f"The new drafter brings {decimal(found.new)} tokens a call."
    if change > _SAME:
        return f"The new drafter is better: {decimal(found.new)} tokens a call, {decimal(found.old)} before."
    if change < -_SAME:
        return f"The old drafter is better: {decimal(found.old)} tokens a call, the new one {decimal(found.new)}."
    return f"Both drafters bring {decimal(found.new)} tokens a call."


def _change(group: ComparedGroup) -> float | None:
    """Return how many more tokens a call the new drafter brings; None if that is unknown."""
    return None if group.new is None or group.old is None else group.new - group.old


def _difference(group: ComparedGroup) -> str:
    change = _change(group)
    if change is None:
        return NONE
    rounded = round(change, 2)
    sign = "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else ""
    return f"{sign}{abs(rounded):.2f}"
