"""The sheet that asks how a reply is written again: by which model, and with which options.

`Commands` opens it, and has it offer more models when a search has found them.
"""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QWidget

from rdchat.chat.conversation import MadeWith
from rdchat.inference.api import SamplingParams
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.ui.settings.options_form import COMMON, OptionRow, OptionsForm
from rdchat.ui.style import SMALL, Sheet, Theme, button_text, cut, nothing, set_tip, small_text

_NOTE = "For this one reply. The chat's own options stay as they are."
# The longest model name on a button, in characters.
_NAME_LENGTH = 28
# Least width of the list of models, in letters.
_LETTERS = 24

type ModelChoice = tuple[str, str | None]
"""The name of a model, and the name by which it is loaded."""


class RegenerateSheet(Sheet):
    """Shows the chat's options before a reply is written again; changes hold for that reply only.

    Args:
        own_model: Name of the model that is loaded; empty where there is none.
        models: Returns the others to choose from.
        system_prompt: The chat's system prompt.
        sampling: The chat's sampling.
        theme: The appearance to follow.
        parent: The window that it belongs to.

    Attributes:
        submitted: Emitted with the options that were changed, and the `OtherModel` to load first, or None.
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
        self._own_model = own_model
        self._models = models
        # The models in the list; None stands for the loaded one.
        self._choices: list[ModelChoice | None] = []
        self.model = QComboBox(minimumContentsLength=_LETTERS)
        self.model.setAccessibleName("Model")
        self.model.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        if own_model:
            self._choices.append(None)
            self.model.addItem(own_model)
        self.offer_models()
        self.loading = small_text(theme, "It is loaded first and replaces the present one.")
        self.back = QCheckBox(f"Go back to {button_text(cut(own_model, _NAME_LENGTH))} afterwards")
        set_tip(self.back, own_model)
        self.back.setChecked(True)
        self.options = OptionsForm(theme)
        self.options.show_options(system_prompt, sampling, None)
        self.options.more.hide()
        self._system_prompt = system_prompt
        self._sampling = self.options.sampling()
        answers = ("Cancel", nothing), ("Regenerate", self._submit)
        parts = SMALL, OptionRow(theme, "Model", self.model), self.loading, self.back, self.options
        super().__init__(parent, theme, "Regenerate this reply", _NOTE, answers, parts=parts)
        self.model.currentIndexChanged.connect(self._refresh)
        self._refresh()

    def offer_models(self) -> None:
        """Add the models that are known now and were not before."""
        for choice in self._models():
            if choice not in self._choices:
                self._choices.append(choice)
                self.model.addItem(choice[0])

    @property
    def _choice(self) -> ModelChoice | None:
        """The chosen model; None for the loaded one."""
        return self._choices[self.model.currentIndex()]

    def _refresh(self) -> None:
        """Show what loading another model means; without a loaded one there is none to go back to."""
        is_other = self._choice is not None
        self.loading.setVisible(is_other)
        self.back.setVisible(is_other and bool(self._own_model))
        self.fit()

    def _submit(self) -> None:
        """Emit the options that differ from the usual ones, and the other model if one is chosen."""
        self.options.fields[COMMON].interpretText()
        sampling = self.options.sampling()
        prompt = self.options.prompt.toPlainText()
        other = self._choice
        stays = not (self._own_model and self.back.isChecked())
        options = MadeWith(
            None if sampling == self._sampling else sampling,
            None if prompt == self._system_prompt else prompt,
        )
        self.submitted.emit(options, None if other is None else OtherModel(other[1], other[0], stays))
