"""Rows one below the other, each kept as long as what it shows is there: the keyboard's place is not lost."""

from collections.abc import Callable, Mapping

from PySide6.QtWidgets import QVBoxLayout, QWidget


class RowList[Item, Row: QWidget](QWidget):
    """Shows one row for each item.

    Args:
        make: Makes the row of an item that is new.
        update: Has a row show its item.
    """

    def __init__(self, make: Callable[[Item], Row], update: Callable[[Row, Item], None]) -> None:
        super().__init__()
        self._make, self._update = make, update
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.rows: dict[str, Row] = {}

    def show_items(self, items: Mapping[str, Item]) -> None:
        """Show these, by a name that stays."""
        for name in self.rows.keys() - items.keys():
            row = self.rows.pop(name)
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, (name, item) in enumerate(items.items()):
            if name not in self.rows:
                self.rows[name] = self._make(item)
            row = self.rows[name]
            if self._column.indexOf(row) != place:
                self._column.insertWidget(place, row)
            self._update(row, item)
