"""A small ring in the composer: how much of the model's context the chat takes with the typed text."""

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.services.chat.chat_context import ContextUse
from rdchat.ui.style.labels import set_tip
from rdchat.ui.style.theme import TIGHT, Theme, control_font

_RING, _STROKE, _HEIGHT = 14, 2.5, 30  # as high as the button beside it
_NEARLY = 0.8  # of the context: its colour warns
_FULL_CIRCLE = 360 * 16  # Qt's angles


class ContextRing(QWidget):
    """A ring and a share in per cent; the tokens are its tooltip. Without a count it takes no room."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._share = 0.0  # of the context; 1 where the chat does not fit
        self.text = ""  # beside the ring
        self.setFont(control_font(-1, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.hide()
        theme.changed.connect(self.update)

    def show_use(self, use: ContextUse | None) -> None:
        """Show a count, or nothing where there is none."""
        self.setVisible(use is not None and use.tokens != 0)
        self.text = ""
        if use is not None:
            self._share = use.tokens / use.limit if use.tokens is not None and use.fits else 1.0
            percent = "<1%" if 0 < self._share < 0.01 else f"{min(int(self._share * 100), 99)}%"
            self.text = percent if use.fits else "Too long"
            self.setAccessibleName(context_text(use))
            set_tip(self, context_text(use))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(_RING + TIGHT + self.fontMetrics().horizontalAdvance(self.text) + 2, _HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors, share = self._theme.colors, self._share
        ink = colors.danger if share >= 1 else colors.warning if share >= _NEARLY else colors.accent
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = _STROKE / 2
        ring = QRectF(0, (_HEIGHT - _RING) / 2, _RING, _RING).adjusted(edge, edge, -edge, -edge)
        painter.setPen(QPen(colors.border, _STROKE))
        painter.drawEllipse(ring)
        painter.setPen(QPen(ink, _STROKE, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
        painter.drawArc(ring, 90 * 16, -round(share * _FULL_CIRCLE))
        painter.setPen(colors.muted if share < _NEARLY else ink)
        painter.drawText(self.rect().adjusted(_RING + TIGHT, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.text)


def context_text(use: ContextUse) -> str:
    """Say a count in a sentence."""
    if use.tokens is None:
        return f"This chat is far too long for this model ({use.limit:,} tokens)."
    typed = "This chat and your message take" if use.typed else "This chat takes"
    return f"{typed} {use.tokens:,} of the model's {use.limit:,} tokens. The reply needs some too."
