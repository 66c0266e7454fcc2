"""The drafters on this machine for a chosen model: lists them, and makes the loaded model use one."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.installed.library import Library
from rdchat.services.models.model import Model
from rdchat.services.models.model_service import ModelService

_CARD = "card.md"
_MAX_BYTES = 200_000
_ROW = re.compile(r"\| (W\d+ L\d+(?: \+ lookup)?) \| \d+ \| (\d+\.\d+) \|")


class DrafterShelf(ModelService):
    """Lists the drafters of one model.

    Args:
        slot: The loaded model.
        drafting: Its drafters, and the one in use.
        settings: The drafters of other models.
        library: The models on this machine.
        find: Returns the drafters that fit the model in a folder; may read files. None before the engine has started.
        parent: The Qt parent.

    Attributes:
        chosen: The model whose drafters are shown; None while none is chosen or loaded.
    """

    race_requested = Signal(DraftSettings)

    def __init__(
        self,
        slot: ModelSlot,
        drafting: DraftControl,
        settings: SettingsControl,
        library: Library,
        find: Callable[[Path], tuple[ModelCard, ...] | None],
        *,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent=parent)
        self._slot, self._drafting, self._settings, self._library = slot, drafting, settings, library
        self._matches = FolderSearch(find, self)
        self._other: ModelCard | None = None  # chosen though it is not loaded
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unloaded):
            happened.connect(self._on_model)
        drafting.changed.connect(self.changed)
        library.changed.connect(self.changed)
        self._matches.changed.connect(self.changed)

    def look(self) -> None:
        """Search this machine again."""
        self._library.look()
        self._drafting.look_for_drafters()
        self._look_for_chosen()

    def _look_for_chosen(self) -> None:
        if self._other is not None:
            self._matches.look(self._other.path)

    @property
    def loaded(self) -> ModelCard | None:
        """The model that answers."""
        info = self._slot.info
        if info is None:
            return None
        weights = info.weights_bytes
        return ModelCard(info.name, self._slot.chosen or "", "", info.path, weights_bytes=weights, is_loaded=True)

    @property
    def chosen(self) -> ModelCard | None:
        return self._other or self.loaded

    @property
    def dtype(self) -> str:
        """The precision that the loaded model was asked for in."""
        return self._slot.dtype.value

    @property
    def others(self) -> tuple[ModelCard, ...]:
        """Installed models that are not the loaded one."""
        return tuple(each for each in self._library.models if each.can_be_loaded and not self._is_loaded(each))

    def choose(self, model: ModelCard | None) -> None:
        """Show the drafters of another model; None shows the loaded one's."""
        self._other = None
        if model is not None and not self._is_loaded(model):
            self._other = model
            self._look_for_chosen()
        self.changed.emit()

    def load_chosen(self) -> None:
        """Load the chosen model."""
        if self._other is not None:
            self._slot.load(self._other.model or None)

    @property
    def fitting(self) -> tuple[ModelCard, ...]:
        """The drafters that may draft for the chosen model."""
        if self._other is not None:
            folder = self._other.path
            return tuple(each for each in self._matches.results if each.fits_surely and each.path != folder)
        return tuple(each for each in self._drafting.drafters if not each.problem)

    @property
    def unfit(self) -> tuple[ModelCard, ...]:
        """The drafters that cannot draft for the loaded model, each with its problem."""
        return () if self._other is not None else tuple(each for each in self._drafting.drafters if each.problem)

    @property
    def here(self) -> frozenset[str]:
        """Names of the drafters and models on this machine."""
        models = [each.model for each in self._library.models if each.can_be_loaded]
        return frozenset([each.model for each in self._drafting.drafters] + models)

    def problem_of(self, model: Model) -> str:
        """Return why the loaded model cannot use a drafter head; empty where it may."""
        unfit = () if model.is_smaller_model else self.unfit
        return next((each.problem for each in unfit if each.model == model.id), "")

    def use(self, drafter: str, *, is_model: bool = False) -> None:
        """Make the loaded model draft with a drafter head, or with a smaller model."""
        changed_settings = self._settings_with(drafter, is_model)
        keeps = self.settings.mode in {Mode.AUTO, changed_settings.mode}
        self._drafting.change(replace(changed_settings, mode=self.settings.mode if keeps else Mode.AUTO))

    def race(self, drafter: str, *, is_model: bool = False) -> None:
        """Ask for a race with a drafter head, or with a smaller model."""
        self.race_requested.emit(self._settings_with(drafter, is_model))

    def _settings_with(self, drafter: str, is_model: bool) -> DraftSettings:
        if is_model:
            return replace(self.settings, mode=Mode.SPECULATIVE, draft_model=drafter)
        return replace(self.settings, mode=Mode.DRAFTER, drafter=drafter)

    def prefer(self, drafter: str, model: str) -> None:
        """Make a model that is not loaded use a drafter the next time; `model` is its folder."""
        settings = self._settings.values
        changed_drafts = tuple(
            replace(each, draft=replace(each.draft, drafter=drafter)) if each.model == model else each
            for each in settings.drafts
        )  # one without settings of its own takes the newest that was made for it
        if changed_drafts != settings.drafts:
            self._settings.change(replace(settings, drafts=changed_drafts))

    @property
    def settings(self) -> DraftSettings:
        """How the loaded model drafts now."""
        return self._drafting.settings

    def uses(self, model: Model) -> bool:
        """Return whether the loaded model drafts with a drafter head, or with a smaller model."""
        if model.card is not None:
            return self.is_used(model.card)
        return model.id == (self.settings.draft_model if model.is_smaller_model else self.settings.drafter)

    def is_used(self, model: ModelCard) -> bool:
        """Return whether the loaded model drafts with a drafter: the chosen one, else the one made for the model."""
        used, option = self._drafting.settings.drafter, self._drafting.option(Mode.DRAFTER)
        if used is None and option is not None and option.available:
            used = option.source
        return model.is_drafter and used in {model.model, str(model.path)}

    def figures_of(self, drafter: ModelCard) -> dict[str, float]:
        """Return tokens per target call by setup, such as `W4 L5`, as a trained drafter's card gives them.

        They were measured at the end of the training, on questions that it did not see.
        """
        return _figures_on_card(Path(drafter.model)) if Path(drafter.model).is_absolute() else {}

    def let_go(self, model: ModelCard) -> None:
        """Stop using a drafter that is about to be deleted."""
        if self._drafting.settings.drafter in {model.model, str(model.path)}:
            self._drafting.change(replace(self._drafting.settings, drafter=None))

    def _is_loaded(self, model: ModelCard) -> bool:
        info = self._slot.info
        chosen = info is not None and model.model in {self._slot.chosen, info.name, str(info.path)}
        return chosen or self._library.is_loaded(model)

    def _on_model(self) -> None:
        if self._other is not None and self._is_loaded(self._other):
            self._other = None
        self._look_for_chosen()  # its drafters are unknown until the engine has started
        self.changed.emit()


@cache
def _figures_on_card(folder: Path) -> dict[str, float]:
    try:
        with (folder / _CARD).open(encoding="utf-8") as file:
            text = file.read(_MAX_BYTES)
    except (OSError, ValueError):
        return {}
    return {row[1]: float(row[2]) for row in _ROW.finditer(text)}
