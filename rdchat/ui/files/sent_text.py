"""The text that is sent of a file: `FileView` shows it, `PartSheet` chooses it."""

import re
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFormLayout, QLineEdit, QPlainTextEdit, QRadioButton, QSpinBox, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile, Part
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import FileText
from rdchat.services.files.part_choice import Outcome, PartChoice, TokenCount
from rdchat.ui.files.chips import part_text
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    Sheet,
    SideWindow,
    Theme,
    ThemedLabel,
    column,
    form_layout,
    nothing,
    row,
    set_tip,
    single_shot,
    text_field,
)

# Laying out a line with more characters would block the window.
_LONG_LINE = re.compile(r"(.{4000})(?=.)")
# The sheet: lines and characters of the preview, and the longest question.
_PREVIEW_LINES = 7
_MAX_PREVIEW = 6_000
_MAX_LETTERS = 500
# The pause after the last change before a part is computed.
_QUIET_MS = 150


class FileView(SideWindow):
    """A window with the text of a file as it was sent to the model."""

    def __init__(self, file: AttachedFile, text_of: FileText, theme: Theme, parent: QWidget) -> None:
        super().__init__(file.name, (680, 560), (360, 240), parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        text = f"{part_text(file, 'All of it')}: {file.characters:,} characters, as sent to the model."
        summary = ThemedLabel(theme, f"{text} {file.note}".strip(), "muted", -1, wraps=True)
        self.text = QPlainTextEdit(readOnly=True, undoRedoEnabled=False, tabChangesFocus=True)
        self.text.setFont(theme.code_font())
        self.text.setAccessibleName(f"Text of {file.name}")
        self.text.setPlaceholderText("Reading…")
        column(summary, (self.text, 1), within=self, margins=(LARGE, MEDIUM, LARGE, LARGE))
        BackgroundWork("file view", self).replace(
            lambda _job: _LONG_LINE.sub(r"\1\n", text_of(file)),
            self.text.setPlainText,
            failed=lambda error: self.text.setPlaceholderText(str(error)),
        )
        self.text.setFocus()


class PartSheet(Sheet):
    """Shows the text and size of each choice at once, and emits `chosen` with the part; Escape changes nothing.

    The ways to choose are passages that match a question, pages, a share from the beginning, and all of it.

    Args:
        choice: Computes the parts.
        context: The model's context, in tokens; None without a model.
        question: The text in the message field.
        theme: The appearance to follow.
        parent: The window that the sheet belongs to.
    """

    chosen = Signal(Part)

    def __init__(self, choice: PartChoice, context: int | None, question: str, theme: Theme, parent: QWidget) -> None:
        self._choice = choice
        self._context = context
        self._part: Part | None = None
        self.preview = text_field(_PREVIEW_LINES, "", "What will be sent", read_only=True)
        self.preview.setFont(theme.code_font())
        self.summary = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.summary.setMinimumHeight(2 * self.summary.fontMetrics().lineSpacing())
        self.summary.setAlignment(Qt.AlignmentFlag.AlignTop)
        title = f"Choose What to Send of {choice.file.name}"
        text = self._summary_text()
        answers = ("Cancel", nothing), ("Use This Part", self._take)
        parts = SMALL, self._ways(question, theme), SMALL, self.preview, self.summary
        super().__init__(parent, theme, title, text, answers, parts=parts)
        self.use = self.buttons[-1]
        self._task = BackgroundWork("part of a file", self)
        self._quiet = single_shot(self, _QUIET_MS, self._compute)
        self._begin(question)

    def done(self, result: int) -> None:
        """Close the sheet, and end its thread."""
        self._stop()
        self._task.finish_work(0.0)
        super().done(result)

    def _summary_text(self) -> str:
        tokens = self._choice.tokens
        room = self._choice.room
        if room is None:
            return "Load a model to see how much of it fits."
        counted = f"All of it is {tokens.description}" if tokens else "Its tokens are being counted"
        together = ", counting all files" if room.others else ""
        return f"{counted}; there is room for {room.limit:,}{together}."

    def _ways(self, question: str, theme: Theme) -> QFormLayout:
        """Return the form with the ways to choose a part, one a row."""
        self.by_passages = QRadioButton("Passages that match")
        self.by_pages = QRadioButton("Pages")
        self.by_beginning = QRadioButton("The beginning")
        self.all = QRadioButton("All of it")
        count = len(self._choice.file.parts)
        self.question = QLineEdit(question.strip()[:_MAX_LETTERS], placeholderText="A question, or a few words")
        self.pages = QLineEdit(placeholderText=f"1-{min(4, count)}" if count > 1 else "1")
        self.matching = ThemedLabel(theme, "", "muted")
        self.percent = QSpinBox(maximum=100, suffix=" %")
        self.percent.setSpecialValueText("three quarters of the room")
        set_tip(self.percent, "Three quarters of the room leave a quarter for the reply and later messages")
        self.question.setAccessibleName("What the passages are about")
        self.pages.setAccessibleName("Pages")
        self.percent.setAccessibleName("Percentage from the beginning")
        form = form_layout(spacing=(MEDIUM, SMALL), align=Qt.AlignmentFlag.AlignLeft)
        form.addRow(self.by_passages, self.question)
        form.addRow("", self.matching)
        if self._choice.file.paged:
            form.addRow(self.by_pages, row(self.pages, ThemedLabel(theme, f"of {count:,}", "muted"), None))
        form.addRow(self.by_beginning, row(self.percent, None))
        form.addRow(self.all)
        return form

    def _begin(self, question: str) -> None:
        """Begin with all that fits, else with the passages for a question, else with the beginning."""
        tokens = self._choice.tokens
        room = self._choice.room
        if tokens is None or room is None or not room.excess(tokens):
            self.all.setChecked(True)
        elif question.strip():
            self.by_passages.setChecked(True)
        else:
            self.by_beginning.setChecked(True)
        self.question.textEdited.connect(lambda: self._pick(self.by_passages))
        self.pages.textEdited.connect(lambda: self._pick(self.by_pages))
        self.percent.valueChanged.connect(lambda: self._pick(self.by_beginning))
        for button in (self.by_passages, self.by_pages, self.by_beginning, self.all):
            button.toggled.connect(lambda checked: self._change() if checked else None)
        self._change()

    def _pick(self, way: QRadioButton) -> None:
        """Choose a way whose field was edited, and compute it anew."""
        if way.isChecked():
            self._change()
        else:
            way.setChecked(True)

    def _change(self) -> None:
        """Compute another choice after a pause."""
        self._stop()
        self._quiet.start()
        self.use.setEnabled(False)
        self.summary.show_text("Counting…", "muted")

    def _stop(self) -> None:
        self._quiet.stop()
        self._task.drop_jobs()

    def _compute(self) -> None:
        """Compute the part in the chosen way, on a thread."""
        choice = self._choice
        if self.by_passages.isChecked():
            compute = partial(choice.choose_passages, self.question.text())
        elif self.by_pages.isChecked():
            compute = partial(choice.choose_pages, self.pages.text())
        elif self.by_beginning.isChecked():
            compute = partial(choice.choose_beginning, self.percent.value())
        else:
            compute = partial(choice.choose_all)
        failed = lambda error: self._show(Outcome(problem=str(error)))  # noqa: E731
        self._task.replace(lambda _job: compute(), self._show, failed)

    def _show(self, outcome: Outcome) -> None:
        """Show the part that was computed, how many tokens it takes, and whether it can be used."""
        self._part = outcome.part
        room = self._choice.room
        count = outcome.count
        excess = room.excess(count) if count is not None and room is not None else 0
        # `Room.accepts` is less strict: with other files, a part that is too long but shorter than before can be used.
        usable = count is None or room is None or room.accepts(count)
        text = outcome.part.text if outcome.part else ""
        self.preview.setPlainText(text[:_MAX_PREVIEW] + ("…" if len(text) > _MAX_PREVIEW else ""))
        together = ", counting all files" if room is not None and room.others else ""
        still = TokenCount(excess, exact=count is None or count.exact).description
        cut = f" Still {still} too long{together}." if excess else ""
        color = "warning" if excess else "muted"
        if outcome.problem or not usable:
            color = "danger"
        self.summary.show_text(_outcome_text(outcome, None if excess else self._context) + cut, color)
        self.fit()
        self.use.setEnabled(outcome.part is not None and usable)
        if outcome.passages:
            self.matching.setText(f"{outcome.matching:,} of {outcome.passages:,} match")

    def _take(self) -> None:
        if self._part is not None:
            self.chosen.emit(self._part)


def _outcome_text(outcome: Outcome, context: int | None) -> str:
    """Return what would be sent, how many tokens it takes, and which share of a context that is."""
    if outcome.part is None:
        return outcome.problem
    part = outcome.part.label or "all of it"
    text = f"{part[0].upper()}{part[1:]}"
    if outcome.count is None:
        return f"{text}: {len(outcome.part.text):,} characters"
    text += f": {outcome.count.description}"
    if context:
        share = outcome.count.tokens / context
        text += f", {'under 1%' if share < 0.01 else f'{share:.0%}'} of the context"
    return f"{text}."
