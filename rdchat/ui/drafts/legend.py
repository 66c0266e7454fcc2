"""What the marks of the token view mean, with the number of tokens of each."""

from collections import Counter

from PySide6.QtCore import QPointF, QSize
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.ui.drafts.drafter_marks import DRAFTERS, LINE_WORDS, drafter_words, ink, underline
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, SMALL, TIGHT, Theme, control_font

_SAMPLE = "Abc"


class Legend(QWidget):
    """Each kind of token as it is drawn, its name and how many there are, in one line where there is room. Kinds that
    do not occur are left out, but the target's own.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._counts: Counter[str] = Counter()
        self.setFont(control_font(-1, tabular=True))
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName("Legend")
        set_tip(
            self,
            "Tokens that were drafted and accepted are underlined in their drafter's colour. "
            "All others the model chose itself, one in each round. "
            "In the text, left and right go from token to token, up and down from round to round.",
        )
        theme.changed.connect(self.update)

    def show_trace(self, trace: ReplyTrace) -> None:
        """Count anew."""
        before = self.heightForWidth(self.width())
        self._counts = Counter(token.drafter for token in trace.tokens)
        if self.heightForWidth(self.width()) != before:
            self.updateGeometry()
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
        return QSize(120, self.heightForWidth(self.width()))

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        lines = self._places(width)[-1][1] + 1
        return round(lines * self._line_height) + TIGHT

    @property
    def _line_height(self) -> float:
        return QFontMetricsF(self.font()).height() + TIGHT

    def _places(self, width: int) -> list[tuple[float, int]]:
        """Return where each entry begins, in pixels, and on which line."""
        metrics = QFontMetricsF(self.font())
        found: list[tuple[float, int]] = []
        x, line = 0.0, 0
        for _, words, _ in self._entries():
            wide = metrics.horizontalAdvance(_SAMPLE) + SMALL + metrics.horizontalAdvance(words)
            if x and x + wide > width:
                x, line = 0.0, line + 1
            found.append((x, line))
            x += wide + LARGE
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics = QFontMetricsF(self.font())
        sample = metrics.horizontalAdvance(_SAMPLE)
        for (drafter, words, _), (x, line) in zip(self._entries(), self._places(self.width()), strict=True):
            place = QPointF(x, line * self._line_height + metrics.ascent() + 1)
            painter.setPen(ink(self._theme, drafter))
            painter.drawText(place, _SAMPLE)
            if drafter:
                underline(painter, self._theme, drafter, place + QPointF(0, 4), sample)
            painter.setPen(self._theme.colors.muted)
            painter.drawText(place + QPointF(sample + SMALL, 0), words)
