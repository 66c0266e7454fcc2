"""The popover with one chat's options: preset, system prompt, thinking, the answers' format and sampling.

It shows the values that apply to the chat. The usual ones come from its preset, its project, the settings and the
model; a chat stores only values of its own that differ from them.

`SamplingForm`, the fields of the sampling parameters, is also in the Settings window.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QResizeEvent, QTextOption
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QLayout,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QWidget,
)

from rdchat.chat.presets import LongChats
from rdchat.errors import InvalidSettingError
from rdchat.inference.api import AnswerShape, SamplingDefaults, SamplingParams, ShapeKind, ThinkingChoice
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.storage_watch import SettingsControl
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SAMPLING,
    SMALL,
    TIGHT,
    Ground,
    Popover,
    SectionHead,
    Theme,
    ThemedLabel,
    WholeArea,
    add_row,
    choice_box,
    column,
    fill_box,
    form_layout,
    open_beside,
    push_button,
    replace_text,
    row,
    scrolled,
    set_tip,
    small_text,
    text_field,
)

CHANGED = "Changed"
"""Marks what a chat changes."""
COMMON = frozenset({"temperature", "max_tokens"})
"""The sampling parameters that most people change; the others are behind More sampling."""
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
_WIDTH = 320
_MOST_THINKING = 999_999
_CHOICES = (("Any text", None), ("A JSON object", ShapeKind.JSON), ("JSON with a schema", ShapeKind.SCHEMA))
_SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'
_PROMPT = "None. For example: You answer briefly, in plain words."
_PROMPT_TIP = "Instructions that the model reads before the chat."
_LONGEST_NAME = 200
LONG_CHATS = {
    LongChats.ASK: "Ask",
    LongChats.LEAVE_OUT: "Leave out the oldest messages",
    LongChats.COMPACT: "Summarise the oldest messages",
}
LONG_CHATS_TIP = "What rdchat does when a chat nearly fills the model's context. Nothing is deleted from the chat."
_SAVE_TIP = "Keep these options under this name, for other chats. They replace a preset that has it."
_TIP = "Answers in this chat have this format, unless they are cut off. Thinking is off for them where possible."


class SamplingForm(QWidget):
    """Fields for `SamplingParams`. A value that is out of range cannot be typed.

    Attributes:
        fields: The fields of numbers, by their names in `SamplingParams`.
        sources: Labels that name where each number comes from.
        stop: The field of stop strings.
        edited: Emitted after each change by the person.
    """

    edited = Signal(SamplingParams)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.fields = {name: _number_field(*bounds) for name, bounds in _BOUNDS.items()}
        self.sources = {name: ThemedLabel(theme, "", "muted", -1) for name in _BOUNDS}
        self.stop = _stop_field()
        align = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        form = form_layout(spacing=(SMALL, TIGHT + 2), align=align)
        self._form = form
        for name, field in self.fields.items():
            label, explanation = SAMPLING[name]
            add_row(form, label, field, explanation, row(field, self.sources[name], None))
            field.valueChanged.connect(self._report)
        label, explanation = SAMPLING["stop"]
        add_row(form, label, self.stop, explanation)
        column(form, within=self)
        self.stop.textChanged.connect(self._report)

    def show_rare(self, visible: bool) -> None:
        """Show or hide the rows that are not of `COMMON`."""
        for index, name in enumerate((*self.fields, "stop")):
            self._form.setRowVisible(index, visible or name in COMMON)
        self.updateGeometry()

    def set_sampling(self, sampling: SamplingParams) -> None:
        """Show values without emitting `edited`; a field with the same value keeps its cursor and text."""
        for name, field in self.fields.items():
            with QSignalBlocker(field):
                field.setValue(getattr(sampling, name))
        if stop_strings(self.stop.toPlainText()) != sampling.stop:
            replace_text(self.stop, stop_text(sampling.stop))

    def show_sources(self, defaults: SamplingDefaults, chosen: Collection[str], changed: Collection[str] = ()) -> None:
        """Show beside each number where it comes from, unless the person has chosen it in the settings or a preset.

        Args:
            defaults: The model's, with their sources.
            chosen: Names of the numbers that the person has chosen.
            changed: Names of those that the chat changes.
        """
        for name, label in self.sources.items():
            source = "" if name in chosen else defaults.source(name)
            label.setText(CHANGED if name in changed else source)

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


class AnswerShapeForm(QWidget):
    """Chooses among any text, a JSON object and a JSON schema. A schema that cannot be used is explained.

    Args:
        theme: The appearance to follow.
        head: Returns the first row, with the combo box of the choice.

    Attributes:
        kind: The choice.
        schema: The field for the schema.
        problem: Explains what is wrong with the schema.
        shape: The last valid choice; None for any text.
        edited: Emitted after each valid change by the person.
    """

    edited = Signal()

    def __init__(self, theme: Theme, head: Callable[[QWidget], QLayout]) -> None:
        super().__init__()
        self.kind = choice_box("Format of the answers in this chat", _TIP, _CHOICES, letters=0)
        self.schema = text_field(5, _SCHEMA, "JSON schema", "The JSON schema that the answers must fit.")
        self.problem = small_text(theme, "", "danger")
        self.shape: AnswerShape | None = None
        column(head(self.kind), self.schema, self.problem, within=self, spacing=TIGHT + 2)
        self.schema.hide()
        self.problem.hide()
        self.kind.activated.connect(self._read)
        self.schema.textChanged.connect(self._read)

    def set_shape(self, shape: AnswerShape | None) -> None:
        """Show a shape without emitting `edited`."""
        self.shape = shape
        kind = shape and shape.kind
        # An imported chat may have a format that rdchat does not offer; then none is chosen.
        fill_box(self.kind, _CHOICES, kind)
        source = shape.source if shape and kind is ShapeKind.SCHEMA else ""
        replace_text(self.schema, source)
        self.schema.setVisible(kind is ShapeKind.SCHEMA)
        self.problem.show_text("")

    def _read(self) -> None:
        """Read what the person has chosen or typed, and report it if it is valid and new."""
        data = self.kind.currentData()
        kind = None if data is None else ShapeKind(data)  # Qt gives the name back as a plain string
        is_schema = kind is ShapeKind.SCHEMA
        source = self.schema.toPlainText() if is_schema else ""
        self.schema.setVisible(is_schema)
        self.problem.show_text("")
        if is_schema and not source.strip():
            self.schema.setFocus()
            return
        try:
            shape = None if kind is None else AnswerShape(kind, source)
        except InvalidSettingError as error:
            self.problem.show_text(error.message)
            return
        if shape != self.shape:
            self.shape = shape
            self.edited.emit()


class ChatOptions(Popover):
    """The popover. It applies each change at once.

    Args:
        chat: The open chat.
        settings: Have the presets.
        model: The loaded model.
        theme: The appearance to follow.
    """

    def __init__(self, chat: OpenChat, settings: SettingsControl, model: ModelSlot, theme: Theme) -> None:
        super().__init__(theme, "window")
        self._chat = chat
        self._settings = settings
        self._model = model
        # The button that it stands below.
        self._anchor: QWidget = self
        self.setAccessibleName("Chat options")
        self.preset = choice_box("Preset of this chat", "Options that you saved under a name.", letters=12)
        # Labels that say "Changed", each by the names of the options that it is about.
        self._marks: dict[tuple[str, ...], ThemedLabel] = {}
        self.prompt = text_field(4, _PROMPT, "System prompt of this chat", _PROMPT_TIP)
        self.prompt.setMinimumWidth(_WIDTH)
        tip = "Whether the model thinks before it answers, and how much."
        self.thinking = choice_box("Thinking in this chat", tip, letters=0)
        # Another model has another default.
        self.thinking.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.limit = QSpinBox(maximum=_MOST_THINKING, singleStep=500, suffix=" tokens")
        self.limit.setSpecialValueText("No limit")
        self.limit.setAccessibleName("Limit of thinking in this chat")
        set_tip(self.limit, "After so many tokens of thinking the answer begins. 0 is no limit.")
        self.limit.setKeyboardTracking(False)
        self.limit.setGroupSeparatorShown(True)
        self._thinking_row = QWidget()
        thinking = self._head("Thinking", ("thinking_choice", "thinking_tokens"), self.thinking, self.limit)
        column(thinking, within=self._thinking_row, margins=(0, SMALL, 0, 0))
        self.shape = AnswerShapeForm(theme, partial(self._head, "Answers", ("answer_shape",)))
        texts = ((text, value) for value, text in LONG_CHATS.items())
        self.long_chats = choice_box("Long chats", LONG_CHATS_TIP, texts, letters=0)
        self.form = SamplingForm(theme)
        self.more = SectionHead("More sampling")
        self.more.toggled.connect(self.form.show_rare)
        self.keep_cache = QCheckBox("Keep this chat's cache on disk")
        set_tip(self.keep_cache, "After a restart, the model need not read the chat again.")
        self.keep_cache.clicked.connect(lambda keep: chat.set_own(keep_cache=keep))
        self.notes = QCheckBox("Use and propose notes in this chat")
        self.notes.clicked.connect(lambda use: chat.set_own(notes=use))
        self.source = ThemedLabel(theme, "", "muted", -1)
        self.name = QLineEdit(placeholderText="Name of a preset", maxLength=_LONGEST_NAME)
        self.name.setAccessibleName("Name of a preset")
        self.save = push_button("Save as Preset", _SAVE_TIP, self._save)
        self.with_draft = QCheckBox("With the draft settings")
        set_tip(self.with_draft, "Chats with this preset are drafted as this one, with any model.")
        self.defaults = push_button(
            "Use Defaults", "Change nothing in this chat", lambda: self._use(chat.conversation.own.preset)
        )
        self._lay_out()
        self.preset.activated.connect(lambda: self._use(self.preset.currentData()))
        self.prompt.textChanged.connect(self._apply)
        self.thinking.activated.connect(self._choose_thinking)
        self.limit.valueChanged.connect(lambda tokens: self._set(thinking_tokens=tokens or None))
        self.long_chats.activated.connect(lambda: self._set(long_chats=LongChats(self.long_chats.currentData())))
        self.shape.edited.connect(lambda: self._set(answer_shape=self.shape.shape))
        self.form.edited.connect(self._apply)
        self.name.textChanged.connect(lambda name: self.save.setEnabled(bool(name.strip())))
        self.name.returnPressed.connect(self.save.click)

    def _lay_out(self) -> None:
        content = Ground(self._theme, "window")
        column(
            row((ThemedLabel(self._theme, "Preset", bold=True), 1), self.preset),
            SMALL,
            self._head("System prompt", ("system_prompt",)),
            self.prompt,
            self._thinking_row,
            SMALL,
            self.shape,
            SMALL,
            self._head("Long chats", ("long_chats",), self.long_chats),
            SMALL,
            ThemedLabel(self._theme, "Sampling", bold=True),
            self.form,
            self.more,
            SMALL,
            self.keep_cache,
            self.notes,
            row((self.source, 1), self.defaults, spacing=-1),
            row((self.name, 1), self.save, spacing=-1),
            self.with_draft,
            within=content,
            margins=(LARGE, MEDIUM + TIGHT, LARGE, MEDIUM + TIGHT),
        )
        self._area = scrolled(content, WholeArea())
        column(self._area, within=self, margins=1).setSizeConstraint(QLayout.SizeConstraint.SetFixedSize)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.isVisible():
            open_beside(self, self._anchor, below=True)

    def _head(self, name: str, options: tuple[str, ...], *fields: QWidget) -> QLayout:
        """Return a row with a name, a label for "Changed", and fields.

        Args:
            name: The name of a section.
            options: Names of the options of the section; the label says whether the chat changes one.
            fields: Widgets at the right.
        """
        mark = ThemedLabel(self._theme, "", "muted", -1)
        self._marks[options] = mark
        return row(ThemedLabel(self._theme, name, bold=True), (mark, 1), *fields)

    def open_below(self, anchor: QWidget) -> None:
        """Open below a button, inside the screen."""
        self.name.clear()
        self.save.setEnabled(False)
        self.more.setChecked(False)
        self.show_values()
        self._anchor = anchor
        self._area.updateGeometry()
        open_beside(self, anchor, below=True)
        self.prompt.setFocus()

    def show_values(self) -> None:
        """Show the effective values."""
        values = self._chat.values
        replace_text(self.prompt, values.system_prompt)
        self.form.set_sampling(values.sampling)
        self.shape.set_shape(values.answer_shape)
        self.long_chats.setCurrentIndex(self.long_chats.findData(values.long_chats))
        keeps = self._settings.values.keep_caches
        self.keep_cache.setChecked(keeps and self._chat.conversation.own.keep_cache)
        self.keep_cache.setEnabled(keeps)
        self.notes.setChecked(self._chat.conversation.own.notes)
        self._show_presets()
        self._show_thinking()
        self._show_source()

    def _show_presets(self) -> None:
        """Offer the presets, first the one that the chat has by its model or project.

        A choice's value is a preset's id; empty for no preset, and None for what is usual, which is no preset where
        neither the model nor the project has one.
        """
        order = self._chat.replies.order
        usual = order.usual_preset(self._chat.conversation)
        whose = "model" if usual is order.model_preset else "project"
        first = [(f"{usual.name} ({whose}'s default)", None), ("None", "")] if usual else [("None", None)]
        others = [(each.name, each.id) for each in order.settings.presets if each is not usual]
        preset = order.preset(self._chat.conversation)
        chosen = preset.id if preset else ""
        fill_box(self.preset, [*first, *others], None if preset is usual else chosen)

    def _show_thinking(self) -> None:
        """Offer the kinds of thinking that the model knows; hide the row if it does not think."""
        info = self._model.info
        values = self._chat.values
        offered = info.thinking if info else ()
        self._thinking_row.setVisible(info is not None and info.may_think)
        # A model without a switch is offered Off all the same: a reply's thinking then gets a limit of 0 tokens. In the
        # field of the limit, 0 is no limit.
        offered = offered or (ThinkingChoice.OFF,)
        default = "Model's default"
        if info and info.thinking_default:
            default += f" ({info.thinking_default})"
        choices = [(default, None), *((each.value.capitalize(), each) for each in offered)]
        chosen = values.thinking_choice if values.thinking_choice in offered else None
        fill_box(self.thinking, choices, chosen)
        with QSignalBlocker(self.limit):
            self.limit.setValue(values.thinking_tokens or 0)
        self.limit.setEnabled(chosen is not ThinkingChoice.OFF)

    def _choose_thinking(self) -> None:
        self._set(thinking_choice=self.thinking.currentData())
        self._show_thinking()

    def _set(self, **options: Any) -> None:
        """Give the chat other values of some options."""
        self._chat.set_options(**options)
        self._show_source()

    def _apply(self) -> None:
        self._set(system_prompt=self.prompt.toPlainText(), sampling=self.form.sampling())

    def _use(self, preset: str | None) -> None:
        """Give the chat a preset, without options of its own."""
        self._chat.use_preset(preset)
        self.show_values()

    def _save(self) -> None:
        """Save the chat's options as a preset with the typed name, in place of one with that name, and use it.

        A preset that is replaced leaves its id to the new one, by which chats have it, and its models.
        """
        order = self._chat.replies.order
        settings = self._settings.values
        name = self.name.text().strip()
        draft = self._chat.replies.drafting.settings if self.with_draft.isChecked() else None
        preset = order.as_preset(self._chat.conversation, name, draft)
        old = next((each for each in settings.presets if each.name == name), preset)
        preset = replace(preset, id=old.id, models=old.models)
        self._settings.change_values(presets=(*(each for each in settings.presets if each.id != preset.id), preset))
        self.name.clear()
        self._use(preset.id)

    def _show_source(self) -> None:
        """Show where the values come from, and which of them the chat changes."""
        chat = self._chat.conversation
        order = self._chat.replies.order
        changed = order.own(chat, self._chat.values)
        source = order.project_folder(chat) or order.preset(chat)
        same = f"Same as in {source.name if source else 'Settings'}"
        self.source.setText("Changed for this chat" if changed else same)
        self.defaults.setEnabled(bool(changed))
        for names, mark in self._marks.items():
            mark.setText(CHANGED if changed.keys() & names else "")
        self._show_sampling_sources()

    def _show_sampling_sources(self) -> None:
        """Show where each number of the sampling comes from; unfold the rarer ones if the chat changes one of them."""
        chat = self._chat.conversation
        order = self._chat.replies.order
        preset = order.preset(chat)
        usual = asdict(order.usual(chat).sampling)
        sampling = asdict(self._chat.values.sampling)
        changed = {name for name in usual if usual[name] != sampling[name]}
        chosen_elsewhere = {*order.settings.chosen_sampling, *(preset.chosen_sampling if preset else ())}
        # A chat with sampling of its own has chosen every number.
        chosen = self.form.fields if chat.sampling else chosen_elsewhere
        self.form.show_sources(self._model.sampling, chosen, changed)
        if changed - COMMON:
            self.more.setChecked(True)
