"""The parts of the speed panel: sections that fold, and rows of a name with its value."""

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from rdchat.ui.look import formatting
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.painting import paint_focus
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font

_CHEVRON = 12


class FigureRow(QWidget):
    """One row: a name, and its value at the right edge."""

    def __init__(self, theme: Theme, name: str, definition: str, color: str = "muted") -> None:
        super().__init__()
        self._name = name
        self.value = ThemedLabel(theme, tabular=True)
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.parts = row((ElidedLabel(theme, name, color), 1), self.value, within=self)  # the name gives way
        set_tip(self, definition)
        self.show_value(formatting.NONE)

    def show_value(self, words: str, more: str = "") -> None:
        """Show a value; `more` follows it for screen readers."""
        if words != self.value.text() or more:
            self.value.setText(words)
            self.value.setAccessibleName(f"{self._name}: {words}{more}")  # a bare figure would not say what it is


class SectionHead(QAbstractButton):
    """A heading that folds its section and unfolds it."""

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

    folded = Signal(str, bool)  # its name, whether the person folded or unfolded it

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.name = name
        self.theme = theme
        self.head = SectionHead(theme, name)
        body = QWidget()
        self._rows = column(within=body, spacing=TIGHT + 2)
        column(self.head, body, within=self, spacing=TIGHT + 2)
        self.head.toggled.connect(body.setVisible)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))

    def add[W: QWidget](self, row: W) -> W:
        self._rows.addWidget(row)
        return row

    def add_figure(self, name: str, definition: str) -> FigureRow:
        return self.add(FigureRow(self.theme, name, definition))

    def fold(self, folded: bool) -> None:
        """Fold or unfold it without emitting `folded`."""
        self.head.setChecked(not folded)
