"""What the speed panel is made of: sections that fold, and rows of a name with its figure."""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from rdchat.ui.look import formatting
from rdchat.ui.look.focus import paint_focus
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font

_CHEVRON = 12


class FigureRow(QWidget):
    """One row: a name, and its value in figures of one width at the right edge."""

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__()
        self._name = name
        self.value = ThemedLabel(theme, tabular=True)
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(ElidedLabel(theme, name, "muted"), 1)  # it gives way to the value
        row.addWidget(self.value)
        self.define(definition)
        self.show_value(formatting.NONE)

    def define(self, definition: str) -> None:
        set_tip(self, definition)

    def show_value(self, words: str) -> None:
        if words != self.value.text():
            self.value.setText(words)
            self.value.setAccessibleName(f"{self._name}: {words}")  # a bare figure would say nothing to a screen reader


class SectionHead(QAbstractButton):
    """A heading that folds its section away and back."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self._theme = theme
        self.setText(name)
        self.setCheckable(True)
        self.setChecked(True)
        self.setFont(control_font(-0.5, bold=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.toggled.connect(self._describe)
        theme.changed.connect(self.update)
        self._describe(True)

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        return QSize(metrics.horizontalAdvance(self.text()) + SMALL + _CHEVRON, metrics.height() + TIGHT)

    def _describe(self, unfolded: bool) -> None:
        self.setAccessibleName(f"{self.text()}, {'unfolded' if unfolded else 'folded'}")
        set_tip(self, f"{'Fold' if unfolded else 'Unfold'} {self.text()}")

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setPen(colors.text)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, self.text())
        color = colors.text if self.underMouse() else colors.muted
        icon = "unfold" if self.isChecked() else "next"
        chevron = line_pixmap(icon, color, _CHEVRON, self.devicePixelRatioF())
        painter.drawPixmap(self.width() - _CHEVRON, (self.height() - _CHEVRON) // 2, chevron)
        if self.hasFocus():
            paint_focus(painter, QRectF(self.rect()), self._theme)


class Section(QWidget):
    """A heading with rows below it."""

    folded = Signal(str, bool)  # its name, whether the person folded it up or down

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.name = name
        self.theme = theme
        self.head = SectionHead(theme, name)
        self._body = QWidget()
        self._rows = QVBoxLayout(self._body)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(TIGHT + 2)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(TIGHT + 2)
        layout.addWidget(self.head)
        layout.addWidget(self._body)
        self.head.toggled.connect(self._body.setVisible)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))

    def add[W: QWidget](self, row: W) -> W:
        self._rows.addWidget(row)
        return row

    def add_figure(self, name: str, definition: str) -> FigureRow:
        return self.add(FigureRow(self.theme, name, definition))

    def fold(self, folded: bool) -> None:
        """Fold it up or down without telling."""
        self.head.setChecked(not folded)
