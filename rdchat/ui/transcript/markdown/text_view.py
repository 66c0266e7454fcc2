"""Shows one text by itself, as a reply looks."""

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget

from rdchat.ui.style.layouts import column
from rdchat.ui.style.theme import Theme
from rdchat.ui.transcript.markdown.parser import Parser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work

_SLICE_S = 0.008  # drawing time in a turn of the event loop
_LEXER_WAIT_MS = 50


class TextView(QWidget):
    """A text at its full height, drawn in slices, so that the window stays responsive. It fetches nothing."""

    drawn = Signal()  # all of it

    def __init__(self, parser: Parser, theme: Theme, name: str) -> None:
        super().__init__()
        self.body = TextBody(parser, theme, parent=self)
        self.body.setAccessibleName(name)
        column(self.body, within=self)
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._draw)
        self.body.height_changed.connect(lambda: self._timer.start(0))
        theme.changed.connect(self._restyle)

    def set_text(self, text: str) -> None:
        """Show another text; an empty one shows nothing."""
        self.body.set_text(text, True)
        self._timer.start(0)

    def _draw(self) -> None:
        work = self.body.draw(time.perf_counter() + _SLICE_S)
        if work is Work.NONE:
            self.drawn.emit()
        else:
            self._timer.start(0 if work is Work.READY else _LEXER_WAIT_MS)

    def _restyle(self) -> None:
        self.body.restyle()
        self._timer.start(0)
