"""Forms: labelled rows, and text fields of a few lines."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QLabel, QLayout, QPlainTextEdit, QWidget

from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import SMALL


def form_layout(
    within: QWidget | None = None,
    *,
    spacing: tuple[int, int] = (SMALL, SMALL),
    margin: int = 0,
    align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignRight,
) -> QFormLayout:
    """Return an empty form.

    Args:
        within: The widget that gets the form as its layout.
        spacing: Space between label and field, and between rows.
        margin: Space around the form.
        align: Where the labels stand.
    """
    form = QFormLayout(within)
    form.setContentsMargins(margin, margin, margin, margin)
    form.setHorizontalSpacing(spacing[0])
    form.setVerticalSpacing(spacing[1])
    form.setLabelAlignment(align)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    return form


def add_row(form: QFormLayout, name: str, field: QWidget, explanation: str, line: QLayout | None = None) -> None:
    """Add a field with its label.

    Args:
        form: The form.
        name: The label, and the field's name for screen readers.
        field: The field.
        explanation: The tooltip of both, and the field's description for screen readers.
        line: What the row shows in place of the field alone.
    """
    label = PlainLabel(name)
    if not isinstance(field, QLabel):  # screen readers read a label's own text
        label.setBuddy(field)
        field.setAccessibleName(name)
        field.setAccessibleDescription(explanation)
    for part in (label, field):
        set_tip(part, explanation)
    form.addRow(label, line or field)


def text_field(lines: int, placeholder: str) -> QPlainTextEdit:
    """Return a plain text field of some lines, which Tab leaves."""
    field = QPlainTextEdit(tabChangesFocus=True)
    field.setPlaceholderText(placeholder)
    field.setFixedHeight(field.fontMetrics().lineSpacing() * lines + 12)
    return field
