"""The sheet in which the person chooses which part of a file is sent."""

from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QGridLayout,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QRadioButton,
    QSpinBox,
    QWidget,
)

from rdchat.chat.attachments.choosing import Part
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.files.part_choice import Choice, Outcome, PartChoice, Way
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme

_WIDTH, _PREVIEW_HEIGHT = 520, 130
_QUIET_MS = 150  # after the last letter
_SHOWN = 6_000  # characters of the preview


class PartSheet(QDialog):
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
        super().__init__(parent, Qt.WindowType.Sheet)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setModal(True)
        self.setFixedWidth(_WIDTH)
        self._choice, self._context = choice, context
        self._part: Part | None = None
        title = f"What is sent of {choice.file.name}"
        self.setWindowTitle(title)
        self._build_preview(theme)
        self.use = QPushButton("Use this part")
        self.use.setDefault(True)
        self.use.setEnabled(False)
        self.use.clicked.connect(self._take)
        cancel = QPushButton("Cancel")
        cancel.setAutoDefault(False)
        cancel.clicked.connect(self.reject)
        column(
            ThemedLabel(theme, title, points_more=2, bold=True, wraps=True),
            ThemedLabel(theme, self._about(), "muted", wraps=True),
            *(SMALL, self._ways(question, theme)),
            *(SMALL, self.preview, self.summary),
            *(SMALL, row(None, cancel, self.use)),
            within=self,
            margins=LARGE,
        )
        self._task = BackgroundWork("part of a file", self)
        self._quiet = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._quiet.timeout.connect(self._compute)
        self.finished.connect(self._stop)
        self._begin(question)

    def _about(self) -> str:
        tokens, room = self._choice.tokens, self._choice.room
        if room is None:
            return "Load a model to see how much of it fits."
        counted = f"All of it is {tokens.words}" if tokens else "Its tokens are being counted"
        return f"{counted}; there is room for {max(room, 0):,}."

    def _build_preview(self, theme: Theme) -> None:
        self.preview = QPlainTextEdit(readOnly=True)
        self.preview.setFixedHeight(_PREVIEW_HEIGHT)
        self.preview.setFont(theme.code_font())
        self.preview.setTabChangesFocus(True)
        self.preview.setAccessibleName("What will be sent")
        self.summary = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.summary.setMinimumHeight(2 * self.summary.fontMetrics().lineSpacing())
        self.summary.setAlignment(Qt.AlignmentFlag.AlignTop)

    def _ways(self, question: str, theme: Theme) -> QGridLayout:
        self.by_passages = QRadioButton("Passages that match")
        self.by_pages = QRadioButton("Pages")
        self.by_beginning = QRadioButton("The beginning")
        self.all = QRadioButton("All of it")
        self._buttons = {
            self.by_passages: Way.PASSAGES,
            self.by_pages: Way.PAGES,
            self.by_beginning: Way.BEGINNING,
            self.all: Way.WHOLE,
        }
        group = QButtonGroup(self)
        for button in self._buttons:
            group.addButton(button)
        count = len(self._choice.file.parts)
        self.question = _line("What the passages are about", "A question, or a few words")
        self.question.setText(question.strip()[:500])
        self.pages = _line("Pages", f"1-{min(4, count)}" if count > 1 else "1")
        self.number = QSpinBox(minimum=1, maximum=1, prefix="the best ")
        self.number.setAccessibleName("Number of passages")
        self.matching = ThemedLabel(theme, "", "muted")
        self.percent = QSpinBox(minimum=1, maximum=100, suffix=" %")
        self.percent.setAccessibleName("Percentage from the beginning")
        rows: list[tuple[QWidget | None, ...]] = [(self.by_passages, self.question), (None, self.number, self.matching)]
        if self._choice.file.paged:
            rows.append((self.by_pages, self.pages, ThemedLabel(theme, f"of {count:,}", "muted")))
        rows += [(self.by_beginning, self.percent), (self.all,)]
        grid = QGridLayout()
        grid.setHorizontalSpacing(MEDIUM)
        grid.setVerticalSpacing(SMALL)
        grid.setColumnStretch(2, 1)
        for place, parts in enumerate(rows):
            for side, part in enumerate(parts):
                if part is not None:
                    grid.addWidget(part, place, side, 1, 2 if part is self.question else 1)
        return grid

    def _begin(self, question: str) -> None:
        """Begin with all that fits, else with the passages for a question, else with the beginning."""
        tokens, room = self._choice.tokens, self._choice.room
        fits = tokens is None or room is None or tokens.tokens <= room
        (self.all if fits else self.by_passages if question.strip() else self.by_beginning).setChecked(True)
        self._own_number = self._own_percent = False
        self.question.textEdited.connect(self._on_question)
        self.pages.textEdited.connect(lambda: self._pick(self.by_pages))
        self.number.valueChanged.connect(self._on_number)
        self.percent.valueChanged.connect(self._on_percent)
        for button in self._buttons:
            button.toggled.connect(lambda checked: self._change() if checked else None)
        self._change()

    def _on_question(self) -> None:
        self._own_number = False  # other passages match another question
        self._pick(self.by_passages)

    def _on_number(self) -> None:
        self._own_number = True
        self._pick(self.by_passages)

    def _on_percent(self) -> None:
        self._own_percent = True
        self._pick(self.by_beginning)

    def _pick(self, way: QRadioButton) -> None:
        if way.isChecked():
            self._change()
        else:
            way.setChecked(True)  # which changes the choice

    def _change(self) -> None:
        """Compute another choice after a pause."""
        self._stop()
        self._quiet.start()
        self.use.setEnabled(False)
        self.summary.set_color("muted")
        self.summary.setText("Counting…")

    def _stop(self) -> None:
        self._quiet.stop()
        self._task.forget()

    def _compute(self) -> None:
        choice = Choice(
            next(way for button, way in self._buttons.items() if button.isChecked()),
            question=self.question.text(),
            passages=self.number.value() if self._own_number else 0,
            pages=self.pages.text(),
            percent=self.percent.value() if self._own_percent else 0,
        )
        self._task.replace(
            lambda _job: self._choice.outcome(choice),
            self._show,
            failed=lambda error: self._show(Outcome(choice, problem=str(error))),
        )

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
        box = {Way.PASSAGES: self.number, Way.BEGINNING: self.percent}.get(outcome.choice.way)
        if box is not None and outcome.used:
            with QSignalBlocker(box):
                if box is self.number:
                    box.setMaximum(outcome.matching)
                box.setValue(outcome.used)
        if outcome.choice.way is Way.PASSAGES and outcome.passages:
            self.matching.setText(f"of {outcome.matching:,} that match ({outcome.passages:,} in all)")

    def _take(self) -> None:
        if self._part is not None:
            self.chosen.emit(self._part)
            self.accept()


def _line(name: str, placeholder: str) -> QLineEdit:
    field = QLineEdit()
    field.setAccessibleName(name)
    field.setPlaceholderText(placeholder)
    return field


def _words(outcome: Outcome, context: int | None, *, too_long: bool) -> str:
    """Return what would be sent, and how many tokens it takes."""
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
