"""The sheet with the options of one reply."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QFormLayout, QWidget

from rdchat.chat.conversation import MadeWith
from rdchat.inference.api import SamplingParams
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.ui.style import (
    SMALL,
    Sheet,
    Theme,
    button_text,
    cut,
    form_layout,
    nothing,
    set_tip,
    small_text,
    text_field,
)

_NOTE = "For this one reply. The chat's own options stay as they are."
# The longest model name on a button, in characters.
_NAME_LENGTH = 28
_PROMPT_LINES = 5

type ModelChoice = tuple[str, str | None]
"""The name of a model, and the name by which it is loaded."""


class RegenerateSheet(Sheet):
    """Shows the chat's options; changes hold for the one reply.

    `submitted` has the changed options, and the `OtherModel` to load or None.

    Args:
        own_model: Name of the model that is loaded; empty where there is none.
        models: Returns the others to choose from.
        system_prompt: The chat's system prompt.
        sampling: The chat's sampling.
        theme: The appearance to follow.
        parent: The window that it belongs to.
    """

    submitted = Signal(MadeWith, object)

    def __init__(
        self,
        own_model: str,
        models: Callable[[], Sequence[ModelChoice]],
        system_prompt: str,
        sampling: SamplingParams,
        *,
        theme: Theme,
        parent: QWidget,
    ) -> None:
        self._own = own_model
        self._system_prompt = system_prompt
        self._sampling = sampling
        self._find_models = models
        # The data of each item is its `ModelChoice`; None stands for the loaded model.
        self.model = QComboBox()
        self.model.setAccessibleName("Model")
        self.model.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        if own_model:
            self.model.addItem(own_model)
        self.offer_models()
        self.loading = small_text(theme, "It is loaded first and replaces the present one.")
        self.back = QCheckBox(f"Go back to {button_text(cut(own_model, _NAME_LENGTH))} afterwards")
        set_tip(self.back, own_model)
        self.back.setChecked(True)
        self.temperature = QDoubleSpinBox(maximum=10, singleStep=0.1, value=sampling.temperature)
        self.temperature.setAccessibleName("Temperature")
        self.temperature.setAccessibleDescription("0 always takes the most likely token")
        self.prompt = text_field(_PROMPT_LINES, "None", "System prompt")
        self.prompt.setPlainText(system_prompt)
        form = form_layout()
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        form.addRow("Model", self.model)
        form.addRow("", self.loading)
        form.addRow("", self.back)
        form.addRow("Temperature", self.temperature)
        form.addRow("System prompt", self.prompt)
        answers = ("Cancel", nothing), ("Regenerate", self._submit)
        super().__init__(parent, theme, "Regenerate this reply", _NOTE, answers, parts=(SMALL, form))
        self.regenerate = self.buttons[-1]
        self.model.currentIndexChanged.connect(self._refresh)
        self._refresh()

    def offer_models(self) -> None:
        """Add models that a search found since."""
        known = {self._choice(index) for index in range(self.model.count())}
        for choice in self._find_models():
            if choice not in known:
                self.model.addItem(choice[0], choice)

    def _choice(self, index: int) -> ModelChoice | None:
        data = self.model.itemData(index)
        return tuple(data) if data else None

    def _refresh(self) -> None:
        is_other = self._choice(self.model.currentIndex()) is not None
        self.loading.setVisible(is_other)
        self.back.setVisible(is_other and bool(self._own))
        self.fit()

    def _submit(self) -> None:
        self.temperature.interpretText()
        temperature = round(self.temperature.value(), 4)
        prompt = self.prompt.toPlainText()
        other = self._choice(self.model.currentIndex())
        stays = not (self._own and self.back.isChecked())
        same_temperature = temperature == round(self._sampling.temperature, 4)
        options = MadeWith(
            None if same_temperature else replace(self._sampling, temperature=temperature),
            None if prompt == self._system_prompt else prompt,
        )
        self.submitted.emit(options, None if other is None else OtherModel(other[1], other[0], stays))
