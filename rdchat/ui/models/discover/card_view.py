"""A model's card, rendered like a reply. It fetches nothing."""

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from rdchat.ui.look.theme import Theme
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work

_SLICE_S = 0.008  # drawing time in a turn of the event loop
_LEXER_WAIT_MS = 50
_MOST_CHARACTERS = 30_000  # shown: Qt lays out the whole text when the window's width changes


class CardView(QWidget):
    """Shows one card at its full height; a long one is drawn in slices, so that the window stays responsive."""

    cut = Signal(bool)  # whether some of the card is left out; emitted once it is drawn

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._is_cut = False
        self.body = self._new_body()
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._draw)
        theme.changed.connect(self._restyle)

    def show_card(self, card: str) -> None:
        """Show another card; an empty text shows none."""
        old, self.body = self.body, self._new_body()  # a text that is replaced would be laid out twice
        old.hide()
        old.deleteLater()
        self._is_cut = len(card) > _MOST_CHARACTERS
        end = card.rfind("\n", 0, _MOST_CHARACTERS) if self._is_cut else len(card)
        self.body.set_text(card[: end if end > 0 else _MOST_CHARACTERS], True)
        self.body.show()
        self._fit()
        self._timer.start(0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _new_body(self) -> TextBody:
        body = TextBody(MarkdownParser(), self._theme, parent=self)
        body.setAccessibleName("Model card")
        return body

    def _draw(self) -> None:
        deadline = time.perf_counter() + _SLICE_S
        work = self.body.advance(deadline)
        while work is Work.READY and time.perf_counter() < deadline:
            work = self.body.advance(deadline)
        self._fit()
        if work is not Work.NONE:
            self._timer.start(0 if work is Work.READY else _LEXER_WAIT_MS)
        else:
            self.cut.emit(self._is_cut or self.body.hidden_characters > 0)

    def _fit(self) -> None:
        height = self.body.height_for(max(self.width(), 1)) if self.body.work or self.body.toPlainText() else 0
        self.body.setGeometry(0, 0, self.width(), height)
        self.setFixedHeight(height)

    def _restyle(self) -> None:
        self.body.restyle()
        self._timer.start(0)
