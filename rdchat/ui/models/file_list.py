"""The files of a download, each with a bar and the state of its connection."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.ui.look.theme import MEDIUM, Theme, control_font
from rdchat.ui.models.downloads.words import file_words
from rdchat.ui.models.thin_bar import paint_bar

_BAR = 80  # pixels
_WIDEST = "88.8 of 88.8 GB  ·  888.8 MB/s  ·  88 min left"


class FileList(QWidget):
    """Draws a line for each visible file: a model may have hundreds.

    Args:
        theme: The appearance to follow.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._files: Sequence[DownloadFile] = ()
        self.setFont(control_font(-1, tabular=True))
        self.setAccessibleName("Files")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def show_files(self, files: Sequence[DownloadFile]) -> None:
        if files == self._files:
            return
        if len(files) != len(self._files):
            self.updateGeometry()
        self._files = files
        self.setAccessibleDescription("\n".join(f"{file.name}: {file.note or file_words(file)}" for file in files))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, len(self._files) * self._line)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    @property
    def _line(self) -> int:
        return self.fontMetrics().height() + 6

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, colors = QPainter(self), self._theme.colors
        line, metrics = self._line, self.fontMetrics()
        first, last = event.rect().top() // line, event.rect().bottom() // line
        middle = Qt.AlignmentFlag.AlignVCenter
        figures = metrics.horizontalAdvance(_WIDEST)
        bar_left = self.width() - figures - _BAR
        for place, file in enumerate(self._files[first : last + 1], start=first):
            top = place * line
            words = file.note or file_words(file)
            room = bar_left - MEDIUM
            painter.setPen(colors.text if file.done_bytes < file.size else colors.muted)
            name = metrics.elidedText(file.name, Qt.TextElideMode.ElideMiddle, room)
            painter.drawText(QRectF(0, top, room, line), middle, name)
            if file.note:
                painter.setPen(colors.warning)
                area = QRectF(bar_left, top, _BAR + figures, line)
                words = metrics.elidedText(words, Qt.TextElideMode.ElideRight, round(area.width()))
            else:
                if file.done_bytes < file.size:
                    bar = QRectF(bar_left, top + line / 2 - 1.5, _BAR, 3)
                    paint_bar(painter, bar, file.done_bytes / file.size, self._theme, "accent")
                painter.setPen(colors.muted)
                area = QRectF(bar_left + _BAR, top, figures, line)
            painter.drawText(area, middle | Qt.AlignmentFlag.AlignRight, words)
