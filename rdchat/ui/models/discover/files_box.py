"""The files of a model of the hub, folded up at first: those to fetch with their sizes, and those left out."""

from PySide6.QtWidgets import QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.hub.known_files import RepositoryFiles
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.models.file_list import FileList
from rdchat.ui.models.link_button import LinkButton

_MOST_LEFT_OUT = 30


class FilesBox(QWidget):
    """A line that unfolds into the list."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._files: RepositoryFiles | None = None
        self._open = False
        self.fold = LinkButton("", theme)
        self.fold.clicked.connect(self._toggle)
        self.list = FileList(theme)
        self.left_out = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        column(row(self.fold, None), self.list, self.left_out, within=self, spacing=TIGHT)

    def show_files(self, files: RepositoryFiles | None) -> None:
        """Show the files of a model; None where they are not known."""
        self._files = files
        self.setVisible(files is not None)
        if files is None:
            return
        left_out = f", {len(files.left_out)} left out" if files.left_out else ""
        self.fold.show_text(f"{'Hide' if self._open else 'Show'} {counted(len(files.files), 'file')}{left_out}")
        self.list.setVisible(self._open)
        self.left_out.say(_left_out_words(files.left_out) if self._open and files.left_out else "")
        if self._open:
            largest_first = sorted(files.files, key=lambda file: -file.size)
            self.list.show_files([DownloadFile(file.name, file.size, file.size) for file in largest_first])

    def _toggle(self) -> None:
        self._open = not self._open
        self.show_files(self._files)


def _left_out_words(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MOST_LEFT_OUT])
    more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
    return f"Left out, as rdchat reads only data that it knows, never code or pickles: {shown}{more}."
