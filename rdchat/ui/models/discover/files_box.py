"""A model's files: what would be fetched with its sizes, and what is left out; folded up at first."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from rdchat.hub.known_files import RepositoryFiles
from rdchat.ui.look import formatting
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.discover.link_button import LinkButton

_MOST_FILES, _MOST_LEFT_OUT = 200, 30


class FilesBox(QWidget):
    """A line that unfolds into the list."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._files: RepositoryFiles | None = None
        self.fold = LinkButton("", theme)
        self.fold.clicked.connect(self._toggle)
        self._open = False
        self._list: QWidget | None = None
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(TIGHT)
        self._column.addWidget(self.fold, 0, Qt.AlignmentFlag.AlignLeft)

    def show_files(self, files: RepositoryFiles | None) -> None:
        """Show the files of a model; None where nobody knows them."""
        if files == self._files:
            return
        self._files = files
        self._show()

    def _toggle(self) -> None:
        self._open = not self._open
        self._show()

    def _show(self) -> None:
        if self._list is not None:
            self._list.hide()
            self._column.removeWidget(self._list)
            self._list.deleteLater()
            self._list = None
        files = self._files
        self.setVisible(files is not None)
        if files is None:
            return
        left_out = f", {len(files.left_out)} left out" if files.left_out else ""
        counted = formatting.counted(len(files.files), "file")
        text = f"{'Hide' if self._open else 'Show'} {counted}{left_out}"
        self.fold.show_text(text)
        if self._open:
            self._list = self._build(files)
            self._column.addWidget(self._list)

    def _build(self, files: RepositoryFiles) -> QWidget:
        grown = QWidget()
        grid = QGridLayout(grown)
        grid.setContentsMargins(TIGHT, 0, 0, SMALL)
        grid.setHorizontalSpacing(MEDIUM)
        grid.setVerticalSpacing(2)
        for place, file in enumerate(sorted(files.files, key=lambda file: -file.size)[:_MOST_FILES]):
            size = ThemedLabel(self._theme, file_size(file.size), "muted", -1, tabular=True)
            size.setAlignment(Qt.AlignmentFlag.AlignRight)
            name = ElidedLabel(self._theme, file.name, points_more=-1, mode=Qt.TextElideMode.ElideMiddle)
            grid.addWidget(size, place, 0)
            grid.addWidget(name, place, 1)
        grid.setColumnStretch(1, 1)
        row = grid.rowCount()
        if files.left_out:
            grid.addWidget(self._left_out(files.left_out), row, 0, 1, 2)
        return grown

    def _left_out(self, names: tuple[str, ...]) -> QLabel:
        shown = ", ".join(names[:_MOST_LEFT_OUT])
        more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
        text = f"Left out, as rdchat reads only data that it knows, never code or pickles: {shown}{more}."
        return ThemedLabel(self._theme, text, "muted", -1, wraps=True, selectable=True)
