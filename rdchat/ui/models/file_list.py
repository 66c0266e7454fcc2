"""The files of a model, folded up at first."""

from collections.abc import Sequence

from rdchat.hub.downloads.download import DownloadFile
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import Theme
from rdchat.ui.models.downloads.words import file_words

_MOST_LISTED = 300


class FileList(ThemedLabel):
    """Lists each file with its size or its progress, one on each line.

    Attributes:
        fold: The button that folds and unfolds the list; the owner places it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "", "muted", -1, tabular=True, wraps=True, selectable=True)
        self._files: Sequence[DownloadFile] = ()
        self._more = self._note = ""
        self._open = False
        self.fold = TextButton("", theme, self._turn)
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
        listed = self._files[:_MOST_LISTED] if self._open else ()
        lines = [f"{file.name}: {file.note or file_words(file)}" for file in listed]
        more = len(self._files) - _MOST_LISTED
        self.say("\n".join([*lines, *([f"and {more:,} more"] if more > 0 else []), self._note]) if lines else "")
