"""A column of row widgets."""

from collections.abc import Callable, Mapping

from PySide6.QtWidgets import QWidget

from rdchat.ui.look.layouts import column


class RowList[Item, Row: QWidget](QWidget):
    """Shows a row for each item. A row stays as long as its item is listed, so that it keeps the focus.

    Args:
        make: Makes an empty row.
        update: Has a row show its item.
    """

    def __init__(self, make: Callable[[], Row], update: Callable[[Row, Item], None]) -> None:
        super().__init__()
        self._make, self._update = make, update
        self._column = column(None, within=self, spacing=0)
        self.rows: dict[str, Row] = {}

    def show_items(self, items: Mapping[str, Item]) -> None:
        """Show these items, each under a key that stays the same."""
        for key in self.rows.keys() - items.keys():
            row = self.rows.pop(key)
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, (key, item) in enumerate(items.items()):
            if key not in self.rows:
                self.rows[key] = self._make()
            if self._column.indexOf(self.rows[key]) != place:
                self._column.insertWidget(place, self.rows[key])
            self._update(self.rows[key], item)
        self.setVisible(bool(items))
