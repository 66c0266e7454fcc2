"""`Drafters` loads the drafters of one target at first use, and keeps them between replies.

There are three kinds: prompt lookup, which needs no files; a drafter head, read from a folder (a model's own MTP layers
are one); and a draft model. `draft_options` says which drafting modes the target can use, and why not the others,
without reading weights. All of it runs on the engine thread.
"""

import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from rdchat.errors import ModelError, OutOfMemoryError, RdchatError
from rdchat.inference.api import (
    DRAFTERS,
    DrafterFit,
    DraftKind,
    DraftOptions,
    DraftSettings,
    LoadProgress,
    Mode,
    ModeOption,
    OnProgress,
)
from rdchat.inference.auto.auto_drafter import AutoDrafter, AutoState, AvailableDrafters
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.device import device_errors
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.checkpoints.drafter_search import (
    DrafterSearch,
    drafter_name,
    mtp_folder,
    resolve_drafter,
    search_drafters,
)
from rdchat.inference.drafting.draft_model import DraftModel, DraftModelDrafter, check_draft_model, load_draft_model
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.ngram_store import NgramStore
from rdchat.inference.models.model_config import read_config, stated_layers, unreadable
from rdchat.inference.models.model_files import TargetBinding, display_name, folder_label
from rdchat.inference.models.stored_facts import stamp_of
from rdchat.inference.verification import LoadedModel

# Instead of a drafter's name: the model's own MTP layers.
MTP_NAME = "mtp"
NO_DRAFT_MODEL = "Choose a smaller model with the same tokenizer."
_LOG = logging.getLogger(__name__)
# How a model that takes no trees checks drafts.
_LIMITS = {
    DraftKind.CHAIN: "one draft at a time.",
    DraftKind.FED_AGAIN: "one draft at a time. After a wrong token it computes the right ones again.",
}


def cannot_verify(model: LoadedModel) -> str:
    """Return why a model cannot verify drafts, as a sentence; empty where it can."""
    capability = model.capability
    if capability.kind is DraftKind.NONE:
        return f"{model.info.name} cannot check drafts: {capability.reason}."
    return ""


def no_drafter(model: LoadedModel) -> str:
    """Return the sentence for a model without a drafter."""
    return f"There is no drafter for {model.info.name} on this machine."


class Drafters:
    """Gives each reply its drafter.

    Args:
        model: The target.
        load_anyway: Whether to load a draft model even if it seems too large for the memory.

    Attributes:
        auto: State of the automatic mode.
        ngrams: The n-gram table, for prompt lookup and Auto.
        max_heads: Number of drafter heads kept in memory; the last used ones stay.
    """

    def __init__(self, model: LoadedModel, load_anyway: bool = False) -> None:
        self._model = model
        self._load_anyway = load_anyway
        # By name; at most one.
        self._draft_models: dict[str, DraftModel] = {}
        # By folder; the last used one comes last.
        self._heads: dict[Path, HeadModel] = {}
        # Drafters that could not be read, by folder: stamp of its files, message and hint of the error.
        self._failures: dict[Path, tuple[str, str, str]] = {}
        # Names of draft models whose vocabulary was compared with the target's, and fits.
        self._fitting_draft_models: set[str] = set()
        self.max_heads = 1
        self.auto = AutoState(model)
        self.ngrams = NgramStore(model.info.path, model.prompts.process)

    def drafter_folder(self, named: str | None) -> Path | None:
        """Return the folder of the named drafter, else of the one made for the target; None without either.

        Raises:
            ModelError: If `named` is a hub id that is not in the hub's cache, or names MTP layers that are not here.
        """
        if named != MTP_NAME:
            return self.own_drafters().folder if named is None else resolve_drafter(named)
        folder = mtp_folder(self._target_hash, self._model.info.path)
        if folder is None:
            reason = self.unused_layers(None) or f"{self._model.info.name} has no MTP layers."
            raise ModelError(reason, "Choose another drafter.")
        return folder

    def unused_layers(self, used: Path | None) -> str:
        """Return why the MTP layers that a model was published with are not used, as a sentence.

        Where the layers are here, the reason is the other drafter that is used; the sentence is empty without one.
        Where they are not here, rdchat cannot use them, or this copy lacks them. It is empty for a model without any.

        Args:
            used: Folder of the drafter that is used; None without one.
        """
        info = self._model.info
        folder = mtp_folder(self._target_hash, info.path)
        if folder is not None:
            other = "" if used is None or used == folder else folder_label(used)
            return other and f"The model's MTP layers are not used: the drafter {other} is."
        if not self._names_layers:
            return ""
        if reason := unreadable(info.architecture):
            return f"{info.name} was published with MTP layers, which rdchat cannot use: {reason}."
        return (
            f"{info.name} was published with MTP layers, which draft for it, but this copy lacks them. "
            f"Get them with `{shlex.join(['rdchat', 'models', 'mtp', info.name])}`."
        )

    @cached_property
    def _names_layers(self) -> bool:
        """Whether the model's configuration says that it was published with MTP layers."""
        try:
            return stated_layers(read_config(self._model.info.path)) > 0
        except ModelError:
            # Its folder was deleted.
            return False

    def own_drafters(self) -> DrafterSearch:
        """Look for the drafter made for the target, each time, since one may be trained while the app is open."""
        return search_drafters(self._target_hash, self._model.info.path)

    @cached_property
    def _target_hash(self) -> str:
        """The hash by which drafters name the target."""
        return TargetBinding.for_model(self._model.info).hash

    def load_drafters(
        self, settings: DraftSettings, on_progress: OnProgress = lambda _: None, *, strict: bool = False
    ) -> AvailableDrafters | str:
        """Load what a mode needs, once.

        Args:
            settings: The mode, and the drafter and the draft model for it.
            on_progress: Called while a draft model loads.
            strict: Whether a drafter or draft model that is missing, damaged or does not fit is an error. Otherwise the
                automatic mode continues without it, and for another mode it is the reason returned.

        Returns:
            What the mode drafts with, for `prepare_job`; or why it cannot run, as a sentence.

        Raises:
            RdchatError: See `strict`; a device that fails is always an error.
        """
        with device_errors("for the drafter"):
            try:
                return self._load(settings, on_progress)
            except RdchatError as error:
                if strict:
                    raise
                if settings.mode is not Mode.AUTO:
                    return str(error)
                _LOG.warning("The automatic mode continues without: %s", error)
                return self.auto.available

    def _load(self, settings: DraftSettings, on_progress: OnProgress) -> AvailableDrafters | str:
        """Load what a mode needs; see `load_drafters`, where `strict` is set."""
        if problem := "" if settings.mode is Mode.OFF else cannot_verify(self._model):
            return problem
        match settings.mode:
            case Mode.AUTO:
                return self._load_all(settings, on_progress)
            case Mode.DRAFTER:
                return self._load_one_head(settings.drafter)
            case Mode.SPECULATIVE:
                if settings.draft_model is None:
                    return NO_DRAFT_MODEL
                return AvailableDrafters(draft_model=self._load_draft_model(settings.draft_model, on_progress))
        return AvailableDrafters()

    def _load_one_head(self, named: str | None) -> AvailableDrafters | str:
        """Load the drafter of the mode with a drafter head; return why there is none, as a sentence."""
        loaded = self._load_head(named)
        if loaded.head is None:
            return " ".join(filter(None, [no_drafter(self._model), self.unused_layers(None)]))
        # Which hidden states MTP layers read may be unclear; the automatic mode measures it while the app is idle.
        head = loaded.head.head
        if isinstance(head, BoundMtpHead) and len(head.readings) > 1:
            self.auto.use_drafters(replace(self.auto.available, head=loaded.head, folder=loaded.folder))
        return loaded

    def prepare_job(self, job: ReplyJob, loaded: AvailableDrafters) -> tuple[ReplyJob, Drafter | None]:
        """Return a reply's job with its drafter, and the drafter; in mode `off` there is none.

        Args:
            job: The job, without a drafter.
            loaded: What `load_drafters` returned for the job's draft settings.
        """
        prompt = job.prompt
        request = job.request
        ledger = job.ledger
        settings = request.draft
        if settings.mode is Mode.OFF:
            return job, None
        self.auto.look_up_costs()
        earlier = request.earlier
        rows_for = partial(self.auto.planner.rows_for, settings.mode)
        earlier_bytes = earlier.memory_bytes if earlier else 0
        job = replace(job, mode=settings.mode, rows_for=rows_for, earlier_bytes=earlier_bytes)
        match settings.mode:
            case Mode.AUTO:
                kind = loaded.head.head.kind if loaded.head else None
                job = replace(job, drafter=_sources(settings, loaded), kind=kind)
                return job, AutoDrafter(self.auto, job, self.ngrams.for_reply)
            case Mode.LOOKUP:
                return replace(job, drafter="prompt lookup"), LookupDrafter(
                    prompt,
                    settings.draft_tokens,
                    ledger,
                    trees=self.auto.trees,
                    earlier=earlier,
                    ngrams=self.ngrams.for_reply(request),
                )
            case Mode.SPECULATIVE:
                draft = loaded.draft_model
                assert draft is not None
                shape_of = partial(self.auto.draft_shape, draft, request.sampling, depth=len(prompt))
                job = replace(job, drafter=str(draft.model.info.path))
                return job, DraftModelDrafter(draft, prompt, request, ledger, shape_of)
            case Mode.DRAFTER:
                head = loaded.head
                assert head is not None
                assert loaded.folder is not None
                job = replace(job, drafter=drafter_name(settings.drafter, loaded.folder), kind=head.head.kind)
                return job, head.drafter(prompt, request, ledger, earlier=earlier)

    def clear_memory(self) -> None:
        """Clear the state of drafters between replies, such as KV caches; a paused reply keeps its own."""
        for draft in self._draft_models.values():
            draft.clear_memory()
        for head in self._heads.values():
            head.clear_memory()

    def _load_all(self, settings: DraftSettings, on_progress: OnProgress) -> AvailableDrafters:
        """Load what the automatic mode can choose from: the drafter head, and the draft model in the settings.

        Raises:
            RdchatError: If one of them cannot be used; the others are loaded nevertheless.
        """
        available = AvailableDrafters()
        errors = list[RdchatError]()
        try:
            available = self._load_head(settings.drafter)
        except RdchatError as error:
            if settings.drafter is not None:
                errors.append(error)
            else:
                _LOG.warning("The model's own drafter cannot be used: %s", error)
        if settings.draft_model is not None:
            try:
                draft_model = self._load_draft_model(settings.draft_model, on_progress)
                available = replace(available, draft_model=draft_model)
            except RdchatError as error:
                errors.append(error)
        self.auto.use_drafters(available)
        if errors:
            raise errors[0]
        return available

    def _load_draft_model(self, name: str, on_progress: OnProgress) -> DraftModel:
        """Return the draft model of a name, loaded in place of another one."""
        if name not in self._draft_models:
            stage = f"Loading the draft model {display_name(name, Path(name))}"
            report = lambda progress: on_progress(LoadProgress(stage, progress.fraction))  # noqa: E731
            draft = load_draft_model(name, self._model, on_progress=report, anyway=self._load_anyway)
            self._draft_models = {name: draft}
        return self._draft_models[name]

    def _load_head(self, named: str | None) -> AvailableDrafters:
        """Return the drafter with its folder; neither where `named` is None and the target has none."""
        folder = self.drafter_folder(named)
        if folder is None:
            return AvailableDrafters()
        # Taken out, it is not dropped below, and comes last afterwards.
        head = self._heads.pop(folder, None)
        # Drafters are dropped before another one is loaded, so that both need not fit.
        while len(self._heads) >= self.max_heads:
            del self._heads[next(iter(self._heads))]
        self._heads[folder] = head or self._read_head(folder)
        return AvailableDrafters(self._heads[folder], folder)

    def _read_head(self, folder: Path) -> HeadModel:
        """Read a drafter; what was wrong with it is remembered until its files change.

        One that does not fit into memory is tried again: its size is known from headers, and closing other apps helps.
        """
        digest = stamp_of(folder).digest
        failed_digest, message, hint = self._failures.get(folder, ("", "", ""))
        if failed_digest == digest:
            raise ModelError(message, hint)
        try:
            return HeadModel(self._model, load_drafter(folder, self._model))
        except OutOfMemoryError:
            raise
        except ModelError as error:
            self._failures[folder] = digest, error.message, error.hint
            raise

    # The possible modes: drafters are checked by their configurations, and draft models by their tokenizers

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        """Return one option for each mode, with the draft model and the drafter that the settings name.

        Args:
            settings: Draft settings.
            drafters: Folders or hub ids of drafters that may fit the target; to check one takes some 3 ms.
        """
        modes = tuple(self._option(mode, settings) for mode in Mode)
        return DraftOptions(self._model.info.path, modes, tuple(map(self._fit, drafters)))

    def _fit(self, drafter: str) -> DrafterFit:
        """Return whether a drafter fits the target."""
        try:
            return DrafterFit(drafter, check_drafter(resolve_drafter(drafter), self._model))
        except (RdchatError, OSError) as error:
            return DrafterFit(drafter, problem=error.message if isinstance(error, RdchatError) else str(error))

    def _option(self, mode: Mode, settings: DraftSettings) -> ModeOption:
        """Return whether the target can use a mode; if it can, the reason says what limits it."""
        problem = "" if mode is Mode.OFF else cannot_verify(self._model)
        if mode is Mode.AUTO:
            limits = [f"{problem} Drafting is off."] if problem else [self._left_out(settings), self._limit()]
            reason = " ".join(filter(None, limits))
            # It is shown which head the automatic mode has.
            drafter = self._option(Mode.DRAFTER, settings)
            return ModeOption(mode, available=True, reason=reason, kind=drafter.kind, match=drafter.match)
        if problem:
            return ModeOption(mode, available=False, reason=problem)
        try:
            if mode is Mode.SPECULATIVE:
                return self._draft_model(settings.draft_model)
            if mode is Mode.DRAFTER:
                return self._drafter(settings.drafter)
            return ModeOption(mode, available=True, reason="" if mode is Mode.OFF else self._limit())
        except RdchatError as error:
            return ModeOption(mode, available=False, reason=str(error))

    def _left_out(self, settings: DraftSettings) -> str:
        """Return sentences on what the automatic mode cannot use; empty if it can use all.

        These are the drafters in the settings, damaged ones that might have been for the target where the settings name
        no head, and the model's MTP layers.
        """
        options = [self._option(mode, settings) for mode in DRAFTERS if settings.named(mode) is not None]
        wrong = [option.reason for option in options if not option.available]
        if settings.drafter is None:
            wrong += self.own_drafters().left_out
        problems = [*wrong, "Auto works without it."] if wrong else []
        return " ".join(filter(None, [*problems, self._layers(settings.drafter)]))

    def _layers(self, named: str | None) -> str:
        """Return a sentence on why the model's MTP layers are not used, or how they are, once loaded; else empty."""
        try:
            folder = self.drafter_folder(named)
        except RdchatError:
            folder = None
        head = self._heads.get(folder) if folder is not None else None
        return self.unused_layers(folder) or (head.head.facts if head is not None else "")

    def _draft_model(self, name: str | None) -> ModeOption:
        """Return the option of the mode with a draft model."""
        if name is None:
            return ModeOption(Mode.SPECULATIVE, available=False, reason=NO_DRAFT_MODEL)
        if name not in self._fitting_draft_models:
            check_draft_model(name, self._model)
            self._fitting_draft_models.add(name)
        return ModeOption(Mode.SPECULATIVE, available=True, reason=self._limit(), source=display_name(name, Path(name)))

    def _drafter(self, named: str | None) -> ModeOption:
        """Return the option of the mode with a drafter head."""
        left_out = self.own_drafters().left_out if named is None else ()
        folder = self.drafter_folder(named)
        if folder is None:
            reason = " ".join(filter(None, [no_drafter(self._model), self._layers(None), *left_out]))
            return ModeOption(Mode.DRAFTER, available=False, reason=reason)
        kind = inspect_drafter(folder)
        match = check_drafter(folder, self._model)
        reason = " ".join(filter(None, [self._limit(), self._layers(named), *left_out]))
        source = drafter_name(named, folder)
        return ModeOption(Mode.DRAFTER, True, reason, source, trees=self.auto.trees, kind=kind, match=match)

    def _limit(self) -> str:
        """Return how the target checks drafts, in sentences; empty if it takes trees."""
        limit = _LIMITS.get(self._model.capability.kind, "")
        return limit and f"{self._model.info.name} checks {limit}"


def _sources(settings: DraftSettings, loaded: AvailableDrafters) -> str:
    """Return the names of what the automatic mode can draft with, for the reply's details."""
    names = list[str]()
    if loaded.folder is not None:
        names.append(drafter_name(settings.drafter, loaded.folder))
    if loaded.draft_model is not None:
        names.append(str(loaded.draft_model.model.info.path))
    return ", ".join([*names, "prompt lookup"])
