"""Parts of a message in the transcript: its status line, the model's thoughts, and the mark of a context cut."""

from enum import StrEnum

from PySide6.QtCore import QCoreApplication, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QToolButton, QWidget

from rdchat.chat.conversation import ContextCut, Message, MessageStatus
from rdchat.inference.api.events import FinishReason
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT, Theme, control_font
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody

EDGE = TIGHT + 2  # the frame of a flat button: buttons stand so far left of texts, and their icons meet the edge


class Remedy(StrEnum):
    """What the person can do about a reply's early end: the words of the button."""

    NOTHING = ""
    CONTINUE = "Continue"
    TRY_AGAIN = "Try again"


def early_end(message: Message) -> tuple[str, Remedy]:
    """Return why a reply ended early, and what to do; an empty text if it ended by itself or is being written."""
    begun = bool(message.text.strip())
    remedy = Remedy.CONTINUE if begun else Remedy.TRY_AGAIN
    match message.status, message.finish_reason:
        case MessageStatus.FAILED, _:
            return message.error or _tr("The reply failed."), Remedy.TRY_AGAIN
        case MessageStatus.INTERRUPTED, _:
            end = _tr("Interrupted: rdchat closed while this was being written.")
            return end if begun else _tr("Interrupted: rdchat closed before this began."), remedy
        case MessageStatus.COMPLETE, FinishReason.CANCELLED:
            return _tr("Stopped."), remedy
        case MessageStatus.COMPLETE, FinishReason.LENGTH:
            return _tr("Stopped at the limit of tokens for one reply."), remedy
        case MessageStatus.COMPLETE, FinishReason.CONTEXT_FULL:
            text = _tr("The model's context is full. Leave out the oldest messages, summarise them, or start anew.")
            return text, Remedy.NOTHING
    return "", Remedy.NOTHING


class LineLabel(ThemedLabel):
    """A label that asks for one line, and wraps where it gets less room."""

    def __init__(self, theme: Theme, text: str = "", color: str = "text", points_more: float = 0) -> None:
        super().__init__(theme, text, color, points_more, wraps=True, selectable=True)

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self.text()) + 4, super().sizeHint().height())


class StatusLine(QWidget):
    """Why a reply ended early or what it waits for, in a muted colour or red, and at most one button."""

    remedy_requested = Signal(Remedy)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._remedy = Remedy.NOTHING
        self._label = LineLabel(theme)
        self._button = TextButton("", theme)
        self._button.clicked.connect(lambda: self.remedy_requested.emit(self._remedy))
        row(self._label, self._button, None, within=self, margins=(EDGE, TIGHT, EDGE, 0))

    def show_message(self, message: Message, waiting: str) -> None:
        """Show how a reply ended, or what an empty one waits for."""
        text, self._remedy = early_end(message)
        if message.status is MessageStatus.STREAMING and not message.text:
            text = waiting or self.tr("Waiting for the model…")
        self._label.setText(text)
        self._label.set_color("danger" if message.status is MessageStatus.FAILED else "muted")
        self._button.setText(self.tr(self._remedy))
        self._button.setAccessibleName(self._button.text())
        self._button.setVisible(bool(self._remedy))

    @property
    def text(self) -> str:
        return self._label.text()


class ThoughtBox(QWidget):
    """The model's thoughts before a reply: a button over a muted text that it folds and unfolds."""

    height_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.unfolded = False
        self._chosen = False  # the person folded or unfolded it: from then on it stays as it is
        self._toggle = QToolButton(self)
        self._toggle.setAutoRaise(True)
        self._toggle.setFont(control_font())
        self._toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._toggle.clicked.connect(self._toggle_fold)
        self.body = TextBody(MarkdownParser(), theme, muted=True, parent=self)
        self.body.setAccessibleName(self.tr("The model's thoughts"))
        self.body.height_changed.connect(self.height_changed)
        indent = EDGE + 2 * MEDIUM - SMALL
        column(
            row(self._toggle, None),
            row(self.body, margins=(indent, 0, SMALL, 0)),
            within=self,
            margins=(0, 0, 0, SMALL),
        )
        self._recolor()
        theme.changed.connect(self._recolor)

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

    def unfold(self) -> None:
        """Show the thought, as if the person had asked for it."""
        if not self.unfolded:
            self._toggle_fold()

    def _recolor(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.ButtonText, self._theme.colors.muted)
        self._toggle.setPalette(palette)

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
            painter.drawRoundedRect(EDGE + SMALL - 2, self.body.y(), 3, self.body.height(), 1.5, 1.5)


def _title(ms: float, *, thinking: bool, cut_off: bool) -> str:
    if thinking:
        return _tr("Thinking…")
    if cut_off:
        return _tr("Did not finish thinking")
    if not ms:
        return _tr("Thoughts")
    return _tr("Thought for {duration}").format(duration=formatting.whole_seconds(ms))


class CutMark(QWidget):
    """A line below the last message that the model does not get, with the summary it gets in place of them.

    Args:
        cut: That message's cut.
        messages: How many messages are left out.
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    undo_requested = Signal()

    def __init__(self, cut: ContextCut, messages: int, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.cut, self.messages = cut, messages
        self._theme = theme
        above = f"{formatting.counted(messages, 'message')} above"
        words = f"The model gets a summary of the {above}" if cut.summary else f"The model is not told the {above}"
        self.label = LineLabel(theme, words, "muted", -1)
        self.button = TextButton("Tell it all again", theme)
        set_tip(self.button, "Gives the model the whole chat again; nothing was deleted")
        self.button.clicked.connect(self.undo_requested)
        lines = Separator(theme), Separator(theme)
        line = row((lines[0], 1), self.label, self.button, (lines[1], 1), spacing=MEDIUM, margins=(EDGE, 0, EDGE, 0))
        self._column = column(line, within=self, margins=(0, TIGHT, 0, SMALL))
        self.summary: TextBody | None = None
        if cut.summary:
            self.summary = TextBody(MarkdownParser(), theme, parent=self)
            self.summary.setAccessibleName("Summary of the messages above")
            self.summary.set_text(cut.summary, True)
            title = ThemedLabel(theme, f"Summary by {cut.model}" if cut.model else "Summary", "muted", -1)
            inner = EDGE + MEDIUM
            self._card = column(title, self.summary, spacing=TIGHT, margins=(inner, SMALL, inner, SMALL))
            self._column.addLayout(self._card)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.summary:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(self._theme.colors.border)
            painter.setBrush(self._theme.colors.code)
            painter.drawRoundedRect(self._card.geometry().adjusted(EDGE, 0, -EDGE - 1, -1), RADIUS, RADIUS)


def _tr(text: str) -> str:
    return QCoreApplication.translate("MessageParts", text)
