"""What the marks of the token view mean, with the number of tokens of each."""

from collections import Counter

from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.ui.drafts.drafters import DRAFTERS, LINE_WORDS, drafter_words, ink, underline
from rdchat.ui.labels import wrapped
from rdchat.ui.theme import LARGE, SMALL, Theme, control_font

_SAMPLE = "Abc"


class Legend(QWidget):
    """One line: each kind of token as it is drawn, its name and how many there are. Kinds that do not occur are left
    out, but the target's own.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._counts: Counter[str] = Counter()
        self.setFont(control_font(-1, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Legend")
        self.setToolTip(
            wrapped(
                "Tokens that were drafted and accepted are underlined in their drafter's colour. "
                "All others the model chose itself, one in each round."
            )
        )
        theme.changed.connect(self.update)

    def show_trace(self, trace: ReplyTrace) -> None:
        """Count anew."""
        self._counts = Counter(token.drafter for token in trace.tokens)
        self.setAccessibleDescription("; ".join(f"{name}: {drawn}" for _, name, drawn in self._entries()))
        self.update()

    def _entries(self) -> list[tuple[str, str, str]]:
        """Return drafter, words and the words for how it is drawn."""
        kinds = ["", *(drafter for drafter in DRAFTERS if self._counts[drafter])]
        return [
            (kind, f"{drafter_words(kind)} {self._counts[kind]:,}", LINE_WORDS.get(kind, "not underlined"))
            for kind in kinds
        ]

    def sizeHint(self) -> QSize:
        return QSize(120, round(QFontMetricsF(self.font()).height()) + SMALL)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics = QFontMetricsF(self.font())
        base, x = metrics.ascent() + 1, 0.0
        for drafter, words, _ in self._entries():
            sample = metrics.horizontalAdvance(_SAMPLE)
            painter.setPen(ink(self._theme, drafter))
            painter.drawText(QPointF(x, base), _SAMPLE)
            if drafter:
                underline(painter, self._theme, drafter, QPointF(x, base + 4), sample)
            x += sample + SMALL
            painter.setPen(self._theme.colors.muted)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawText(QPointF(x, base), words)
            x += metrics.horizontalAdvance(words) + LARGE
