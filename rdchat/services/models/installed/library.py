"""The list of models on this machine, searched on a thread."""

import time
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.background.background_work import BackgroundWork, FolderSearch
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.sources import ModelSources

_BATCH_S = 0.25  # between two reports of the models found so far
_BREATH_S = 0.002  # pause after each model, in which the window gets Python's lock
_SMALLER = 0.7  # most parameters of a draft model, as a share of the target's


class Library(QObject):
    """The list of models, and the drafters that fit one. Lives on the main thread.

    Args:
        sources: Read models.
        slot: Knows the loaded model.
        preferences: Have the person's own folder.
        parent: The Qt parent.

    Attributes:
        models: The models found last.
        looked: Whether a search has ended.
        problem: Why the last search failed, a sentence; empty if it did not.
    """

    changed = Signal()
    drafters_found = Signal(ModelCard, tuple)

    def __init__(
        self, sources: ModelSources, slot: ModelSlot, preferences: SettingsControl, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._sources, self._slot, self._preferences = sources, slot, preferences
        self.models: tuple[ModelCard, ...] = ()
        self.problem = ""
        self.looked = self._again = False
        self._search = BackgroundWork("library", self)
        self._heads = FolderSearch(self._fitting_heads, self)  # a model, and the heads that fit it
        self._heads.changed.connect(self._on_heads)
        slot.loaded.connect(self._on_loaded)

    @property
    def looking(self) -> bool:
        """Whether models are being looked for."""
        return self._search.busy

    def look(self) -> None:
        """Search again; emits `changed` if the list differs. A search that is running is followed by another one."""
        if self._search.busy:
            self._again = True
            return
        self._again = False
        find, chosen = self._sources.models, self._preferences.settings.models_folder
        self._search.replace(
            lambda job: _gathered(find, chosen, job.tell), self._take_all, failed=self._on_failed, told=self._take_some
        )

    def match(self, model: ModelCard) -> None:
        """Find the drafter heads that fit a model; `drafters_found` follows, or not if another model is matched."""
        if self._heads.found and self._heads.found[0] == model:
            self._on_heads()
        self._heads.look(model)

    def _fitting_heads(self, model: ModelCard) -> tuple[ModelCard, tuple[ModelCard, ...]] | None:
        heads = self._sources.drafters(model.path)
        return None if heads is None else (model, heads)

    def _on_heads(self) -> None:
        self.drafters_found.emit(*self._heads.found)

    def draft_models(self, model: ModelCard) -> list[ModelCard]:
        """Return smaller models that know the same tokens, the smallest first."""
        sizes = model.sizes
        if sizes is None or not model.tokens:
            return []
        found = [
            other
            for other in self.models
            if other.tokens == model.tokens
            and other.can_be_loaded
            and other.sizes is not None
            and other.sizes.parameters < _SMALLER * sizes.parameters
        ]
        return sorted(found, key=lambda other: other.sizes.parameters if other.sizes else 0)

    def fitting(
        self, model: ModelCard, heads: tuple[ModelCard, ...], tried: tuple[ModelCard, ...]
    ) -> tuple[ModelCard, ...]:
        """Leave out the heads that do not fit the loaded model.

        Args:
            model: The model.
            heads: The heads that fit it by their files.
            tried: The drafters that the engine tried on the loaded model.
        """
        if not self.is_loaded(model):
            return heads
        unfit = {drafter.model for drafter in tried if drafter.problem}
        return tuple(head for head in heads if head.model not in unfit)

    def is_loaded(self, model: ModelCard) -> bool:
        """Tell whether a model is the one that answers; a GGUF file answers as the folder it was converted into."""
        info = self._slot.info
        if info is None or not model.can_be_loaded:
            return False
        return info.path == model.path or (model.is_gguf and self._slot.chosen == model.model)

    def is_loading(self, model: ModelCard) -> bool:
        """Tell whether a model is being loaded."""
        return self._slot.loading and model.can_be_loaded and self._slot.chosen == (model.model or None)

    def is_in_use(self, model: ModelCard) -> bool:
        """Tell whether a model is loaded or being loaded."""
        return self.is_loaded(model) or self.is_loading(model)

    def forget(self, model: ModelCard) -> None:
        """Take a model off the list at once, before it is looked for again."""
        self._show(tuple(other for other in self.models if other != model))

    def close(self) -> None:
        """End the work."""
        self._search.close()
        self._heads.close()

    def _show(self, models: tuple[ModelCard, ...]) -> None:
        if models != self.models:
            self.models = models
            self.changed.emit()

    def _take_some(self, models: tuple[ModelCard, ...]) -> None:
        if not self.looked:
            self._show(models)

    def _take_all(self, models: tuple[ModelCard, ...]) -> None:
        changed = models != self.models or not self.looked  # that there are none is news the first time
        self.models, self.looked, self.problem = models, True, ""
        if changed:
            self.changed.emit()
        if self._again:
            self.look()

    def _on_failed(self, error: RdchatError) -> None:
        self.looked, self.problem = True, str(error)
        self.changed.emit()

    def _on_loaded(self) -> None:
        """Search again after a load, since it is known now what the model verifies."""
        if self.looked:
            self.look()


def _gathered(
    find: Callable[[str], Iterable[ModelCard]], chosen: str, report: Callable[[object], None]
) -> tuple[ModelCard, ...]:
    """Return all models that `find` yields, and report those found so far several times a second."""
    found: list[ModelCard] = []
    reported = time.monotonic()
    for model in find(chosen):
        found.append(model)
        time.sleep(_BREATH_S)
        if time.monotonic() - reported > _BATCH_S:
            report(tuple(found))
            reported = time.monotonic()
    return tuple(found)
