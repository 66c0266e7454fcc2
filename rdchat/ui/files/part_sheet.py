"""The sheet in which the person picks what is sent of a file."""

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QRadioButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from rdchat.chat.attachments.choosing import Part
from rdchat.services.files.part_choice import Choice, Outcome, PartChoice, Way
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme

_WIDTH, _PREVIEW_HEIGHT = 520, 130
_SHOWN = 6_000  # characters of the preview


class PartSheet(QDialog):
    """Shows at once what each choice comes to; `chosen` tells the part. Escape leaves it as it was.

    Args:
        choice: Computes.
        context: The model's context, in tokens; None without a model.
        question: What is typed in the message field.
        theme: The appearance to follow.
        parent: The window that it belongs to.
    """

    chosen = Signal(Part)

    def __init__(self, choice: PartChoice, context: int | None, question: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Sheet)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setModal(True)
        self.setFixedWidth(_WIDTH)
        self._choice, self._context = choice, context
        self._part: Part | None = None
        choice.setParent(self)
        title = f"What is sent of {choice.file.name}"
        self.setWindowTitle(title)
        head = ThemedLabel(theme, title, points_more=2, bold=True)
        about = ThemedLabel(theme, self._about(), "muted")
        self.preview = QPlainTextEdit(readOnly=True)
        self.summary = ThemedLabel(theme, "", "muted", tabular=True)
        for label in (head, about, self.summary):
            label.setWordWrap(True)
        self._build_preview(theme)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        layout.setSpacing(SMALL)
        layout.addWidget(head)
        layout.addWidget(about)
        layout.addSpacing(SMALL)
        layout.addLayout(self._ways(question, theme))
        layout.addSpacing(SMALL)
        layout.addWidget(self.preview)
        layout.addWidget(self.summary)
        layout.addSpacing(SMALL)
        layout.addLayout(self._buttons())
        choice.answered.connect(self._show)
        self.finished.connect(choice.stop)
        self._begin(question)

    def _about(self) -> str:
        tokens, room = self._choice.tokens, self._choice.room
        if room is None:
            return "Load a model to see how much of it fits."
        if tokens is None:
            return f"Its tokens are being counted; there is room for {max(room, 0):,}."
        words = tokens.words
        return f"All of it is {words}; there is room for {max(room, 0):,}."

    def _build_preview(self, theme: Theme) -> None:
        self.preview.setFixedHeight(_PREVIEW_HEIGHT)
        self.preview.setFont(theme.code_font())
        self.preview.setTabChangesFocus(True)
        self.preview.setAccessibleName("What will be sent")
        self.summary.setMinimumHeight(2 * self.summary.fontMetrics().lineSpacing())
        self.summary.setAlignment(Qt.AlignmentFlag.AlignTop)

    def _ways(self, question: str, theme: Theme) -> QGridLayout:
        self.by_passages = QRadioButton("Passages that match")
        self.by_pages = QRadioButton("Pages")
        self.by_beginning = QRadioButton("The beginning")
        self.all = QRadioButton("All of it")
        group = QButtonGroup(self)
        for button in (self.by_passages, self.by_pages, self.by_beginning, self.all):
            group.addButton(button)
        self.question = QLineEdit(question.strip()[:500])
        self.question.setPlaceholderText("A question, or a few words")
        self.question.setAccessibleName("What the passages are about")
        self.number = QSpinBox(minimum=1, maximum=1)
        self.number.setAccessibleName("Number of passages")
        self.number.setPrefix("the best ")
        self.matching = ThemedLabel(theme, "", "muted")
        count = len(self._choice.file.parts)
        self.pages = QLineEdit()
        self.pages.setPlaceholderText(f"1-{min(4, count)}" if count > 1 else "1")
        self.pages.setAccessibleName("Pages")
        self.percent = QSpinBox(minimum=1, maximum=100, suffix=" %")
        self.percent.setAccessibleName("Percentage from the beginning")
        grid = QGridLayout()
        grid.setHorizontalSpacing(MEDIUM)
        grid.setVerticalSpacing(SMALL)
        grid.setColumnStretch(2, 1)
        grid.addWidget(self.by_passages, 0, 0)
        grid.addWidget(self.question, 0, 1, 1, 2)
        grid.addWidget(self.number, 1, 1)
        grid.addWidget(self.matching, 1, 2)
        row = 2
        if self._choice.file.paged:
            grid.addWidget(self.by_pages, row, 0)
            grid.addWidget(self.pages, row, 1)
            grid.addWidget(ThemedLabel(theme, f"of {count:,}", "muted"), row, 2)
            row += 1
        grid.addWidget(self.by_beginning, row, 0)
        grid.addWidget(self.percent, row, 1)
        grid.addWidget(self.all, row + 1, 0)
        return grid

    def _buttons(self) -> QHBoxLayout:
        cancel = QPushButton("Cancel")
        cancel.setAutoDefault(False)
        cancel.clicked.connect(self.reject)
        self.use = QPushButton("Use this part")
        self.use.setDefault(True)
        self.use.setEnabled(False)
        self.use.clicked.connect(self._take)
        row = QHBoxLayout()
        row.setSpacing(SMALL)
        row.addStretch()
        row.addWidget(cancel)
        row.addWidget(self.use)
        return row

    def _begin(self, question: str) -> None:
        """Begin with the passages where something is asked, else with the beginning; then follow the person."""
        tokens, room = self._choice.tokens, self._choice.room
        fits = tokens is None or room is None or tokens.tokens <= room
        (self.all if fits else self.by_passages if question.strip() else self.by_beginning).setChecked(True)
        self._own_number = self._own_percent = False
        self.question.textEdited.connect(self._on_question)
        self.pages.textEdited.connect(lambda: self._pick(self.by_pages))
        self.number.valueChanged.connect(self._on_number)
        self.percent.valueChanged.connect(self._on_percent)
        for button in (self.by_passages, self.by_pages, self.by_beginning, self.all):
            button.toggled.connect(lambda checked: self._compute() if checked else None)
        self._compute()

    def _on_question(self) -> None:
        self._own_number = False  # of another question others match
        self._pick(self.by_passages)

    def _on_number(self) -> None:
        self._own_number = True
        self._pick(self.by_passages)

    def _on_percent(self) -> None:
        self._own_percent = True
        self._pick(self.by_beginning)

    def _pick(self, way: QRadioButton) -> None:
        if way.isChecked():
            self._compute()
        else:
            way.setChecked(True)  # which computes

    def _compute(self) -> None:
        ways = {self.by_passages: Way.PASSAGES, self.by_pages: Way.PAGES, self.by_beginning: Way.BEGINNING}
        way = next((each for button, each in ways.items() if button.isChecked()), Way.WHOLE)
        self.use.setEnabled(False)
        self.summary.set_color("muted")
        self.summary.setText("Counting…")
        self._choice.choose(
            Choice(
                way,
                question=self.question.text(),
                passages=self.number.value() if self._own_number else 0,
                pages=self.pages.text(),
                percent=self.percent.value() if self._own_percent else 0,
            )
        )

    @Slot(Outcome)
    def _show(self, outcome: Outcome) -> None:
        self._part = outcome.part
        self._show_numbers(outcome)
        room, count = self._choice.room, outcome.count
        too_long = count is not None and room is not None and count.tokens > room
        text = outcome.part.text if outcome.part else ""
        self.preview.setPlainText(text[:_SHOWN] + ("…" if len(text) > _SHOWN else ""))
        self.summary.setText(_words(outcome, self._context, too_long=too_long))
        self.summary.set_color("danger" if too_long or outcome.problem else "muted")
        self.use.setEnabled(outcome.part is not None and not too_long)

    def _show_numbers(self, outcome: Outcome) -> None:
        for box, value in ((self.number, outcome.used), (self.percent, outcome.used)):
            mine = outcome.choice.way is (Way.PASSAGES if box is self.number else Way.BEGINNING)
            if mine and value:
                box.blockSignals(True)
                if box is self.number:
                    box.setMaximum(outcome.matching)
                box.setValue(value)
                box.blockSignals(False)
        if outcome.choice.way is Way.PASSAGES and outcome.passages:
            self.matching.setText(f"of {outcome.matching:,} that match ({outcome.passages:,} in all)")

    def _take(self) -> None:
        if self._part is not None:
            self.chosen.emit(self._part)
            self.accept()


def _words(outcome: Outcome, context: int | None, *, too_long: bool) -> str:
    """Say what would be sent, and what it takes."""
    if outcome.part is None:
        return outcome.problem
    part = outcome.part.words or "all of it"
    words = f"{part[0].upper()}{part[1:]}"
    if outcome.count is None:
        return f"{words}: {len(outcome.part.text):,} characters"
    words += f": {outcome.count.words}"
    if context and not too_long:
        share = outcome.count.tokens / context
        words += f", {'under 1%' if share < 0.01 else f'{share:.0%}'} of the context"
    return f"{words}. That is more than there is room for." if too_long else f"{words}."
