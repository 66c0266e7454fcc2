"""The popover with one chat's options: system prompt, thinking, the answers' format and sampling."""

from typing import Any

from PySide6.QtCore import QPoint, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLayout, QWidget

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.answer_shape import AnswerShape, ShapeKind
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.ui.settings.sampling_form import SamplingForm
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, fill_box, row, text_field
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_WIDTH = 320
_CHOICES = (("Any text", None), ("A JSON object", ShapeKind.JSON), ("JSON with a schema", ShapeKind.SCHEMA))
_OTHER = "Another format"
_TIP = "Answers in this chat have this format, unless they are cut off. Thinking is off for them where possible."


class AnswerShapeForm(QWidget):
    """Chooses among any text, a JSON object and a JSON schema. A schema that is not JSON is explained and not used.

    Attributes:
        kind: The choice.
        schema: The field for the schema.
        problem: Explains what is wrong with the schema.
        shape: The last valid choice; None for any text.
        edited: Emitted after each valid change by the person.
    """

    edited = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.kind = choice_box("Format of the answers in this chat", _TIP, _CHOICES, letters=0)
        self.schema = text_field(5, '{"type": "object", "properties": {"name": {"type": "string"}}}')
        self.schema.setAccessibleName("JSON schema")
        set_tip(self.schema, "The JSON schema that the answers must fit.")
        self.problem = ThemedLabel(theme, "", "danger", -1, wraps=True)
        self.shape: AnswerShape | None = None
        label = ThemedLabel(theme, "Answers", bold=True)
        column(row((label, 1), self.kind, spacing=-1), self.schema, self.problem, within=self, spacing=TIGHT + 2)
        self.schema.hide()
        self.problem.hide()
        self.kind.activated.connect(self._read)
        self.schema.textChanged.connect(self._read)

    def set_shape(self, shape: AnswerShape | None) -> None:
        """Show a shape without emitting `edited`."""
        self.shape, kind = shape, shape and shape.kind
        known = any(value == kind for _, value in _CHOICES)  # An imported chat may have another one.
        fill_box(self.kind, _CHOICES if known else (*_CHOICES, (_OTHER, kind)), kind)
        source = shape.source if shape and kind is ShapeKind.SCHEMA else ""
        if self.schema.toPlainText() != source:
            with QSignalBlocker(self.schema):
                self.schema.setPlainText(source)
        self.schema.setVisible(kind is ShapeKind.SCHEMA)
        self.problem.show_text("")

    def _read(self) -> None:
        data, source = self.kind.currentData(), self.schema.toPlainText()
        kind = None if data is None else ShapeKind(data)  # Qt gives the name back as a plain string
        self.schema.setVisible(kind is ShapeKind.SCHEMA)
        shape: AnswerShape | None = None
        if kind is ShapeKind.SCHEMA:
            if not source.strip():
                self.problem.show_text("")
                self.schema.setFocus()
                return
            try:
                shape = AnswerShape(kind, source)
            except InvalidSettingError as error:
                self.problem.show_text(error.message)
                return
        elif kind is not None:
            shape = AnswerShape(kind) if kind is ShapeKind.JSON else self.shape
        self.problem.show_text("")
        if shape != self.shape:
            self.shape = shape
            self.edited.emit()


class ChatOptions(QWidget):
    """Shows the effective values and applies each change at once. Values equal to those of Settings are not stored."""

    def __init__(self, chat: OpenChat, settings: SettingsControl, model: ModelSlot, theme: Theme) -> None:
        super().__init__(None, Qt.WindowType.Popup)
        self._chat, self._settings, self._model, self._theme = chat, settings, model, theme
        self.setAccessibleName("Chat options")
        self.prompt = text_field(4, "None. For example: You answer briefly, in plain words.")
        self.prompt.setMinimumWidth(_WIDTH)
        self.prompt.setAccessibleName("System prompt of this chat")
        set_tip(self.prompt, "Instructions that the model reads before the chat.")
        tip = "Whether the model thinks before it answers, and how much."
        self.thinking = choice_box("Thinking in this chat", tip, letters=0)
        self._thinking_row = QWidget()
        label = ThemedLabel(theme, "Thinking", bold=True)
        row((label, 1), self.thinking, within=self._thinking_row, spacing=-1, margins=(0, SMALL, 0, 0))
        self.shape = AnswerShapeForm(theme)
        self.form = SamplingForm(theme)
        self.source = ThemedLabel(theme, "", "muted", -1)
        self.defaults = push_button(
            "Use Defaults", "Use the values from Settings, and answers in any format", self._use_defaults
        )
        column(
            ThemedLabel(theme, "System prompt", bold=True),
            self.prompt,
            self._thinking_row,
            SMALL,
            self.shape,
            SMALL,
            ThemedLabel(theme, "Sampling", bold=True),
            self.form,
            TIGHT,
            row((self.source, 1), self.defaults, spacing=-1),
            within=self,
            margins=(LARGE, MEDIUM + TIGHT, LARGE, MEDIUM + TIGHT),
        ).setSizeConstraint(QLayout.SizeConstraint.SetFixedSize)
        self.prompt.textChanged.connect(self._apply)
        self.thinking.activated.connect(lambda: self._set(thinking_choice=self.thinking.currentData()))
        self.shape.edited.connect(lambda: self._set(answer_shape=self.shape.shape))
        self.form.edited.connect(self._apply)

    def open_below(self, anchor: QWidget) -> None:
        """Open below a button, inside the screen."""
        self.refresh()
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(anchor.width() - self.width(), anchor.height() + TIGHT))
        screen = anchor.screen().availableGeometry()
        left = max(screen.left() + TIGHT, min(corner.x(), screen.right() - self.width() - TIGHT))
        self.move(left, min(corner.y(), max(screen.top(), screen.bottom() - self.height() - TIGHT)))
        self.show()
        self.prompt.setFocus()

    def refresh(self) -> None:
        """Show the effective values."""
        chat, settings = self._chat.conversation, self._settings.values
        prompt = settings.system_prompt if chat.system_prompt is None else chat.system_prompt
        if self.prompt.toPlainText() != prompt:
            with QSignalBlocker(self.prompt):
                self.prompt.setPlainText(prompt)
        self.form.set_sampling(chat.sampling or settings.sampling_for(self._model.sampling))
        self._show_thinking()
        self.shape.set_shape(chat.answer_shape)
        self._show_source()

    def _show_thinking(self) -> None:
        """Offer the choices of the model's chat template; hide the row if there are none."""
        offered = self._model.info.thinking if self._model.info else ()
        self._thinking_row.setVisible(bool(offered))
        choices = [("Model's default", None), *((each.value.capitalize(), each) for each in offered)]
        chosen = self._chat.conversation.thinking_choice
        fill_box(self.thinking, choices, chosen if chosen in offered else None)

    def _set(self, **options: Any) -> None:
        self._chat.set_options(**options)
        self._show_source()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.colors.muted)
        painter.setBrush(self._theme.colors.window)
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))

    def _apply(self) -> None:
        settings = self._settings.values
        if self.form.problem.isVisibleTo(self):
            return
        text = self.prompt.toPlainText()
        prompt = None if text == settings.system_prompt else text
        values = self.form.sampling()
        sampling = None if values == settings.sampling_for(self._model.sampling) else values
        self._set(system_prompt=prompt, sampling=sampling)

    def _use_defaults(self) -> None:
        self._chat.set_options(system_prompt=None, sampling=None, thinking_choice=None, answer_shape=None)
        self.refresh()

    def _show_source(self) -> None:
        chat = self._chat.conversation
        own = chat.has_own_options
        self.source.setText("Changed for this chat" if own else "Same as in Settings")
        self.defaults.setEnabled(own)
        chosen = self.form.fields if chat.sampling else self._settings.values.chosen_sampling
        self.form.show_sources(self._model.sampling, chosen)
