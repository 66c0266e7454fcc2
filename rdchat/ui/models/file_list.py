"""The files of a model, folded up at first."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHeaderView, QTreeWidget, QTreeWidgetItem, QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.theme import TIGHT, Theme, control_font
from rdchat.ui.models.downloads.words import file_words


class FileList(QWidget):
    """Shows each file with its size or its progress.

    Attributes:
        fold: The button that folds and unfolds the list; the owner places it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._files: Sequence[DownloadFile] = ()
        self._more = self._note = ""
        self._open = False
        self.fold = TextButton("", theme)
        self.fold.clicked.connect(self._turn)
        self.tree = QTreeWidget(columnCount=2)
        self.tree.setHeaderHidden(True)
        self.tree.setRootIsDecorated(False)
        self.tree.setUniformRowHeights(True)
        self.tree.setAccessibleName("Files")
        self.tree.setFont(control_font(-1, tabular=True))
        self.tree.setFrameShape(QFrame.Shape.NoFrame)
        self.tree.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.tree.setSelectionMode(QTreeWidget.SelectionMode.NoSelection)
        self.tree.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.tree.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.tree.viewport().setAutoFillBackground(False)
        self.tree.header().setStretchLastSection(False)
        self.tree.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.tree.header().setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)
        self.note = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        column(self.tree, self.note, within=self, spacing=TIGHT)
        self.show_files(())

    def show_files(self, files: Sequence[DownloadFile], more: str = "", note: str = "") -> None:
        """Show these files.

        Args:
            files: The files.
            more: Follows the number of files on the button.
            note: Shown below the list.
        """
        self._files, self._more, self._note = files, more, note
        self.fold.setVisible(bool(files))
        self._show()

    def _turn(self) -> None:
        self._open = not self._open
        self._show()

    def _show(self) -> None:
        self.fold.setText(f"{'Hide' if self._open else 'Show'} {counted(len(self._files), 'file')}{self._more}")
        self.setVisible(self._open and bool(self._files))
        if self.isHidden():
            return
        self.note.say(self._note)
        lines = [(file.name, file.note or file_words(file)) for file in self._files]
        self.tree.clear()
        self.tree.addTopLevelItems([QTreeWidgetItem(line) for line in lines])
        self.tree.setFixedHeight(self.tree.sizeHintForRow(0) * len(lines))
        self.tree.setAccessibleDescription("\n".join(f"{name}: {words}" for name, words in lines))
