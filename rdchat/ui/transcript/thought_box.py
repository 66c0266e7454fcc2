"""The thoughts before a reply, folded away by default."""

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QToolButton, QWidget

from rdchat.ui.look import formatting
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme, control_font
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody


class ThoughtBox(QWidget):
    """A button over a muted text that it folds and unfolds."""

    height_changed = Signal()

    def __init__(self, theme: Theme, library: LexerLibrary, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.unfolded = False
        self._chosen = False  # the person folded or unfolded it: from then on it stays as it is
        self._toggle = QToolButton(self)
        self._toggle.setAutoRaise(True)
        self._toggle.setFont(control_font())
        self._toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.body = TextBody(MarkdownParser(), theme, library, muted=True, parent=self)
        self.body.setAccessibleName(self.tr("The model's thoughts"))
        self.body.height_changed.connect(self.height_changed)
        self._toggle.clicked.connect(self._toggle_fold)
        self.restyle()

    def show_thought(self, text: str, ms: float = 0.0, *, thinking: bool, cut_off: bool = False) -> None:
        """Show a thought.

        Args:
            text: The thought.
            ms: How long it took; 0 if that is not known.
            thinking: Whether it is being written.
            cut_off: Whether the reply ended before an answer: then the thought is unfolded.
        """
        self.body.set_text(text, not thinking)
        if not self._chosen:
            self.unfolded = cut_off
        self._toggle.setText(_title(ms, thinking=thinking, cut_off=cut_off))
        self._fold()

    def layout_for(self, width: int) -> int:
        """Place the parts at a width and return the height they need."""
        size = self._toggle.sizeHint()
        self._toggle.setGeometry(-SMALL + 2, 0, min(size.width(), width), size.height())
        if not self.unfolded:
            return size.height()
        inner = width - 2 * MEDIUM
        height = self.body.height_for(inner)
        self.body.setGeometry(2 * MEDIUM - SMALL, size.height() + SMALL, inner, height)
        return size.height() + SMALL + height

    def restyle(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.ButtonText, self._theme.colors.muted)
        self._toggle.setPalette(palette)
        self._fold()

    def unfold(self) -> None:
        """Show the thought, as if the person had asked for it."""
        if not self.unfolded:
            self._toggle_fold()

    def _toggle_fold(self) -> None:
        self._chosen, self.unfolded = True, not self.unfolded
        self._fold()
        self.height_changed.emit()

    def _fold(self) -> None:
        self._toggle.setArrowType(Qt.ArrowType.DownArrow if self.unfolded else Qt.ArrowType.RightArrow)
        name = self.tr("Hide the model's thoughts") if self.unfolded else self.tr("Show the model's thoughts")
        self._toggle.setAccessibleName(name)
        self.body.setVisible(self.unfolded)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.unfolded:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colors.border)
            top = self._toggle.height() + SMALL
            painter.drawRoundedRect(SMALL - 2, top, 3, self.height() - top, 1.5, 1.5)


def _title(ms: float, *, thinking: bool, cut_off: bool) -> str:
    if thinking:
        return _tr("Thinking…")
    if cut_off:
        return _tr("Did not finish thinking")
    if not ms:
        return _tr("Thoughts")
    return _tr("Thought for {duration}").format(duration=formatting.whole_seconds(ms))


def _tr(text: str) -> str:
    return QCoreApplication.translate("ThoughtBox", text)
