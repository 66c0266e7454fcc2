"""The form of a training: the kind of drafter, how much to train, and whether to learn from the person's chats."""

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QButtonGroup, QCheckBox, QDoubleSpinBox, QRadioButton, QSpinBox, QWidget

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.api.training import TrainingOrder
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import Part, column, row
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.training.parts import lay_out

_HOURS, _TOKENS = 2.0, 200_000
_LITTLE_TOKENS = 20_000
_INDENT = 24  # of the words below a button: where its own begin
_KINDS = {
    TrainedKind.RECURRENT: (
        "Recurrent (recommended)",
        "A small network that reads the model's own state. Trains fastest; the drafter that comes with the default "
        "model is of this kind.",
    ),
    TrainedKind.EAGLE3: (
        "EAGLE-3",
        "One layer like those of the model, which also looks back at the text. Takes longer to train. Other programs "
        "can read it.",
    ),
    TrainedKind.DSPARK: (
        "DSpark (experimental)",
        "Drafts a block of tokens in one go. On the default model it has not yet learnt more than how frequent words "
        "are. Other programs can read it.",
    ),
}
_CHATS = (
    "The first question of each of your chats is mixed in, so that the drafter learns from what you really ask; the "
    "model answers them anew. They stay on this machine, with the training's data, and are removed with it. The "
    "drafter's card says how many there were, not what they say."
)
_MORE = (
    "The model writes answers, and the drafter learns from them: more is better. On the default model, 22 thousand "
    "tokens brought 1.26 tokens a call and 179 thousand 1.42."
)
_LITTLE = "That is little to learn from: expect no more than a first impression. Give it more."
_HINT = "rdchat loads the model a second time for this. How long each step takes is shown once it runs."
_NO_MODEL = "Load a model first, or choose one that is installed."


class OrderView(QWidget):
    """The form, and the button that starts the training.

    Args:
        training: Starts it.
        shelf: Knows for which model.
        theme: The appearance to follow.
    """

    def __init__(self, training: TrainingControl, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._training, self._shelf, self._theme = training, shelf, theme
        self.kinds = {kind: QRadioButton(name) for kind, (name, _) in _KINDS.items()}
        self.by_time, self.by_tokens = QRadioButton("By time"), QRadioButton("By tokens")
        self.hours = QDoubleSpinBox(minimum=0.1, maximum=240, singleStep=0.5, decimals=1, value=_HOURS, suffix=" hours")
        self.tokens = QSpinBox(minimum=1000, maximum=100_000_000, singleStep=50_000, value=_TOKENS, suffix=" tokens")
        self.tokens.setGroupSeparatorShown(True)
        self.chats = QCheckBox("Learn from my questions too")
        self.little = ThemedLabel(theme, _LITTLE, "warning", wraps=True)
        self.status = ThemedLabel(theme, "", "muted", wraps=True)
        self.start = push_button("Start training", "", self._press_start)
        self._form = QWidget()
        self._build_form()
        lay_out(self, theme, [self._form, self.little], [(self.status, 1), self.start], spacing=MEDIUM)
        changes = (*(button.toggled for button in self.kinds.values()), self.by_time.toggled, self.chats.toggled)
        for changed in (*changes, self.hours.valueChanged, self.tokens.valueChanged, training.changed, shelf.changed):
            changed.connect(self.show_state)
        self.show_state()

    def _build_form(self) -> None:
        for buttons in (list(self.kinds.values()), [self.by_time, self.by_tokens]):
            group = QButtonGroup(self)
            for button in buttons:
                group.addButton(button)
            buttons[0].setChecked(True)
        titles = [ThemedLabel(self._theme, name, bold=True) for name in ("Kind", "How much", "Your chats")]
        kinds = [part for kind, button in self.kinds.items() for part in (button, self._words(_KINDS[kind][1], button))]
        hours = self._amount(self.by_time, self.hours, "Hours")
        tokens = self._amount(self.by_tokens, self.tokens, "Tokens of answers")
        amounts = (MEDIUM, titles[1], self._words(_MORE), hours, tokens)
        chats = (MEDIUM, titles[2], self.chats, self._words(_CHATS, self.chats))
        column(titles[0], *kinds, *amounts, *chats, within=self._form, spacing=TIGHT)

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

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_state()

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

    def show_state(self) -> None:
        """Show what can be done now."""
        order, training = self.order(), self._training
        free = training.state is TrainingState.NOTHING and order is not None
        self._form.setEnabled(free)
        self.start.setEnabled(free)
        if self.isVisible():
            self.start.setDefault(True)
        self.little.setVisible(order is not None and (order.tokens or _LITTLE_TOKENS) < _LITTLE_TOKENS)
        self.status.set_color("danger" if order is not None and training.problem else "muted")
        problem = f"{training.problem} {training.hint}".strip()
        self.status.setText(_NO_MODEL if order is None else problem or _HINT)

    def _press_start(self) -> None:
        if (order := self.order()) is not None:
            self._training.start(order)
