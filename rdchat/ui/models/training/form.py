"""The form of a training: kind of drafter, amount of training, and whether to learn from the person's chats."""

from PySide6.QtWidgets import QButtonGroup, QCheckBox, QDoubleSpinBox, QRadioButton, QSpinBox, QWidget

from rdchat.inference.api.training import TrainedKind, TrainingOrder
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.ui.look.formatting import MACHINE
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import Part, column, row
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme

_HOURS, _TOKENS = 2.0, 200_000
_LITTLE_TOKENS = 20_000
_INDENT = 24  # of an explanation: it begins below the text of its button
_KINDS = {
    TrainedKind.RECURRENT: (
        "Recurrent (recommended)",
        "A small network that reads the model's internal state. It trains fastest. The default model's drafter is of "
        "this kind.",
    ),
    TrainedKind.EAGLE3: (
        "EAGLE-3",
        "One layer like the model's own, which also looks back at the text. It takes longer to train. Other programs "
        "can use it.",
    ),
    TrainedKind.DSPARK: (
        "DSpark (experimental)",
        "Drafts several tokens at once. On the default model it has only learnt which words are frequent. Other "
        "programs can use it.",
    ),
    TrainedKind.MTP: (
        "MTP (experimental)",
        "One layer of the model's own kind and size, as some models are published with. The draft is slower than "
        "EAGLE-3's.",
    ),
}
_CHATS = (
    "The drafter also learns from the first question of each chat, which the model answers again. The questions stay "
    f"on {MACHINE}, in the training data, and are deleted with it. The drafter's card records only their number."
)
_MORE = (
    "The model writes answers, and the drafter learns from them. More is better: the default model's own drafter was "
    "trained on 1.5 million tokens."
)
_LITTLE = "This is too little for a useful drafter. Choose more."


class TrainingForm(QWidget):
    """The fields of a training.

    Args:
        shelf: Knows for which model.
        theme: The appearance to follow.
    """

    def __init__(self, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._theme = shelf, theme
        self.kinds = {kind: QRadioButton(name) for kind, (name, _) in _KINDS.items()}
        self.by_time, self.by_tokens = QRadioButton("By time"), QRadioButton("By tokens")
        self.hours = QDoubleSpinBox(minimum=0.1, maximum=240, singleStep=0.5, decimals=1, value=_HOURS, suffix=" hours")
        self.tokens = QSpinBox(minimum=1000, maximum=100_000_000, singleStep=50_000, value=_TOKENS, suffix=" tokens")
        self.tokens.setGroupSeparatorShown(True)
        self.chats = QCheckBox("Learn from my questions too")
        self.little = ThemedLabel(theme, _LITTLE, "warning", wraps=True)
        for buttons in (list(self.kinds.values()), [self.by_time, self.by_tokens]):
            group = QButtonGroup(self)
            for button in buttons:
                group.addButton(button)
            buttons[0].setChecked(True)
        self._lay_out()
        for changed in (self.by_time.toggled, self.tokens.valueChanged):
            changed.connect(self._show_little)
        self._show_little()

    def _lay_out(self) -> None:
        titles = [ThemedLabel(self._theme, name, bold=True) for name in ("Kind", "How much", "Your chats")]
        kinds = [part for kind, button in self.kinds.items() for part in (button, self._words(_KINDS[kind][1], button))]
        hours = self._amount(self.by_time, self.hours, "Hours")
        tokens = self._amount(self.by_tokens, self.tokens, "Tokens of answers")
        amounts = (MEDIUM, titles[1], self._words(_MORE), hours, tokens, self.little)
        chats = (MEDIUM, titles[2], self.chats, self._words(_CHATS, self.chats))
        column(titles[0], *kinds, *amounts, *chats, within=self, spacing=TIGHT)

    def _amount(self, button: QRadioButton, field: QSpinBox | QDoubleSpinBox, name: str) -> Part:
        button.setFixedWidth(120)
        field.setAccessibleName(name)
        field.setFixedWidth(170)
        field.setEnabled(button.isChecked())
        button.toggled.connect(field.setEnabled)
        return row(button, field, None, spacing=SMALL)

    def _words(self, words: str, button: QWidget | None = None) -> ThemedLabel:
        """Return an explanation, indented below its button if it has one."""
        label = ThemedLabel(self._theme, words, "muted", -1, wraps=True)
        if button is not None:
            label.setContentsMargins(_INDENT, 0, 0, TIGHT)
            button.setAccessibleDescription(words)
        return label

    def _show_little(self) -> None:
        self.little.setVisible(self.by_tokens.isChecked() and self.tokens.value() < _LITTLE_TOKENS)

    def order(self) -> TrainingOrder | None:
        """Return the chosen training; None where there is no model to train for."""
        chosen, by_time = self._shelf.chosen, self.by_time.isChecked()
        if chosen is None:
            return None
        return TrainingOrder(
            model=chosen.model or None,
            name=chosen.name,
            kind=next(kind for kind, button in self.kinds.items() if button.isChecked()),
            hours=self.hours.value() if by_time else None,
            tokens=None if by_time else self.tokens.value(),
            with_chats=self.chats.isChecked(),
            dtype=self._shelf.dtype if chosen.is_loaded else "auto",
            old=self._shelf.settings.drafter if chosen.is_loaded else None,
        )
