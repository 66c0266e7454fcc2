"""The form for sampling parameters, in a chat's options and in the settings."""

import re
from collections.abc import Collection

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QDoubleSpinBox, QPlainTextEdit, QWidget

from rdchat.inference.api.requests import SamplingDefaults, SamplingParams
from rdchat.ui.style.definitions import SAMPLING
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import add_row, column, form_layout, replace_text, row, text_field
from rdchat.ui.style.theme import SMALL, TIGHT, Theme

CHANGED = "Changed"
"""Marks what a chat changes."""
COMMON = frozenset({"temperature", "max_tokens"})
"""What most people change."""
_UNBOUNDED = 9_999_999
_BOUNDS = {
    "temperature": (0, 10, 0.1, 2),
    "top_p": (0.001, 1, 0.05, 3),
    "top_k": (0, _UNBOUNDED, 1, 0),
    "min_p": (0, 1, 0.01, 3),
    "repetition_penalty": (0.1, 10, 0.05, 2),
    "presence_penalty": (-2, 2, 0.1, 2),
    "frequency_penalty": (-2, 2, 0.1, 2),
    "max_tokens": (1, _UNBOUNDED, 64, 0),
}
"""Lowest and highest value, step and decimals, by the name in `SamplingParams`."""
_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\\": "\\"}
_CHARACTERS = {letter: character for character, letter in _LETTERS.items()}
# A text field cannot hold these characters in one line, or changes them by itself.
_UNSHOWABLE = re.compile("[\x00-\x1f\\\\\x7f\x85\xa0\u2028\u2029\ufdd0\ufdd1]")
# Halves of surrogate pairs are no characters.
_ESCAPE = re.compile(r"\\(?:u((?![dD][89a-fA-F])[0-9a-fA-F]{4})|([ntr\\]))")


class SamplingForm(QWidget):
    """Fields for `SamplingParams`. A value that is out of range cannot be typed.

    Attributes:
        fields: The fields of numbers, by their names in `SamplingParams`.
        sources: Labels that name where each number comes from.
        stop: The field of stop strings.
        edited: Emitted after each change by the person.
    """

    edited = Signal(SamplingParams)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.fields = {name: _number_field(*bounds) for name, bounds in _BOUNDS.items()}
        self.sources = {name: ThemedLabel(theme, "", "muted", -1) for name in _BOUNDS}
        self.stop = _stop_field()
        align = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        form = self._form = form_layout(spacing=(SMALL, TIGHT + 2), align=align)
        for name, field in self.fields.items():
            label, explanation = SAMPLING[name]
            add_row(form, label, field, explanation, row(field, self.sources[name], None))
            field.valueChanged.connect(self._report)
        label, explanation = SAMPLING["stop"]
        add_row(form, label, self.stop, explanation)
        column(form, within=self)
        self.stop.textChanged.connect(self._report)

    def show_rare(self, shown: bool) -> None:
        """Show or hide the rows beside the common ones."""
        for index, name in enumerate((*self.fields, "stop")):
            self._form.setRowVisible(index, shown or name in COMMON)

    def set_sampling(self, sampling: SamplingParams) -> None:
        """Show values without emitting `edited`; a field with the same value keeps its cursor and text."""
        for name, field in self.fields.items():
            with QSignalBlocker(field):
                field.setValue(getattr(sampling, name))
        if stop_strings(self.stop.toPlainText()) != sampling.stop:
            replace_text(self.stop, stop_text(sampling.stop))

    def show_sources(self, defaults: SamplingDefaults, chosen: Collection[str], changed: Collection[str] = ()) -> None:
        """Mark the values that come from the model, which the person has not chosen, and those that a chat changes."""
        for name, label in self.sources.items():
            label.setText(CHANGED if name in changed else "" if name in chosen else defaults.source(name))

    def sampling(self) -> SamplingParams:
        """Return the values."""
        numbers = {name: round(field.value(), 4) for name, field in self.fields.items()}
        integers = {name: int(numbers[name]) for name in ("top_k", "max_tokens")}
        return SamplingParams(**(numbers | integers), stop=stop_strings(self.stop.toPlainText()))  # type: ignore[arg-type]

    def _report(self) -> None:
        self.edited.emit(self.sampling())


def stop_strings(text: str) -> tuple[str, ...]:
    r"""Read one string from each line that is not empty; `\n`, `\t`, `\r`, `\\` and `\u00a0` are escapes."""
    return tuple(_ESCAPE.sub(_unescape, line) for line in text.split("\n") if line)


def stop_text(stop: tuple[str, ...]) -> str:
    """Write stop strings as the form shows them: `stop_strings` reads every one of them back as it was."""
    return "\n".join(_UNSHOWABLE.sub(_escape, part) for part in stop)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return "\\" + _LETTERS.get(character, f"u{ord(character):04x}")


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _CHARACTERS[match[2]]


def _number_field(low: float, high: float, step: float, decimals: int) -> QDoubleSpinBox:
    field = QDoubleSpinBox(decimals=decimals, minimum=low, maximum=high, singleStep=step)
    field.setAlignment(Qt.AlignmentFlag.AlignRight)
    field.setFixedWidth(96)
    field.setGroupSeparatorShown(True)
    # While 9.5 is typed, 9 is not a value.
    field.setKeyboardTracking(False)
    return field


def _stop_field() -> QPlainTextEdit:
    """Return a field that makes spaces visible, since they count."""
    field = text_field(2, "None")
    field.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
    field.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    option = field.document().defaultTextOption()
    option.setFlags(QTextOption.Flag.ShowTabsAndSpaces)
    field.document().setDefaultTextOption(option)
    return field
