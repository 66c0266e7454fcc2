"""`OptionsForm`, the one form for the options of a chat, a preset, new chats and a single reply."""

import re
from collections.abc import Collection
from typing import Any

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QDoubleSpinBox, QPlainTextEdit, QWidget

from rdchat.chat.presets import LongChats
from rdchat.inference.api import SamplingDefaults, SamplingParams
from rdchat.ui.style import (
    SAMPLING,
    SMALL,
    TIGHT,
    Part,
    SectionHead,
    Theme,
    ThemedLabel,
    add_row,
    choice_box,
    column,
    form_layout,
    replace_text,
    row,
    text_field,
)

CHANGED = "Changed"
"""Marks what a chat changes."""
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
# Characters of stop strings that are escaped by a letter, and those characters by their letters.
_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\\": "\\"}
_CHARACTERS = {letter: character for character, letter in _LETTERS.items()}
# These are escaped: a text field cannot hold them in one line, or changes them by itself.
_UNSHOWABLE = re.compile("[\x00-\x1f\\\\\x7f\x85\xa0\u2028\u2029\ufdd0\ufdd1]")
# An escape: four hexadecimal digits or a letter. Halves of surrogate pairs are no characters.
_ESCAPE = re.compile(r"\\(?:u((?![dD][89a-fA-F])[0-9a-fA-F]{4})|([ntr\\]))")
COMMON = "temperature"
"""The number that most people change; the others are below More."""
_WIDTH = 380
_SPACING = SMALL, TIGHT + 2
_PROMPT = "None. For example: You answer briefly, in plain words."
_PROMPT_TIP = "Instructions that the model reads before the chat: the system prompt."
_LONG_CHATS = (
    ("Ask", LongChats.ASK),
    ("Leave out the oldest messages", LongChats.LEAVE_OUT),
    ("Summarise the oldest messages", LongChats.COMPACT),
)
_LONG_CHATS_TIP = "What rdchat does when a chat nearly fills the model's context. Nothing is deleted from the chat."


class OptionRow(QWidget):
    """The name of an option, a mark for where its value comes from, and its fields at the right."""

    def __init__(self, theme: Theme, name: str, *fields: Part) -> None:
        super().__init__()
        self.mark = ThemedLabel(theme, "", "muted", -1)
        row(ThemedLabel(theme, name, bold=True), (self.mark, 1), *fields, within=self)


class OptionsForm(QWidget):
    """Fields for instructions, sampling and long chats. All but the instructions and the temperature are below More.

    A value that is out of range cannot be typed.

    Args:
        theme: The appearance to follow.
        first: Further parts below More, before the others.
        last: Further parts below More, after the others.

    Attributes:
        prompt: The field of the instructions; the owner listens to its changes, which come with each letter.
        fields: The fields of numbers, by their names in `SamplingParams`.
        marks: Labels that name where a value comes from, by the names of options and numbers.
        stop: The field of stop strings.
        more: Unfolds the rarer options.
        edited: Emitted after each change of another field by the person.
    """

    edited = Signal()

    def __init__(self, theme: Theme, first: Collection[Part] = (), last: Collection[Part] = ()) -> None:
        super().__init__()
        instructions = OptionRow(theme, "Instructions")
        self.prompt = text_field(4, _PROMPT, "Instructions", _PROMPT_TIP)
        self.prompt.setMinimumWidth(_WIDTH)
        self.fields = {name: _number_field(*bounds) for name, bounds in _BOUNDS.items()}
        self.marks = {name: ThemedLabel(theme, "", "muted", -1) for name in _BOUNDS}
        self.stop = _stop_field()
        often = form_layout(spacing=_SPACING)
        rare = form_layout(spacing=_SPACING)
        for name, field in self.fields.items():
            label, explanation = SAMPLING[name]
            form = often if name == COMMON else rare
            add_row(form, label, field, explanation, row(field, self.marks[name], None))
            field.valueChanged.connect(self.edited)
        label, explanation = SAMPLING["stop"]
        add_row(rare, label, self.stop, explanation)
        self.stop.textChanged.connect(self.edited)
        self.long_chats = choice_box("Long chats", _LONG_CHATS_TIP, _LONG_CHATS, letters=0)
        self.long_chats.activated.connect(self.edited)
        self.long_chats_row = OptionRow(theme, "Long chats", self.long_chats)
        self.marks |= {"system_prompt": instructions.mark, "long_chats": self.long_chats_row.mark}
        self.more = SectionHead("More")
        below = QWidget()
        column(*first, self.long_chats_row, ThemedLabel(theme, "Sampling", bold=True), rare, *last, within=below)
        self.more.toggled.connect(below.setVisible)
        self.more.setChecked(False)
        column(instructions, self.prompt, often, self.more, below, within=self)

    def show_options(self, prompt: str, sampling: SamplingParams, long_chats: LongChats | None) -> None:
        """Show values without emitting `edited`; a field with the same value keeps its cursor and text.

        Args:
            prompt: The instructions.
            sampling: The numbers and the stop strings.
            long_chats: What happens to long chats; None hides the choice.
        """
        replace_text(self.prompt, prompt)
        for name, field in self.fields.items():
            with QSignalBlocker(field):
                field.setValue(getattr(sampling, name))
        if stop_strings(self.stop.toPlainText()) != sampling.stop:
            replace_text(self.stop, stop_text(sampling.stop))
        self.long_chats.setCurrentIndex(self.long_chats.findData(long_chats))
        self.long_chats_row.setHidden(long_chats is None)

    def show_sources(self, defaults: SamplingDefaults, chosen: Collection[str], changed: Collection[str] = ()) -> None:
        """Show beside each number where it comes from, unless the person has chosen it in the settings or a preset.

        Args:
            defaults: The model's, with their sources.
            chosen: Names of the numbers that the person has chosen.
            changed: Names of what the chat changes.
        """
        for name, mark in self.marks.items():
            mark.setText("" if name in chosen else defaults.source(name))
        # Several names may have one mark.
        for name in self.marks.keys() & changed:
            self.marks[name].setText(CHANGED)

    def sampling(self) -> SamplingParams:
        """Return the values."""
        numbers = {name: round(field.value(), 4) for name, field in self.fields.items()}
        integers = {name: int(numbers[name]) for name in ("top_k", "max_tokens")}
        return SamplingParams(**(numbers | integers), stop=stop_strings(self.stop.toPlainText()))  # type: ignore[arg-type]

    def options(self) -> dict[str, Any]:
        """Return the values by the names of a chat's options."""
        return {
            "system_prompt": self.prompt.toPlainText(),
            "sampling": self.sampling(),
            # Qt gives the name back as a plain string.
            "long_chats": LongChats(self.long_chats.currentData()),
        }


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
