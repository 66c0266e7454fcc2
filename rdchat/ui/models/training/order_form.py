"""What is to be trained, how much of it, and whether one's own chats are part of it."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QRadioButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.api.training import TrainingOrder
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.training.words import KIND_NAMES, KIND_WORDS

_HOURS, _TOKENS = 2.0, 200_000
_INDENT = 24  # of the words below a button: where its own begin
_CHATS = (
    "The first question of each of your chats is mixed in, so that the drafter learns from what you really ask; the "
    "model answers them anew. They stay on this machine, with the training's data, and are removed with it. The "
    "drafter's card says how many there were, not what they say."
)
_MORE = (
    "The model writes answers, and the drafter learns from them: more is better. On the default model, 22 thousand "
    "tokens brought 1.26 tokens a call and 179 thousand 1.42."
)


class OrderForm(QWidget):
    """A column of choices. `order` makes of them what is asked for."""

    changed = Signal()  # by the person

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(TIGHT)
        self._build_kinds()
        self._build_amount()
        self._build_chats()

    def order(self, model: str | None, name: str, dtype: str, old: str | None) -> TrainingOrder:
        """Return what is asked for.

        Args:
            model: See `TrainingOrder`, as for the others.
            name: Of the model.
            dtype: It is loaded in.
            old: The drafter that is used now.
        """
        by_time = self.by_time.isChecked()
        return TrainingOrder(
            model=model,
            name=name,
            kind=next(kind for kind, button in self.kinds.items() if button.isChecked()),
            hours=self.hours.value() if by_time else None,
            tokens=None if by_time else self.tokens.value(),
            with_chats=self.chats.isChecked(),
            dtype=dtype,
            old=old,
        )

    def _build_kinds(self) -> None:
        self._heading("Kind")
        group = QButtonGroup(self)
        self.kinds = {kind: QRadioButton(KIND_NAMES[kind]) for kind in TrainedKind}
        for kind, button in self.kinds.items():
            group.addButton(button)
            self._column.addWidget(button)
            self._explain(button, KIND_WORDS[kind])
        self.kinds[TrainedKind.RECURRENT].setChecked(True)
        group.buttonToggled.connect(self._on_toggled)

    def _build_amount(self) -> None:
        self._heading("How much", _MORE)
        self.by_time, self.by_tokens = QRadioButton("By time"), QRadioButton("By tokens")
        self.hours = QDoubleSpinBox(minimum=0.1, maximum=240, singleStep=0.5, decimals=1, value=_HOURS, suffix=" hours")
        self.tokens = QSpinBox(minimum=1000, maximum=100_000_000, singleStep=50_000, value=_TOKENS, suffix=" tokens")
        self.tokens.setGroupSeparatorShown(True)
        group = QButtonGroup(self)
        for button, field, name in (
            (self.by_time, self.hours, "Hours"),
            (self.by_tokens, self.tokens, "Tokens of answers"),
        ):
            group.addButton(button)
            field.setAccessibleName(name)
            field.setFixedWidth(170)
            row = QHBoxLayout()
            row.setSpacing(SMALL)
            button.setFixedWidth(120)
            row.addWidget(button)
            row.addWidget(field)
            row.addStretch(1)
            self._column.addLayout(row)
            field.valueChanged.connect(self.changed)
        self.by_time.setChecked(True)
        self.tokens.setEnabled(False)
        self.by_time.toggled.connect(self.hours.setEnabled)
        self.by_tokens.toggled.connect(self.tokens.setEnabled)
        group.buttonToggled.connect(self._on_toggled)

    def _build_chats(self) -> None:
        self._heading("Your chats")
        self.chats = QCheckBox("Learn from my questions too")
        self._column.addWidget(self.chats)
        self._explain(self.chats, _CHATS)
        self.chats.toggled.connect(self.changed)

    def _on_toggled(self, _button: object, checked: bool) -> None:
        if checked:
            self.changed.emit()

    def _heading(self, name: str, words: str = "") -> None:
        if self._column.count():
            self._column.addSpacing(MEDIUM)
        self._column.addWidget(ThemedLabel(self._theme, name, bold=True))
        if words:
            self._column.addWidget(self._words(words))

    def _explain(self, button: QWidget, words: str) -> None:
        label = self._words(words)
        label.setContentsMargins(_INDENT, 0, 0, TIGHT)
        button.setAccessibleDescription(words)
        self._column.addWidget(label)

    def _words(self, words: str) -> ThemedLabel:
        label = ThemedLabel(self._theme, words, "muted", -1)
        label.setWordWrap(True)
        return label
