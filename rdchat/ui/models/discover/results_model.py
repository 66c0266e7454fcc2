"""The rows at the left: models that a search found, or the list for newcomers under its headings."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import Fit
from rdchat.services.models.discover.fit import Machine, sizes_found
from rdchat.services.models.discover.newcomers import Suggestion
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.models.discover import words

Index = QModelIndex | QPersistentModelIndex
ROW = Qt.ItemDataRole.UserRole
_ROOT = QModelIndex()


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is drawn.

    Attributes:
        repository: The hub id; empty for a heading.
        title: The name, or the heading.
        facts: Below the name, at the left.
        use: Below the name, at the right.
        marks: Beside the name, at the right, each with the name of its colour.
        facts_of: What a search told of it; None for the others.
    """

    repository: str
    title: str
    facts: str = ""
    use: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    facts_of: FoundModel | None = None

    @property
    def spoken(self) -> str:
        """All of it, for people who do not see it."""
        return ", ".join(part for part in (self.title, *(mark for mark, _ in self.marks), self.facts, self.use) if part)


class ResultsModel(QAbstractListModel):
    """Rows; those that only gain some at the end keep their place and their selection."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows."""
        kept = len(self._rows)
        same = [row.repository for row in rows[:kept]] == [row.repository for row in self._rows]
        if same and len(rows) >= kept and kept:
            if rows[:kept] != self._rows:
                self._rows[:] = rows[:kept]
                self.dataChanged.emit(self.index(0), self.index(kept - 1))
            if len(rows) > kept:
                self.beginInsertRows(_ROOT, kept, len(rows) - 1)
                self._rows += rows[kept:]
                self.endInsertRows()
            return
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()

    def row_at(self, index: Index) -> Row:
        return self._rows[index.row()]

    def index_of(self, repository: str) -> QModelIndex:
        """Return where a model is; an invalid index where it is not."""
        place = next((place for place, row in enumerate(self._rows) if row.repository == repository), None)
        return QModelIndex() if place is None else self.index(place)

    def rowCount(self, parent: Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def flags(self, index: Index) -> Qt.ItemFlag:
        return super().flags(index) if self._rows[index.row()].repository else Qt.ItemFlag.NoItemFlags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return row.spoken
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip_text(row.repository)
        return row if role == ROW else None


class FoundRows:
    """The rows of what a search found. Each is made once, as long as the machine and what is here stay the same."""

    def __init__(self) -> None:
        self._machine: Machine | None = None
        self._here: frozenset[str] = frozenset()
        self._made: dict[str, Row] = {}

    def rows(self, found: Sequence[FoundModel], machine: Machine | None, here: frozenset[str]) -> list[Row]:
        """Return a row for each, in the same order."""
        if (machine, here) != (self._machine, self._here):
            self._machine, self._here, self._made = machine, here, {}
        rows = []
        for model in found:
            row = self._made.get(model.repository)
            if row is None or row.facts_of is not model:
                row = self._made[model.repository] = self._row(model)
            rows.append(row)
        return rows

    def _row(self, model: FoundModel) -> Row:
        fit = self._machine.fit(sizes_found(model)) if self._machine else None
        return Row(
            model.repository,
            words.split_name(model.repository)[1],
            words.row_facts(model),
            words.download_count(model.downloads),
            _marks(fit, model.repository in self._here, model.gated),
            model,
        )


def newcomer_rows(
    suggestions: Sequence[Suggestion], first: Sequence[Suggestion], machine: Machine | None, here: frozenset[str]
) -> list[Row]:
    """Return the list for newcomers, what fits this machine best first."""
    rows: list[Row] = []
    best = first[0].memory_gb if first else 0
    sizes = sorted({each.memory_gb for each in suggestions}, key=lambda memory: (memory != best, memory))
    for memory in sizes:
        rows.append(Row("", words.memory_heading(memory, here=memory == best)))
        for each in suggestions:
            if each.memory_gb == memory:
                gated = each.checked is not None and each.checked.gated
                marks = _marks(each.fit(machine) if machine else None, each.repository in here, gated)
                rows.append(Row(each.repository, each.name, words.suggestion_facts(each), "", marks))
    return rows


def _marks(fit: Fit | None, here: bool, gated: bool) -> tuple[tuple[str, str], ...]:
    marks = []
    if here:
        marks.append(("Here", "success"))
    if gated:
        marks.append(("Gated", "muted"))
    if fit in words.FIT_MARKS:
        marks.append((words.FIT_MARKS[fit], "warning" if fit is Fit.TIGHT else "muted"))
    return tuple(marks)
