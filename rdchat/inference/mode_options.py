"""Finds which drafting modes a loaded model can use, and why not the others, without reading weights."""

from collections.abc import Sequence
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.model_facts import DrafterFit, DraftKind
from rdchat.inference.api.requests import DRAFTERS, DraftSettings, Mode
from rdchat.inference.drafters import NO_DRAFT_MODEL, Drafters, cannot_verify, no_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import drafter_name, resolve_drafter
from rdchat.inference.drafting.draft_model import check_draft_model
from rdchat.inference.models.model_files import display_name
from rdchat.inference.verification.target import LoadedModel

# How a model that takes no trees checks drafts.
_LIMITS = {
    DraftKind.CHAIN: "one draft at a time.",
    DraftKind.FED_AGAIN: "one draft at a time. After a wrong token it computes the right ones again.",
}


class ModeOptions:
    """Checks drafters and draft models as `rdchat models check-pair` does, by tokenizers and configurations.

    Args:
        model: The target.
        drafters: The target's drafters.
    """

    def __init__(self, model: LoadedModel, drafters: Drafters) -> None:
        self._model = model
        self._drafters = drafters
        # Draft models that have the same tokenizer.
        self._pairs: set[str] = set()

    def all(self, settings: DraftSettings) -> tuple[ModeOption, ...]:
        """Return one option for each mode, with the draft model and the drafter that the settings name."""
        return tuple(self._option(mode, settings) for mode in Mode)

    def fits(self, drafters: Sequence[str]) -> tuple[DrafterFit, ...]:
        """Return whether drafters, folders or hub ids, fit the target; each takes some 3 ms."""
        return tuple(map(self._fit, drafters))

    def _fit(self, drafter: str) -> DrafterFit:
        try:
            return DrafterFit(drafter, check_drafter(resolve_drafter(drafter), self._model))
        except (RdchatError, OSError) as error:
            return DrafterFit(drafter, problem=error.message if isinstance(error, RdchatError) else str(error))

    def _option(self, mode: Mode, settings: DraftSettings) -> ModeOption:
        problem = "" if mode is Mode.OFF else cannot_verify(self._model)
        if mode is Mode.AUTO:
            reason = f"{problem} Drafting is off." if problem else f"{self._left_out(settings)} {self._limit()}".strip()
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
        """Return a sentence on the named drafters that the automatic mode cannot use; empty if it can use all."""
        options = [self._option(mode, settings) for mode in DRAFTERS if settings.named(mode) is not None]
        wrong = [option.reason for option in options if not option.available]
        if settings.drafter is None:
            wrong += self._drafters.own_drafters().left_out
        problems = [*wrong, "Auto works without it."] if wrong else []
        return " ".join(filter(None, [*problems, self._layers(settings.drafter)]))

    def _layers(self, named: str | None) -> str:
        """Return a sentence on why the model's MTP layers are not used, or how; empty without any."""
        try:
            folder = self._drafters.drafter_folder(named)
        except RdchatError:
            folder = None
        return self._drafters.unused_layers(folder) or (self._drafters.facts(folder) if folder else "")

    def _draft_model(self, name: str | None) -> ModeOption:
        if name is None:
            return ModeOption(Mode.SPECULATIVE, available=False, reason=NO_DRAFT_MODEL)
        if name not in self._pairs:
            check_draft_model(name, self._model)
            self._pairs.add(name)
        return ModeOption(Mode.SPECULATIVE, available=True, reason=self._limit(), source=display_name(name, Path(name)))

    def _drafter(self, named: str | None) -> ModeOption:
        left_out = self._drafters.own_drafters().left_out if named is None else ()
        folder = self._drafters.drafter_folder(named)
        if folder is None:
            reason = " ".join(filter(None, [no_drafter(self._model), self._layers(None), *left_out]))
            return ModeOption(Mode.DRAFTER, available=False, reason=reason)
        kind = inspect_drafter(folder)
        match = check_drafter(folder, self._model)
        trees = self._model.capability.kind is DraftKind.TREE
        reason = " ".join(filter(None, [self._limit(), self._layers(named), *left_out]))
        source = drafter_name(named, folder)
        return ModeOption(Mode.DRAFTER, True, reason, source, trees=trees, kind=kind, match=match)

    def _limit(self) -> str:
        """Return how the target checks drafts, in sentences; empty if it takes trees."""
        limit = _LIMITS.get(self._model.capability.kind, "")
        return limit and f"{self._model.info.name} checks {limit}"
