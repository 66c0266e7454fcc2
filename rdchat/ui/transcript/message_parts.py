"""Widgets that messages are made of: the text field and the editor, texts that fold, the line at a cut of the context.

A context cut is where the messages above are no longer sent to the model, or only as a summary. `MessageArea` is the
base of the scroll area that holds the messages, with the signals that they emit.
"""

from collections.abc import Callable
from math import ceil

from PySide6.QtCore import QEvent, QMimeData, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QKeyEvent, QKeySequence, QPaintEvent, QPen, QResizeEvent, QTextLayout
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Message
from rdchat.chat.summaries import ContextCut
from rdchat.services.chat.chat_prompt import LeftOut
from rdchat.ui.style import (
    MEDIUM,
    SMALL,
    TIGHT,
    IconButton,
    PlainField,
    Separator,
    TextButton,
    Theme,
    ThemedLabel,
    button_text,
    column,
    cut as shortened,
    day_text,
    dialog_buttons,
    discard,
    lay_out_later,
    listed,
    paint_card,
    push_button,
    row,
    set_tip,
)
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.wording import counted

EDGE = TIGHT + 2
"""The frame of a flat button, in pixels. Buttons stand this far left of texts, so that their icons meet the edge."""
# The names of files that a summary's line lists.
_MAX_SOURCES = 5
# The longest name shown, in characters: an imported summary may have names of any length.
_LONGEST_SOURCE = 60


def height_of(column: QVBoxLayout, width: int) -> int:
    """Return the height that a column of widgets needs at a width."""
    # The layout may hold old heights of parts that have changed; this drops them.
    column.activate()
    height = column.heightForWidth(width)
    return height if height >= 0 else column.sizeHint().height()


class PromptField(PlainField):
    """A text field as high as its lines. Return submits, Shift-Return breaks the line.

    The Up key emits `above_requested` while the field is empty.

    Args:
        theme: The appearance to follow.
        name: Its name for screen readers.
        lines: The lowest and the highest number of lines that it shows.
        return_submits: Whether Return alone submits; otherwise only Ctrl-Return (on a Mac, Command-Return) does.
    """

    submit_requested = Signal()
    above_requested = Signal()
    height_changed = Signal()
    focus_changed = Signal()
    # A text that was pasted or dropped, which may be kept as a file.
    pasted = Signal(str)

    def __init__(self, theme: Theme, name: str, lines: tuple[int, int], *, return_submits: bool = True) -> None:
        super().__init__()
        self._theme = theme
        self._lines = lines
        self._return_submits = return_submits
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName(name)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # The widget around it paints the background, with round corners.
        self.viewport().setAutoFillBackground(False)
        self.textChanged.connect(self._fit)
        # What an input method composes is laid out, but no change of the text yet.
        self.document().documentLayout().documentSizeChanged.connect(self._fit_later)
        theme.changed.connect(self._restyle)
        self._restyle()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle Up in an empty field, Undo, and Return; all else is Qt's, Return in an input method too."""
        modifiers = event.modifiers()
        modifier = Qt.KeyboardModifier
        is_blank = self.document().isEmpty() and not self.composing
        # A Mac's arrow keys count as keys of the keypad.
        if event.key() == Qt.Key.Key_Up and not modifiers & ~modifier.KeypadModifier and is_blank:
            self.above_requested.emit()
        elif event.matches(QKeySequence.StandardKey.Undo):
            self.undo()
        elif event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or self.composing:
            super().keyPressEvent(event)
        elif modifiers & modifier.ControlModifier or (
            self._return_submits and not modifiers & (modifier.ShiftModifier | modifier.AltModifier)
        ):
            self.submit_requested.emit()
        else:
            self.textCursor().insertText("\n")  # Qt's own Shift-Return would insert U+2028
            self.ensureCursorVisible()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_later()

    def insertFromMimeData(self, source: QMimeData) -> None:
        self.pasted.emit(source.text())
        super().insertFromMimeData(source)

    def _fit_later(self) -> None:
        lay_out_later(self)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:
            self._fit()
        done = super().event(event)
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self.focus_changed.emit()
        return done

    def _line_heights(self) -> list[float]:
        """Return the heights of the text's lines without a scroll bar, of one more than the field shows at most.

        The document itself may have the lines of an earlier width, or those beside the bar, where a line holds less.
        """
        document = self.document()
        width = self.width() - 2 * document.documentMargin()
        block = document.begin()
        heights: list[float] = []
        while block.isValid() and len(heights) <= self._lines[1]:
            composed = block.layout()
            layout = QTextLayout(block.text(), self.font())
            layout.setTextOption(document.defaultTextOption())
            layout.setPreeditArea(composed.preeditAreaPosition(), composed.preeditAreaText())
            layout.beginLayout()
            while len(heights) <= self._lines[1] and (line := layout.createLine()).isValid():
                line.setLeadingIncluded(True)
                line.setLineWidth(width)
                heights.append(line.height())
            layout.endLayout()
            block = block.next()
        return heights

    def _fit(self) -> None:
        low, high = self._lines
        heights = self._line_heights()
        fits = len(heights) <= high
        policy = Qt.ScrollBarPolicy.ScrollBarAlwaysOff if fits else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        if policy is not self.verticalScrollBarPolicy():
            self.setVerticalScrollBarPolicy(policy)
        # A line has whole pixels, and is higher where a letter has another font.
        text_height = max(sum(heights[:high]), low * ceil(QFontMetricsF(self.font()).lineSpacing()))
        height = ceil(text_height + 2 * self.document().documentMargin()) + 2
        if height != self.height():
            self.setFixedHeight(height)
            self.height_changed.emit()

    def _restyle(self) -> None:
        self.setFont(self._theme.body_font())
        self._fit()


class MessageEditor(QWidget):
    """Edits a prompt, where Return saves and sends, or a reply or a summary, where Return breaks the line.

    Esc cancels.
    """

    submitted = Signal(str)
    cancelled = Signal()
    changed = Signal(str)

    def __init__(
        self,
        text: str,
        theme: Theme,
        parent: QWidget,
        *,
        of_reply: bool = False,
        of_summary: bool = False,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        # Returns whether the message may have no words, as it has images.
        self.needs_no_words: Callable[[], bool] = lambda: False
        name = "Edit the summary" if of_summary else "Edit the reply" if of_reply else "Edit your message"
        sends = not (of_reply or of_summary)
        self.field = PromptField(theme, name, (3, 16), return_submits=sends)
        self.field.document().setDocumentMargin(SMALL)
        self.field.setPlainText(text)
        if sends:
            self.field.moveCursor(self.field.textCursor().MoveOperation.End)
        keys = QKeySequence("Ctrl+Return").toString(QKeySequence.SequenceFormat.NativeText)
        of_text = "The model gets this from now on" if of_summary else "Keeps the model's version too"
        tip = "Keeps the old version too, and gets a new reply" if sends else f"{of_text} ({keys})"
        self._save = push_button("Save and Send" if sends else "Save", tip, self._submit)
        self._save.setDefault(True)
        buttons = dialog_buttons(reject=push_button("Cancel", act=self.cancelled.emit), accept=self._save)
        self._line = row(None, buttons)
        self._column = column(self.field, self._line, within=self)
        self.setContentsMargins(EDGE, 0, EDGE, 0)
        self.field.submit_requested.connect(self._submit)
        self.field.textChanged.connect(self._text_changed)
        self.field.focus_changed.connect(self.update)
        # Otherwise the layout around it may still have the old height.
        self.field.height_changed.connect(self.updateGeometry)
        self.setFocusProxy(self.field)

    def add_files(self, chips: QWidget, attach: Callable[[], object]) -> None:
        """Show the files of the message below its text, and a button that attaches more."""
        self._column.insertWidget(1, chips)
        self._line.insertWidget(0, IconButton("attach", "Attach files", self._theme, act=attach))

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        line = QPen(colors.accent, 1.5) if self.field.hasFocus() else None
        paint_card(self, QRectF(self.field.geometry()).adjusted(1, 1, -1, -1), colors.raised, line)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)

    @property
    def text(self) -> str:
        return self.field.toPlainText()

    def _text_changed(self) -> None:
        self.refresh_button()
        self.changed.emit(self.text)

    def refresh_button(self) -> None:
        """Enable the button that saves if there is something to save."""
        self._save.setEnabled(bool(self.text.strip()) or self.needs_no_words())

    def _submit(self) -> None:
        if self.text.strip() or self.needs_no_words():
            self.submitted.emit(self.text)


class LineLabel(ThemedLabel):
    """A wrapping label that asks for one line, and takes more where it gets less room."""

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self.text()) + 4, super().sizeHint().height())


class FoldedText(QWidget):
    """A muted text below a button that folds and unfolds it: the model's thoughts, or a summary."""

    # The person has folded or unfolded it.
    toggled = Signal()

    def __init__(self, theme: Theme, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._name = name
        self.unfolded = False
        # Whether the person has folded or unfolded it, after which `show_folded` does not.
        self._chosen = False
        self._toggle = TextButton("", theme, self._toggle_fold, color="muted")
        self.body = TextBody(MarkdownParser(), theme, muted=True, parent=self)
        self.body.setAccessibleName(name.capitalize())
        indent = EDGE + 2 * MEDIUM - SMALL
        body = row(self.body, margins=(indent, 0, SMALL, 0))
        column(row(self._toggle, None), body, within=self, margins=(0, 0, 0, SMALL))

    def show_folded(self, title: str, text: str, *, final: bool, unfolded: bool) -> None:
        """Show a text, folded or not unless the person has chosen; `final`: it does not grow any more."""
        self.body.set_text(text, final)
        if not self._chosen:
            self.unfolded = unfolded
        self._toggle.setText(button_text(title))
        self._fold()

    def unfold(self) -> None:
        """Show the text, as if the person had unfolded it."""
        if not self.unfolded:
            self._toggle_fold()

    def _toggle_fold(self) -> None:
        self._chosen = True
        self.unfolded = not self.unfolded
        self._fold()
        self.toggled.emit()

    def _fold(self) -> None:
        self._toggle.show_arrow(self.unfolded)
        self._toggle.setAccessibleName(f"{'Hide' if self.unfolded else 'Show'} {self._name}")
        self.body.setVisible(self.unfolded)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.unfolded:
            bar = QRect(EDGE + SMALL - 2, self.body.y(), 3, self.body.height())
            paint_card(self, bar, self._theme.colors.border, radius=1.5)


class CutMark(QWidget):
    """A line below the last message that the model does not get in full, with the summary that it gets instead.

    Args:
        cut: How the context is cut below that message.
        messages: Number of messages above the line.
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    undo_requested = Signal()
    replaced_requested = Signal()
    edited = Signal(str)
    # The editor of the summary was opened or closed, or has another height.
    height_changed = Signal()

    def __init__(self, cut: ContextCut, messages: int, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.cut = cut
        self.messages = messages
        self._theme = theme
        self.label = LineLabel(theme, _cut_text(cut, messages), "muted", -1, wraps=True, selectable=True)
        parts = (Separator(theme), 1), self.label, (Separator(theme), 1)
        line = row(*parts, spacing=MEDIUM, margins=(EDGE, 0, EDGE, 0))
        self.replaced = TextButton("See What It Replaces", theme, self.replaced_requested.emit)
        self.edit = TextButton("Edit", theme, self._open_editor)
        set_tip(self.edit, "Change the summary")
        self.button = TextButton("Undo", theme, self.undo_requested.emit)
        set_tip(self.button, "Sends the model all of it again; nothing was deleted")
        for button in (self.replaced, self.edit):
            button.setVisible(bool(cut.summary))
        actions = row(None, self.replaced, self.edit, self.button, None, spacing=SMALL)
        self._parts = column(line, actions, within=self, margins=(0, TIGHT, 0, SMALL), spacing=TIGHT)
        self._editor: MessageEditor | None = None
        self.summary: FoldedText | None = None
        if cut.summary:
            self.summary = FoldedText(theme, "the summary of the messages above", self)
            self.summary.show_folded(origin_text(cut), cut.summary, final=True, unfolded=False)
            self._parts.addWidget(self.summary)

    def _open_editor(self) -> None:
        if self._editor is None and self.summary is not None:
            self._editor = MessageEditor(self.cut.summary, self._theme, self, of_summary=True)
            self._editor.submitted.connect(self.edited)
            self._editor.cancelled.connect(self._close_editor)
            self._editor.field.height_changed.connect(self.height_changed)
            self._parts.addWidget(self._editor)
            self.summary.hide()
            self._editor.show()
            self._editor.setFocus()
            self.height_changed.emit()

    def _close_editor(self) -> None:
        if self._editor is not None and self.summary is not None:
            discard(self._editor)
            self._editor = None
            self.summary.show()
            self.edit.setFocus()
            self.height_changed.emit()


def _cut_text(cut: ContextCut, messages: int) -> str:
    """Return what the model gets of the messages above a cut."""
    above = f"{counted(messages, 'message')} above"
    if cut.shortens:
        return f"Results of tools in the {above} are shortened for the model"
    text = f"The model sees a summary of the {above}" if cut.summary else f"The model does not see the {above}"
    sources = [shortened(each, _LONGEST_SOURCE) for each in cut.sources]
    return f"{text}, with text from {listed(sources, _MAX_SOURCES)}" if sources else text


def origin_text(cut: ContextCut) -> str:
    """Return who wrote a summary, and when."""
    by = f" by {shortened(cut.model, _LONGEST_SOURCE)}" if cut.model else ""
    when = f", {day_text(cut.written_at)}" if cut.written_at is not None else ""
    edited = ", edited by you" if cut.edited else ""
    return f"Summary{by}{when}{edited}"


class MessageArea(QScrollArea):
    """A scroll area of messages: what its messages share, and the signals that they emit.

    The first number of a signal is a message's id. `alternative_requested` has the number of steps, `quote_requested`
    and `note_requested` have Markdown, `file_requested` an `AttachedFile`, `edited` the text of a message's editor,
    which is empty once it is closed, and `caret_moved` a rectangle in the column.

    Attributes:
        shows_figures: Whether the buttons of a reply's figures stand below it, as well as in its menu.
        has_actions: Whether messages can be changed and regenerated; otherwise they can only be copied and quoted.
    """

    has_actions = True
    shows_figures = False

    edit_submitted = Signal(int, str)
    regenerate_requested = Signal(int)
    regenerate_with_requested = Signal(int)
    continue_requested = Signal(int)
    alternative_requested = Signal(int, int)
    tokens_requested = Signal(int)
    speed_requested = Signal(int)
    quote_requested = Signal(str)
    note_requested = Signal(Message, str)
    compare_requested = Signal(int)
    delete_requested = Signal(int)
    branch_requested = Signal(int)
    cut_undo_requested = Signal(int)
    replaced_requested = Signal()
    summary_edited = Signal(int, str)
    file_requested = Signal(object)
    run_again_requested = Signal(int)
    stop_requested = Signal()
    edited = Signal(Message, str)
    caret_moved = Signal(QRect)
    # The person has changed the height of a message.
    height_changed = Signal()
    # A message has something to draw.
    work_added = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.theme = theme
        # Adds what an editor of a message has besides the text.
        self.on_edit: Callable[[Message, MessageEditor], object] = lambda _message, _editor: None
        # Reads the text of a file; not for the main thread.
        self.file_text: Callable[[AttachedFile], str] = lambda _file: ""
        # Returns whether the tokens of a reply were recorded.
        self.has_tokens: Callable[[int], bool] = lambda _message_id: False
        # The images that the model does not get, by the ids of their messages; see `TranscriptView.mark_left_out`.
        self.left_out: LeftOut = {}
        self.column = QWidget(self)
        self.setWidget(self.column)
