"""The form for sampling, shared by a chat's options and the preferences. What is out of range is said in words."""

import re

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QHideEvent, QTextOption
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QDoubleSpinBox,
    QFormLayout,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.requests import SamplingParams
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme

_WIDEST = 9_999_999.0
_STOP_LINES = 2
_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\\": "\\"}
_CHARACTERS = {letter: character for character, letter in _LETTERS.items()}
# what a text field cannot hold in one line, or changes on its own
_UNSHOWABLE = re.compile("[\x00-\x1f\\\\\x7f\x85\xa0\u2028\u2029\ufdd0\ufdd1]")
_ESCAPE = re.compile(r"\\(?:u((?![dD][89a-fA-F])[0-9a-fA-F]{4})|([ntr\\]))")  # no halves of surrogate pairs


class SpinBox(QDoubleSpinBox):
    """Takes any number, so that a wrong one can be explained; its arrows stay between `low` and `high`."""

    def __init__(self, low: float, high: float, step: float, decimals: int) -> None:
        super().__init__()
        self._low, self._high = low, high
        self.setDecimals(decimals)
        self.setRange(-_WIDEST, _WIDEST)
        self.setSingleStep(step)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setCorrectionMode(QAbstractSpinBox.CorrectionMode.CorrectToPreviousValue)
        self.setFixedWidth(96)
        self.setKeyboardTracking(False)  # of 99, the 9 is not a value

    def hideEvent(self, event: QHideEvent) -> None:
        self.interpretText()
        super().hideEvent(event)

    def stepBy(self, steps: int) -> None:
        self.setValue(min(max(self.value() + steps * self.singleStep(), self._low), self._high))


class SamplingForm(QWidget):
    """Fields for `SamplingParams`; `edited` carries each valid change a person makes."""

    edited = Signal(SamplingParams)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(TIGHT + 2)
        self._form = QFormLayout()
        column.addLayout(self._form)
        self._form.setHorizontalSpacing(SMALL)
        self._form.setVerticalSpacing(TIGHT + 2)
        self._form.setLabelAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.temperature = self._add(
            "Temperature",
            SpinBox(0, 10, 0.1, 2),
            "How freely the model chooses: 0 always takes the most likely token.",
        )
        self.top_p = self._add(
            "Top-p",
            SpinBox(0.05, 1, 0.05, 3),
            "Chooses among the most likely tokens that together reach this probability. 1 is off.",
        )
        self.top_k = self._add("Top-k", SpinBox(0, 1000, 1, 0), "Chooses among this many most likely tokens. 0 is off.")
        self.min_p = self._add(
            "Min-p",
            SpinBox(0, 1, 0.01, 3),
            "Leaves out tokens less likely than this share of the most likely one. 0 is off.",
        )
        self.repetition_penalty = self._add(
            "Repetition penalty",
            SpinBox(0.1, 10, 0.05, 2),
            "Above 1, tokens used before become less likely. 1 is off.",
        )
        self.max_tokens = self._add("Maximum tokens", SpinBox(1, 32768, 64, 0), "A reply ends after this many tokens.")
        self.stop = _stop_field()
        self._add_row(
            "Stop strings",
            self.stop,
            r"A reply ends before any of these. One on each line, spaces included; \n stands for a line break, "
            r"\t for a tab, \\ for a backslash.",
        )
        self.problem = ThemedLabel(theme, "", "danger", -1)
        self.problem.setWordWrap(True)
        self.problem.hide()
        column.addWidget(self.problem)  # below the form, which would take its height from the rows
        self.stop.textChanged.connect(self._report)

    def set_sampling(self, sampling: SamplingParams) -> None:
        """Show values without reporting an edit; a field that already has its value keeps cursor and text."""
        for field, value in (
            (self.temperature, sampling.temperature),
            (self.top_p, sampling.top_p),
            (self.top_k, sampling.top_k),
            (self.min_p, sampling.min_p),
            (self.repetition_penalty, sampling.repetition_penalty),
            (self.max_tokens, sampling.max_tokens),
        ):
            with QSignalBlocker(field):
                field.setValue(value)
        if stop_strings(self.stop.toPlainText()) != sampling.stop:
            with QSignalBlocker(self.stop):
                self.stop.setPlainText(stop_words(sampling.stop))
        self._show_problem("")

    def sampling(self) -> SamplingParams:
        """Return the values shown. Raises InvalidSettingError where one is out of range."""
        return SamplingParams(
            temperature=round(self.temperature.value(), 4),
            top_p=round(self.top_p.value(), 4),
            top_k=int(self.top_k.value()),
            min_p=round(self.min_p.value(), 4),
            repetition_penalty=round(self.repetition_penalty.value(), 4),
            max_tokens=int(self.max_tokens.value()),
            stop=stop_strings(self.stop.toPlainText()),
        )

    def _add(self, name: str, field: SpinBox, explanation: str) -> SpinBox:
        self._add_row(name, field, explanation)
        field.valueChanged.connect(self._report)
        return field

    def _add_row(self, name: str, field: QWidget, explanation: str) -> None:
        label = PlainLabel(name)
        label.setBuddy(field)
        for part in (label, field):
            set_tip(part, explanation)
        field.setAccessibleName(name)
        field.setAccessibleDescription(explanation)
        self._form.addRow(label, field)

    def _report(self) -> None:
        try:
            sampling = self.sampling()
        except InvalidSettingError as problem:
            self._show_problem(f"{problem.message[0].upper()}{problem.message[1:]}")
        else:
            self._show_problem("")
            self.edited.emit(sampling)

    def _show_problem(self, words: str) -> None:
        self.problem.setText(words)
        self.problem.setVisible(bool(words))


def stop_strings(text: str) -> tuple[str, ...]:
    r"""Read one string from each line that is not empty; `\n`, `\t`, `\r`, `\\` and `\u00a0` are escapes."""
    return tuple(_ESCAPE.sub(_unescape, line) for line in text.split("\n") if line)


def stop_words(stop: tuple[str, ...]) -> str:
    """Write stop strings as the form shows them: `stop_strings` reads every one of them back as it was."""
    return "\n".join(_UNSHOWABLE.sub(_escape, part) for part in stop)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return "\\" + _LETTERS.get(character, f"u{ord(character):04x}")


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _CHARACTERS[found[2]]


def _stop_field() -> QPlainTextEdit:
    """Return a field of a few lines that makes spaces visible: they count."""
    field = QPlainTextEdit()
    field.setPlaceholderText("None")
    field.setTabChangesFocus(True)
    field.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
    field.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    field.setFixedHeight(field.fontMetrics().lineSpacing() * _STOP_LINES + 12)
    option = field.document().defaultTextOption()
    option.setFlags(QTextOption.Flag.ShowTabsAndSpaces)
    field.document().setDefaultTextOption(option)
    return field
