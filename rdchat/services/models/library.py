"""The models on this machine, the drafters for a chosen one, and what the hub has for it.

`Library` is about this machine. `HubDrafters` and `PartSearch` ask the hub, for drafters and for the parts that a copy
of a model lacks. All live on the main thread, and search on threads of their own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.files import opened
from rdchat.hub import HubModel, RepositoryFiles, Tokens, find_published
from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.inference.api import DraftSettings, Mode, ModelCard, ModelPart
from rdchat.services.background_work import FolderSearch
from rdchat.services.models.downloads import Downloads
from rdchat.services.models.draft_advice import DraftAction, DraftAdvice, draft_advice, draft_models
from rdchat.services.models.fit import Model
from rdchat.services.models.model_sources import Find, ModelSources
from rdchat.services.models.threaded_service import ModelService
from rdchat.services.window.chat_controller import ChatController
from rdchat.work import Job

# The card in the folder of a drafter that was trained here has a table, whose rows begin with a setup, the number of
# prompts, and the tokens per target call: `| W4 L5 + lookup | 24 | 2.31 |`.
_CARD = "card.md"
_MAX_BYTES = 200_000
_ROW = re.compile(r"\| (W\d+ L\d+(?: \+ lookup)?) \| \d+ \| (\d+\.\d+) \|")


class Library(ModelService):
    """The models on this machine, the drafters that fit them, and how the loaded one drafts.

    The models window shows the details of the chosen one: the loaded one, unless the person chose another.

    Args:
        sources: Read models.
        controller: Knows the loaded model, its drafters and the one in use. Its settings have the person's own folder,
            and the drafters of other models.
        parent: The Qt parent.

    Attributes:
        drafters_listed: Emitted with a matched model, and the heads that fit it.
        chosen: The model whose drafters are shown; None while none is chosen or loaded.
    """

    drafters_listed = Signal(ModelCard, tuple)
    drafters_changed = Signal()
    race_requested = Signal(DraftSettings)

    def __init__(self, sources: ModelSources, controller: ChatController, parent: QObject | None = None) -> None:
        super().__init__(parent=parent)
        slot = controller.model_slot
        drafting = controller.drafting
        self._sources = sources
        self._slot = slot
        self._settings = controller.settings
        self._drafting = drafting
        # Returns tokens a second of the loaded model without drafting; None before there was a reply.
        self.pace = controller.plain_pace
        self._search = FolderSearch(lambda chosen: tuple(sources.models(chosen)), self)
        self._search.changed.connect(self.changed)
        # For one model: its `results` are three things, the model, the heads that fit it, and the measured time of its
        # calls by rows, in plain steps.
        self._heads = FolderSearch(self._fitting_heads, self)
        self._heads.changed.connect(self._on_heads)
        # The chosen model, if that is not the loaded one.
        self._other: ModelCard | None = None
        slot.loaded.connect(self._on_loaded)
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unloaded):
            happened.connect(self._on_model)
        for changed in (drafting.changed, self.changed, self._heads.changed):
            changed.connect(self.drafters_changed)

    # The models on this machine

    @property
    def models(self) -> tuple[ModelCard, ...]:
        """The models found last."""
        return self._search.results

    @property
    def problem(self) -> str:
        """Why the last search failed, a sentence; empty if it did not."""
        return self._search.problem

    @property
    def looked(self) -> bool:
        """Whether a search has ended."""
        return self._search.looked

    def search_again(self) -> None:
        """Search again; emits `changed` if the list differs. A search that is running is followed by another one."""
        self._search.search_folders(self._settings.values.models_folder)

    def look_for_all(self) -> None:
        """Search again for models and drafters."""
        self.search_again()
        self._drafting.look_for_drafters()
        self._look_again()

    def hide_model(self, model: ModelCard) -> None:
        """Take a model off the list at once, before it is looked for again."""
        self._search.results = tuple(other for other in self.models if other != model)
        self.changed.emit()

    def is_loaded(self, model: ModelCard) -> bool:
        """Return whether a model is the one that answers."""
        info = self._slot.info
        return info is not None and model.can_be_loaded and info.path == model.path

    def is_loading(self, model: ModelCard) -> bool:
        """Return whether a model is being loaded. The default model has no name: "" in a card, None in the slot."""
        return self._slot.loading and model.can_be_loaded and self._slot.chosen == (model.model or None)

    def is_in_use(self, model: ModelCard) -> bool:
        """Return whether a model is loaded or being loaded."""
        return self.is_loaded(model) or self.is_loading(model)

    def _on_loaded(self) -> None:
        """Search again after a load, since it is known now what the model verifies."""
        if self.looked:
            self.search_again()

    # The heads that fit one of them, and advice on drafting with it

    def match(self, model: ModelCard) -> None:
        """Find the drafter heads that fit a model; `drafters_listed` follows, or not if another model is matched.

        For the model that was matched last it is emitted at once, and again if other heads are found now.
        """
        if self._heads.results[:1] == (model,):
            self._on_heads()
        self._heads.search_folders(model)

    def _fitting_heads(self, model: ModelCard) -> tuple[ModelCard, tuple[ModelCard, ...], Mapping[int, float]] | None:
        """Find what `_heads` has; on its thread."""
        heads = self._sources.drafters(model.path)
        return None if heads is None else (model, heads, self._sources.calls(model.path) or {})

    def _on_heads(self) -> None:
        """Emit the heads, without those that the loaded model turned out not to take.

        Nothing is emitted without a result: where the first search failed, its end is a change too.
        """
        if not self._heads.results:
            return
        model, heads, _ = self._heads.results
        unfit = {each.model for each in self._drafting.drafters if each.problem} if self.is_loaded(model) else set()
        self.drafters_listed.emit(model, tuple(head for head in heads if head.model not in unfit))

    def advice(self, model: ModelCard, heads: Sequence[ModelCard], published: Sequence[HubModel] | None) -> DraftAdvice:
        """Return what would make a model faster, after `drafters_listed` for it; see `draft_advice`."""
        loaded = self.is_loaded(model)
        used = self.settings.draft_model or self.settings.drafter if loaded else None
        smaller = draft_models(model, self.models)
        advice = draft_advice(model, self._heads.results[2], heads, smaller, published, used=used)
        if advice.action is DraftAction.USE and not loaded:
            return replace(advice, text=f"{advice.text} Load the model to use it.", action=DraftAction.NONE)
        return advice

    # The chosen model: the loaded one, unless the person chose another to see its drafters

    @property
    def chosen(self) -> ModelCard | None:
        return self._other or self.loaded

    @property
    def loaded(self) -> ModelCard | None:
        """The model that answers, if this computer runs it."""
        info = self._slot.info
        if info is None or info.server:
            return None
        weights = info.weights_bytes
        return ModelCard(info.name, self._slot.chosen or "", "", info.path, weights_bytes=weights, is_loaded=True)

    @property
    def dtype(self) -> str:
        """The precision that the loaded model was asked for in."""
        return self._slot.dtype.value

    def choose_model(self, model: ModelCard | None) -> None:
        """Show the drafters of another model; None shows the loaded one's."""
        self._other = None if model is None or self._is_loaded_by_name(model) else model
        self._look_again()
        self.drafters_changed.emit()

    def _look_again(self) -> None:
        """Search for the drafters of a chosen model that is not loaded."""
        if self._other is not None:
            self._heads.search_folders(self._other)

    def _is_loaded_by_name(self, model: ModelCard) -> bool:
        """Return whether a model is the one that answers, by its name or by its folder.

        A model that is being loaded counts too, which `is_loaded` does not see.
        """
        info = self._slot.info
        return info is not None and (
            model.model in {self._slot.chosen, info.name, str(info.path)} or self.is_loaded(model)
        )

    def _on_model(self) -> None:
        """Follow the slot: a chosen model that is loaded now is no longer another one than the loaded one."""
        if self._other is not None and self._is_loaded_by_name(self._other):
            self._other = None
        # Its drafters are unknown until the engine has started.
        self._look_again()
        self.drafters_changed.emit()

    # Its drafters

    @property
    def fitting(self) -> tuple[ModelCard, ...]:
        """The drafters that may draft for the chosen model."""
        if self._other is not None:
            folder = self._other.path
            heads = self._heads.results[1] if self._heads.results and self._heads.results[0].path == folder else ()
            return tuple(each for each in heads if each.path != folder)
        return tuple(each for each in self._drafting.drafters if not each.problem)

    @property
    def unfit(self) -> tuple[ModelCard, ...]:
        """The drafters that cannot draft for the loaded model, each with its problem."""
        return () if self._other is not None else tuple(each for each in self._drafting.drafters if each.problem)

    @property
    def here(self) -> frozenset[str]:
        """Names of the drafters and models on this machine."""
        models = [each.model for each in self.models if each.can_be_loaded]
        return frozenset([each.model for each in self._drafting.drafters] + models)

    def problem_of(self, model: Model) -> str:
        """Return why the loaded model cannot use a drafter head; empty where it may."""
        unfit = () if model.is_smaller_model else self.unfit
        return next((each.problem for each in unfit if each.model == model.id), "")

    # How the loaded model drafts, and others would

    @property
    def settings(self) -> DraftSettings:
        """How the loaded model drafts now; not `_settings`, which are the app's."""
        return self._drafting.settings

    def use(self, drafter: str, *, is_model: bool = False) -> None:
        """Make the loaded model draft with a drafter head, or with a smaller model."""
        settings = self._settings_with(drafter, is_model)
        # `settings` has the mode that always uses this kind of drafter; if that is the present mode, it stays, and any
        # other becomes the automatic one, which uses the drafter where that is faster.
        mode = settings.mode if settings.mode is self.settings.mode else Mode.AUTO
        self._drafting.change(replace(settings, mode=mode))

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
        # A model without settings of its own takes the newest drafter that was made for it.
        changed_drafts = tuple(
            replace(each, draft=replace(each.draft, drafter=drafter)) if each.model == model else each
            for each in settings.drafts
        )
        if changed_drafts != settings.drafts:
            self._settings.change(replace(settings, drafts=changed_drafts))

    def uses(self, model: Model) -> bool:
        """Return whether the loaded model drafts with what is here or offered: a drafter head or a smaller model."""
        if model.card is not None:
            return self.is_used(model.card)
        return model.id == (self.settings.draft_model if model.is_smaller_model else self.settings.drafter)

    def is_used(self, model: ModelCard) -> bool:
        """Return whether the loaded model drafts with a drafter: the chosen one, else the one made for the model."""
        used = self.settings.drafter
        option = self._drafting.option(Mode.DRAFTER)
        if used is None and option is not None and option.available:
            used = option.source
        return model.is_drafter and used in {model.model, str(model.path)}

    def targets_of(self, drafter: ModelCard) -> list[str]:
        """Return the names of the models that a model or a drafter was chosen to draft for."""
        own = {drafter.model, str(drafter.path)} - {""}
        targets = []
        for each in self._settings.values.drafts:
            used = each.draft.drafter if drafter.is_drafter else each.draft.draft_model
            if used in own:
                targets.append(each.model.rpartition("/")[2])
        return targets

    def let_go(self, model: ModelCard) -> None:
        """Stop drafting with a drafter or a smaller model that is about to be deleted."""
        deleted = {model.model, str(model.path)}
        drafter = None if self.settings.drafter in deleted else self.settings.drafter
        draft_model = None if self.settings.draft_model in deleted else self.settings.draft_model
        self._drafting.change(replace(self.settings, drafter=drafter, draft_model=draft_model))


@cache
def figures_of(drafter: str) -> dict[str, float]:
    """Return tokens per target call by setup, such as `W4 L5`, as the card in a trained drafter's folder gives them.

    They were measured at the end of the training, on questions that it did not see.
    """
    if not Path(drafter).is_absolute():
        # A hub id has no folder here.
        return {}
    try:
        with opened(Path(drafter) / _CARD) as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return {}
    return {row[1]: float(row[2]) for row in _ROW.finditer(text)}


class HubDrafters(ModelService):
    """Searches the hub for drafters of one model at a time; asks nothing before `search_hub`.

    Attributes:
        model: The model that was searched for last; empty before that.
        searching: Whether the hub is being asked.
        results: The drafters found so far.
        problem: Why the hub could not be asked, and what to do about it.
    """

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._set()

    def search_hub(self, model: str, folder: Path) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self._work.replace(
            lambda job: self._ask(job, model, folder),
            lambda _: self._set(self.model, self.results),
            failed=lambda error: self._set(self.model, self.results, problem=str(error)),
            on_progress=lambda results: self._set(model, results, searching=True),
        )
        self._set(model, searching=True)

    def forget_results(self) -> None:
        """Stop, and forget the results: they were for another model."""
        self._work.drop_jobs()
        self._set()

    def _ask(self, job: Job[None], model: str, folder: Path) -> None:
        """Ask the hub; not on the main thread."""
        for results in find_published(self._hub(), model, folder):
            job.report_progress(results)

    def _set(
        self, model: str = "", results: tuple[HubModel, ...] = (), *, searching: bool = False, problem: str = ""
    ) -> None:
        self.model = model
        self.results = results
        self.searching = searching
        self.problem = problem
        self.changed.emit()


class PartSearch(ModelService):
    """Finds at the hub the part that a model lacks, one model at a time; asks nothing before `ask_hub`.

    Args:
        tokens: The person's tokens.
        find: Finds what a model lacks; called on a thread.
        downloads: Starts the download.
        parent: The Qt parent.

    Attributes:
        searching: Whether the hub is being asked.
        plan: What was found; None until then.
        problem: Why nothing was found, or the download of the plan cannot begin. Where the search has ended without a
            plan and without a problem, the original is unknown, and the person must name it.
        started: Emitted when the plan's download was started.
    """

    started = Signal()

    def __init__(self, tokens: Tokens, find: Find, downloads: Downloads, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._find = find
        self._downloads = downloads
        self._set()

    def ask_hub(self, model: ModelCard, original: str = "", part: ModelPart = ModelPart.MTP) -> None:
        """Ask the hub; `changed` follows.

        Args:
            model: The model that lacks the part.
            original: The hub id of its original; empty to find it.
            part: The part.
        """
        self._set(searching=True)
        self._work.replace(
            lambda _job: self._find(self._hub(), model, original, part),
            self._set,
            lambda error: self._set(None, error),
        )

    def forget_results(self) -> None:
        """Stop, and forget what was found."""
        self._work.drop_jobs()
        self._set()

    def start_download(self) -> None:
        """Start the download of what was found; `started` or `changed` follows."""
        if (plan := self.plan) is not None:
            self._work.replace(lambda _job: begin_drafter(plan), self._start, lambda error: self._set(plan, error))

    def _start(self, download: Download) -> None:
        self._downloads.start_download(download)
        self.started.emit()

    def _set(
        self, plan: RepositoryFiles | None = None, problem: RdchatError | None = None, *, searching: bool = False
    ) -> None:
        self.plan = plan
        self.problem = problem
        self.searching = searching
        self.changed.emit()
