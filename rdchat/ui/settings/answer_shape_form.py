"""The form for the format that a chat's answers must have."""

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QWidget

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.messages import AnswerShape, ShapeKind
from rdchat.ui.style.labels import ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, fill_box, row, text_field
from rdchat.ui.style.theme import TIGHT, Theme

_CHOICES = (("Any text", None), ("A JSON object", ShapeKind.JSON), ("JSON with a schema", ShapeKind.SCHEMA))
_OTHER = "Another format"
_TIP = "Answers in this chat have this format, unless they are cut off. Thinking is off for them where possible."


class AnswerShapeForm(QWidget):
    """Chooses among any text, a JSON object and a JSON schema. A schema that is not JSON is explained and not used.

    Attributes:
        kind: The choice.
        schema: The field for the schema.
        problem: Explains what is wrong with the schema.
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
        self._shape: AnswerShape | None = None
        label = ThemedLabel(theme, "Answers", bold=True)
        column(row((label, 1), self.kind, spacing=-1), self.schema, self.problem, within=self, spacing=TIGHT + 2)
        self.schema.hide()
        self.problem.hide()
        self.kind.activated.connect(self._read)
        self.schema.textChanged.connect(self._read)

    def shape(self) -> AnswerShape | None:
        """Return the last valid choice; None for any text."""
        return self._shape

    def set_shape(self, shape: AnswerShape | None) -> None:
        """Show a shape without emitting `edited`."""
        self._shape, kind = shape, shape and shape.kind
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
            shape = AnswerShape(kind) if kind is ShapeKind.JSON else self._shape
        self.problem.show_text("")
        if shape != self._shape:
            self._shape = shape
            self.edited.emit()
