"""Which drafting modes a loaded model can have, and why not the others. Told quickly: no weights are read."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.inference.api.drafter_facts import DrafterFit
from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.drafters import NO_DRAFT_MODEL, Drafters, cannot_verify, no_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import drafter_name, resolve_drafter
from rdchat.inference.drafting.draft_model import check_draft_model
from rdchat.inference.models.model_files import display_name
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.target import LoadedModel

_LOOKED_AT = 32  # drafters at once: some 0.1 s


class ModeOptions:
    """Looks at what the settings name as `rdchat models check-pair` does, by tokenizers and configurations.

    Args:
        model: The target.
        drafters: Know which drafter is the target's own.
    """

    def __init__(self, model: LoadedModel, drafters: Drafters) -> None:
        self._model = model
        self._drafters = drafters
        self._pairs: set[str] = set()  # draft models that were found to know the same tokens
        self._fits: dict[tuple[str, Path, int], DrafterFit] = {}  # by drafter, its folder, and when that was changed

    def tell(self, settings: DraftSettings) -> tuple[ModeOption, ...]:
        """Return one option for each mode, with the draft model and the drafter that the settings name."""
        return tuple(self._option(mode, settings) for mode in Mode)

    def fits(self, drafters: Sequence[str]) -> tuple[DrafterFit, ...]:
        """Tell of drafters, folders or hub ids, whether they fit; what was looked at is not read again.

        Of others it looks at some only, as a person may be waiting for a reply: asked again, it tells of more.

        Returns:
            One for each of the first drafters.
        """
        found, before = list[DrafterFit](), len(self._fits)
        for drafter in drafters:
            if len(self._fits) - before == _LOOKED_AT:
                break
            found.append(self._fit(drafter))
        return tuple(found)

    def _fit(self, drafter: str) -> DrafterFit:
        try:
            folder = resolve_drafter(drafter)
            key = drafter, folder, folder.stat().st_mtime_ns
            if key not in self._fits:
                self._fits[key] = self._look_at(drafter, folder)
            return self._fits[key]
        except (RdchatError, OSError) as error:
            return DrafterFit(drafter, problem=error.message if isinstance(error, RdchatError) else str(error))

    def _look_at(self, drafter: str, folder: Path) -> DrafterFit:
        try:
            return DrafterFit(drafter, check_drafter(folder, self._model))
        except RdchatError as error:
            return DrafterFit(drafter, problem=error.message)

    def _option(self, mode: Mode, settings: DraftSettings) -> ModeOption:
        if mode is Mode.OFF:
            return ModeOption(mode, available=True)
        problem = cannot_verify(self._model)
        if mode is Mode.AUTO:
            told = f"{problem} Replies are decoded plainly." if problem else self._left_out(settings)
            drafter = self._option(Mode.DRAFTER, settings)
            return ModeOption(mode, available=True, reason=told, kind=drafter.kind, match=drafter.match)
        try:
            if not problem:
                return self._drafting_option(mode, settings)
        except RdchatError as error:
            problem = str(error)
        return ModeOption(mode, available=False, reason=problem)

    def _drafting_option(self, mode: Mode, settings: DraftSettings) -> ModeOption:
        if mode is Mode.SPECULATIVE:
            return self._draft_model(settings.draft_model)
        if mode is Mode.DRAFTER:
            return self._drafter(settings.drafter)
        return ModeOption(mode, available=True)

    def _left_out(self, settings: DraftSettings) -> str:
        """Say what the automatic mode cannot choose from, of what the settings name; empty where it can from all."""
        named = {Mode.SPECULATIVE: settings.draft_model, Mode.DRAFTER: settings.drafter}
        options = [self._option(mode, settings) for mode, name in named.items() if name is not None]
        wrong = [option.reason for option in options if not option.available]
        if settings.drafter is None:
            wrong += self._drafters.own_drafters().left_out
        return " ".join([*wrong, "Auto does without."]) if wrong else ""

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
            reason = " ".join([no_drafter(self._model), *left_out])
            return ModeOption(Mode.DRAFTER, available=False, reason=reason, command=training_command(self._model))
        kind, match = inspect_drafter(folder), check_drafter(folder, self._model)
        trees = self._model.capability.kind is DraftKind.TREE
        reason = " ".join(filter(None, [self._limit(), *left_out]))
        source = drafter_name(named, folder)
        return ModeOption(Mode.DRAFTER, True, reason, source, trees=trees, kind=kind, match=match)

    def _limit(self) -> str:
        """Return what keeps the target from verifying trees; empty where nothing does."""
        capability = self._model.capability
        if capability.kind is DraftKind.TREE:
            return ""
        return f"{self._model.info.name} verifies a single path, not a tree: {capability.reason}."


def training_command(model: LoadedModel) -> str:
    """Return the shell command that trains a drafter for a model, into a folder where it will be found."""
    out = paths.drafters_dir() / model.info.name.replace("/", "--")
    return shlex.join(["rdchat", "train-drafter", "--model", str(model.info.path), "--out", str(out)])
