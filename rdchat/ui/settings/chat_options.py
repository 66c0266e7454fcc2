"""The popover with one chat's options: preset, system prompt, thinking, the answers' format and sampling.

It shows the values that apply to the chat. The usual ones come from its preset, its project, the settings and the
model; a chat stores only values of its own that differ from them.
"""

from dataclasses import asdict, replace
from typing import Any

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QLayout,
    QLineEdit,
    QSpinBox,
    QWidget,
)

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import AnswerShape, ShapeKind, ThinkingChoice
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.settings.options_form import COMMON, OptionRow, OptionsForm
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    TIGHT,
    Ground,
    Popover,
    Theme,
    ThemedLabel,
    WholeArea,
    choice_box,
    column,
    fill_box,
    open_beside,
    push_button,
    replace_text,
    row,
    scrolled,
    set_tip,
    small_text,
    text_field,
)

_MOST_THINKING = 999_999
_CHOICES = (("Any text", None), ("A JSON object", ShapeKind.JSON), ("JSON with a schema", ShapeKind.SCHEMA))
_SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'
_LONGEST_NAME = 200
# Options that are shown without More; of `sampling` that is the temperature. The panel has the draft settings.
_IN_SIGHT = {"system_prompt", "sampling", COMMON, "draft"}
_SAVE_TIP = "Keep these options under this name, for other chats. They replace a preset that has it."
_TIP = "Answers in this chat have this format, unless they are cut off. Thinking is off for them where possible."


class AnswerShapeForm(QWidget):
    """Chooses among any text, a JSON object and a JSON schema. A schema that cannot be used is explained.

    Args:
        theme: The appearance to follow.

    Attributes:
        kind: The choice.
        head: The first row, with the choice.
        schema: The field for the schema.
        problem: Explains what is wrong with the schema.
        shape: The last valid choice; None for any text.
        edited: Emitted after each valid change by the person.
    """

    edited = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.kind = choice_box("Format of the answers in this chat", _TIP, _CHOICES, letters=0)
        self.schema = text_field(5, _SCHEMA, "JSON schema", "The JSON schema that the answers must fit.")
        self.problem = small_text(theme, "", "danger")
        self.shape: AnswerShape | None = None
        self.head = OptionRow(theme, "Answers", self.kind)
        column(self.head, self.schema, self.problem, within=self, spacing=TIGHT + 2)
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
        controller: The open chat, the settings and the model.
        theme: The appearance to follow.
        anchor: The button that it stands below.
    """

    def __init__(self, controller: ChatController, theme: Theme, anchor: QWidget) -> None:
        super().__init__(theme, "window", anchor)
        chat = controller.chat
        self._chat = chat
        self._settings = controller.settings
        self._model = controller.model_slot
        self._anchor = anchor
        self.setAccessibleName("Chat options")
        self.preset = choice_box("Preset of this chat", "Options that you saved under a name.", letters=12)
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
        self._thinking_row = OptionRow(theme, "Thinking", self.thinking, self.limit)
        self.shape = AnswerShapeForm(theme)
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
        self.form = OptionsForm(
            theme,
            (self._thinking_row, self.shape),
            (
                self.keep_cache,
                self.notes,
                row((self.source, 1), self.defaults, spacing=-1),
                row((self.name, 1), self.save, spacing=-1),
                self.with_draft,
            ),
        )
        self.form.marks |= dict.fromkeys(("thinking_choice", "thinking_tokens"), self._thinking_row.mark)
        self.form.marks["answer_shape"] = self.shape.head.mark
        content = Ground(theme, "window")
        margins = LARGE, MEDIUM + TIGHT, LARGE, MEDIUM + TIGHT
        column(OptionRow(theme, "Preset", self.preset), self.form, within=content, margins=margins)
        self._area = scrolled(content, WholeArea())
        column(self._area, within=self, margins=1).setSizeConstraint(QLayout.SizeConstraint.SetFixedSize)
        self.preset.activated.connect(lambda: self._use(self.preset.currentData()))
        self.thinking.activated.connect(self._choose_thinking)
        self.limit.valueChanged.connect(lambda tokens: self._set(thinking_tokens=tokens or None))
        self.shape.edited.connect(lambda: self._set(answer_shape=self.shape.shape))
        for edited in (self.form.prompt.textChanged, self.form.edited):
            edited.connect(lambda: self._set(**self.form.options()))
        self.name.textChanged.connect(lambda name: self.save.setEnabled(bool(name.strip())))
        self.name.returnPressed.connect(self.save.click)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.isVisible():
            open_beside(self, self._anchor, below=True)

    def open_below(self) -> None:
        """Open below the button, inside the screen, and no higher than the button's window."""
        self.name.clear()
        self.save.setEnabled(False)
        self.form.more.setChecked(False)
        self.show_values()
        # A window's menus and toolbar are about as high.
        self._area.setMaximumHeight(self._anchor.window().height() - 4 * LARGE)
        self._area.updateGeometry()
        open_beside(self, self._anchor, below=True)
        self.form.prompt.setFocus()

    def show_values(self) -> None:
        """Show the effective values."""
        values = self._chat.values
        self.form.show_options(values.system_prompt, values.sampling, values.long_chats)
        self.shape.set_shape(values.answer_shape)
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
        """Show where the values come from, and which of them the chat changes; unfold those below More if it does."""
        chat = self._chat.conversation
        values = self._chat.values
        order = self._chat.replies.order
        own = order.own(chat, values)
        preset = order.preset(chat)
        source = order.project_folder(chat) or preset
        same = f"Same as in {source.name if source else 'Settings'}"
        self.source.setText("Changed for this chat" if own else same)
        self.defaults.setEnabled(bool(own))
        usual = asdict(order.usual(chat).sampling)
        sampling = asdict(values.sampling)
        changed = own.keys() | {name for name in usual if usual[name] != sampling[name]}
        chosen_elsewhere = {*order.settings.chosen_sampling, *(preset.chosen_sampling if preset else ())}
        # A chat with sampling of its own has chosen every number.
        chosen = self.form.fields if chat.sampling else chosen_elsewhere
        self.form.show_sources(self._model.sampling, chosen, changed)
        if changed - _IN_SIGHT:
            self.form.more.setChecked(True)
