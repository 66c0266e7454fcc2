"""A small chart of the decoding speed: the last samples as a line, nothing else."""

from collections import deque

from PySide6.QtCore import QPointF, QSize
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.ui.look.theme import Theme

_SAMPLES = 120
_WINDOW_MS = 250.0  # decoding time per sample: a single token would make the line jump


class SpeedSamples:
    """Turns growing counters into the speed of the last moments."""

    def __init__(self) -> None:
        self.rates: deque[float] = deque(maxlen=_SAMPLES)
        self._tokens = 0
        self._decode_ms = 0.0

    def add(self, statistics: Statistics) -> None:
        """Add a sample once enough decoding time passed; counters that went back begin a new reply."""
        if statistics.generated_tokens < self._tokens or statistics.decode_ms < self._decode_ms:
            self.clear()
        if self._tokens == 0 and statistics.generated_tokens:
            self._tokens = 1  # the first token belongs to prefill
        elapsed = statistics.decode_ms - self._decode_ms
        if elapsed >= _WINDOW_MS:
            self.rates.append((statistics.generated_tokens - self._tokens) / elapsed * 1000)
            self._tokens, self._decode_ms = statistics.generated_tokens, statistics.decode_ms

    def clear(self) -> None:
        self.rates.clear()
        self._tokens, self._decode_ms = 0, 0.0


class Sparkline(QWidget):
    """Draws `SpeedSamples` from zero up; the newest sample is at the right."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.samples = SpeedSamples()
        self.setAccessibleName("Decoding speed over time")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(120, 40)

    def add(self, statistics: Statistics) -> None:
        self.samples.add(statistics)
        self.update()

    def clear(self) -> None:
        self.samples.clear()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        base = self.contentsRect().bottom() - 0.5
        painter.setPen(QPen(colors.border, 1))
        painter.drawLine(QPointF(0, base), QPointF(self.width(), base))
        points = self._points(base)
        if not points:
            return
        line = QPainterPath(points[0])
        for point in points[1:]:
            line.lineTo(point)
        area = QPainterPath(line)
        area.lineTo(points[-1].x(), base)
        area.lineTo(points[0].x(), base)
        tint = QColor(colors.accent)
        tint.setAlpha(36)
        painter.fillPath(area, tint)
        painter.setPen(QPen(colors.accent, 1.5))
        painter.drawPath(line)
        painter.setBrush(colors.accent)
        painter.drawEllipse(points[-1], 2, 2)

    def _points(self, base: float) -> list[QPointF]:
        rates = self.samples.rates
        top = max(rates, default=0.0)
        if top <= 0 or len(rates) < 2:
            return []
        right = self.width() - 4.0
        step = right / (max(len(rates), 24) - 1)  # the line grows from the right, so that its end keeps its place
        newest = len(rates) - 1
        scale = (base - 4) / (top * 1.1)
        return [QPointF(right - (newest - place) * step, base - rate * scale) for place, rate in enumerate(rates)]
