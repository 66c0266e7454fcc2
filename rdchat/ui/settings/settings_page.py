"""A page of the settings window, with fields that show one setting each and change it at once."""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QSignalBlocker
from PySide6.QtWidgets import QCheckBox, QComboBox, QLayout, QSpinBox, QWidget

from rdchat.chat.settings import Settings
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import add_row, choice_box, form_layout
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme

type Change = Callable[..., object]
"""Changes settings by their names."""

_WIDTH, _NOTE_WIDTH = 500, 350


class SettingsPage(QWidget):
    """A form of settings.

    Args:
        theme: The appearance to follow.
        change: Changes settings by their names.
    """

    def __init__(self, theme: Theme, change: Change) -> None:
        super().__init__()
        self.setMinimumWidth(_WIDTH)
        self._theme, self._change = theme, change
        self._form = form_layout(self, spacing=(MEDIUM, SMALL), margin=LARGE)
        self._bound: list[tuple[QWidget, str, Callable[[Any], object]]] = []

    def show_settings(self, settings: Settings) -> None:
        """Show the settings in the fields that are bound to them."""
        for field, name, show in self._bound:
            with QSignalBlocker(field):
                show(getattr(settings, name))

    def add(self, name: str, field: QWidget, explanation: str, line: QLayout | None = None) -> None:
        """Add a row with a field; see `add_row`."""
        add_row(self._form, name, field, explanation, line)

    def add_line(self, content: QWidget | QLayout, name: str = "") -> None:
        """Add a row without a tooltip."""
        self._form.addRow(name, content)

    def add_note(self, text: str = "", color: str = "muted") -> ThemedLabel:
        """Add a small text as wide as the fields; without a text it is hidden."""
        label = ThemedLabel(self._theme, text, color, -1, wraps=True)
        label.setFixedWidth(_NOTE_WIDTH)
        self.add_line(label)
        if not text:
            label.hide()
        return label

    def check_box(self, text: str, setting: str, change: Change | None = None) -> QCheckBox:
        """Return a check box for a setting."""
        field = QCheckBox(text)
        self._bind(field, field.toggled, setting, lambda value: field.setChecked(bool(value)), change)
        return field

    def number(self, setting: str, low: int, high: int, suffix: str = "", change: Change | None = None) -> QSpinBox:
        """Return a field for a whole number."""
        field = QSpinBox(minimum=low, maximum=high, suffix=suffix)
        self._bind(field, field.valueChanged, setting, field.setValue, change)
        return field

    def choice[K](self, setting: str, texts: dict[K, str]) -> QComboBox:
        """Return a combo box for a setting whose values have these texts; their type takes a plain string."""
        field = combo_box(texts, lambda value: self._change(**{setting: value}))
        self._bound.append((field, setting, lambda value: field.setCurrentIndex(field.findData(value))))
        return field

    def _bind(
        self, field: QWidget, changed: Any, setting: str, show: Callable[[Any], object], change: Change | None
    ) -> None:
        changed.connect(lambda value: (change or self._change)(**{setting: value}))
        self._bound.append((field, setting, show))


def combo_box[K](texts: dict[K, str], change: Callable[[K], object]) -> QComboBox:
    """Return a combo box of values with their texts that calls `change` with the chosen value."""
    combo = choice_box("", "", ((text, value) for value, text in texts.items()), letters=0)
    kind = type(next(iter(texts)))  # Qt gives the value of a string enumeration back as a plain string
    combo.currentIndexChanged.connect(lambda _index: change(kind(combo.currentData())))  # type: ignore[call-arg]
    return combo
