"""The list of models on this machine, searched on a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.installed.draft_advice import DraftAction, DraftAdvice, Drafts, draft_advice, draft_models
from rdchat.services.models.model_service import ModelService
from rdchat.services.models.sources import ModelSources


class Library(ModelService):
    """The list of models, and the drafters that fit one.

    Args:
        sources: Read models.
        slot: Knows the loaded model.
        settings: Have the person's own folder.
        parent: The Qt parent.
    """

    drafters_listed = Signal(ModelCard, tuple)  # a model, and the heads that fit it

    def __init__(
        self, sources: ModelSources, slot: ModelSlot, settings: SettingsControl, parent: QObject | None = None
    ) -> None:
        super().__init__(parent=parent)
        self._sources, self._slot, self._settings = sources, slot, settings
        self._search = FolderSearch(lambda chosen: (tuple(sources.models(chosen)),), self)  # for a tuple of models
        self._search.changed.connect(self.changed)
        # A model, the heads that fit it, and the measured time of its calls by rows, in plain steps.
        self._heads = FolderSearch(self._fitting_heads, self)
        self._heads.changed.connect(self._on_heads)
        slot.loaded.connect(self._on_loaded)

    @property
    def models(self) -> tuple[ModelCard, ...]:
        """The models found last."""
        return self._search.results[0] if self._search.results else ()

    @property
    def problem(self) -> str:
        """Why the last search failed, a sentence; empty if it did not."""
        return self._search.problem

    @property
    def looked(self) -> bool:
        """Whether a search has ended."""
        return bool(self._search.results or self.problem)

    def look(self) -> None:
        """Search again; emits `changed` if the list differs. A search that is running is followed by another one."""
        self._search.look(self._settings.values.models_folder)

    def match(self, model: ModelCard) -> None:
        """Find the drafter heads that fit a model; `drafters_listed` follows, or not if another model is matched."""
        if self._heads.results and self._heads.results[0] == model:
            self._on_heads()
        self._heads.look(model)

    def _fitting_heads(self, model: ModelCard) -> tuple[ModelCard, tuple[ModelCard, ...], Mapping[int, float]] | None:
        heads = self._sources.drafters(model.path)
        return None if heads is None else (model, heads, self._sources.calls(model.path) or {})

    def _on_heads(self) -> None:
        self.drafters_listed.emit(*self._heads.results[:2])

    def advice(
        self, model: ModelCard, heads: Sequence[ModelCard], published: Sequence[HubModel] | None, used: str | None
    ) -> DraftAdvice:
        """Return what would make the matched model faster; see `Drafts`."""
        drafts = Drafts(heads, self.draft_models(model), published, used)
        advice = draft_advice(model, drafts, self._heads.results[2])
        if advice.action is DraftAction.USE and not self.is_loaded(model):
            return replace(advice, text=f"{advice.text} Load the model to use it.", action=DraftAction.NONE)
        return advice

    def draft_models(self, model: ModelCard) -> list[ModelCard]:
        """Return smaller models that know the same tokens, the smallest first."""
        return draft_models(model, self.models)

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
        """Return whether a model is the one that answers; a GGUF file answers as the folder it was converted into."""
        info = self._slot.info
        if info is None or not model.can_be_loaded:
            return False
        return info.path == model.path or (model.is_gguf and self._slot.chosen == model.model)

    def is_loading(self, model: ModelCard) -> bool:
        """Return whether a model is being loaded."""
        return self._slot.loading and model.can_be_loaded and self._slot.chosen == (model.model or None)

    def is_in_use(self, model: ModelCard) -> bool:
        """Return whether a model is loaded or being loaded."""
        return self.is_loaded(model) or self.is_loading(model)

    def forget(self, model: ModelCard) -> None:
        """Take a model off the list at once, before it is looked for again."""
        self._search.results = (tuple(other for other in self.models if other != model),)
        self.changed.emit()

    def _on_loaded(self) -> None:
        """Search again after a load, since it is known now what the model verifies."""
        if self.looked:
            self.look()
