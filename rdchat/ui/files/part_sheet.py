"""The sheet in which the person chooses which part of a file is sent."""

from functools import partial

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFormLayout, QLineEdit, QRadioButton, QSpinBox, QWidget

from rdchat.chat.attachments.attached_file import Part
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.files.part_choice import Outcome, PartChoice, TokenCount
from rdchat.ui.style.labels import ThemedLabel, set_tip
from rdchat.ui.style.layouts import Sheet, form_layout, nothing, row, text_field
from rdchat.ui.style.theme import MEDIUM, SMALL, Theme

_PREVIEW_LINES = 7
_QUIET_MS = 150
_MAX_PREVIEW = 6_000
_MAX_LETTERS = 500


class PartSheet(Sheet):
    """Shows the text and size of each choice at once, and emits `chosen` with the part; Escape changes nothing.

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
        self._quiet = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._quiet.timeout.connect(self._compute)
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
        self.by_passages = QRadioButton("Passages that match")
        self.by_pages = QRadioButton("Pages")
        self.by_beginning = QRadioButton("The beginning")
        self.all = QRadioButton("All of it")
        count = len(self._choice.file.parts)
        self.question = QLineEdit(question.strip()[:_MAX_LETTERS], placeholderText="A question, or a few words")
        self.pages = QLineEdit(placeholderText=f"1-{min(4, count)}" if count > 1 else "1")
        self.matching = ThemedLabel(theme, "", "muted")
        self.percent = QSpinBox(maximum=100, suffix=" %")
        self.percent.setSpecialValueText("as much as fits")
        set_tip(self.percent, "As much as fits leaves a quarter of the room for the reply and later messages")
        names = ("What the passages are about", "Pages", "Percentage from the beginning")
        for name, field in zip(names, (self.question, self.pages, self.percent), strict=True):
            field.setAccessibleName(name)
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
        fits = tokens is None or room is None or not room.excess(tokens)
        (self.all if fits else self.by_passages if question.strip() else self.by_beginning).setChecked(True)
        self.question.textEdited.connect(lambda: self._pick(self.by_passages))
        self.pages.textEdited.connect(lambda: self._pick(self.by_pages))
        self.percent.valueChanged.connect(lambda: self._pick(self.by_beginning))
        for button in (self.by_passages, self.by_pages, self.by_beginning, self.all):
            button.toggled.connect(lambda checked: self._change() if checked else None)
        self._change()

    def _pick(self, way: QRadioButton) -> None:
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
        self._part = outcome.part
        room = self._choice.room
        count = outcome.count
        excess = room.excess(count) if count is not None and room is not None else 0
        usable = count is None or room is None or room.accepts(count)
        text = outcome.part.text if outcome.part else ""
        self.preview.setPlainText(text[:_MAX_PREVIEW] + ("…" if len(text) > _MAX_PREVIEW else ""))
        together = ", counting all files" if room is not None and room.others else ""
        still = TokenCount(excess, exact=count is None or count.exact).description
        cut = f" Still {still} too long{together}." if excess else ""
        color = "danger" if not usable or outcome.problem else "warning" if excess else "muted"
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
