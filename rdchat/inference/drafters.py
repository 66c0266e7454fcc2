"""The drafters of one target: loaded when first asked for, kept between replies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.draft import Drafter
from rdchat.inference.draft_model import DraftModel, load_draft_model
from rdchat.inference.drafter_folder import find_drafter, load_drafter
from rdchat.inference.events import LoadProgress, ModeOption
from rdchat.inference.ledger import Ledger
from rdchat.inference.lookup import LookupDrafter
from rdchat.inference.probe import DraftKind
from rdchat.inference.recurrent_drafter import RecurrentModel, RecurrentSettings
from rdchat.inference.requests import DraftSettings, GenerationRequest, Mode
from rdchat.inference.target import LoadedModel

Progress = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A mode that cannot run; `reason` is a sentence that says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadyDrafter:
    """What drafts a reply, and what it is called: a path, or a name."""

    drafter: Drafter
    source: str


class Drafters:
    """Gives each reply its drafter.

    Args:
        model: The target.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._draft_models: dict[str, DraftModel] = {}
        self._recurrent: dict[Path, RecurrentModel] = {}

    @cached_property
    def _own_drafter(self) -> Path | None:
        """The drafter made for the target: looked for once, and only where one is wanted."""
        return find_drafter(self._model)

    def load(self, settings: DraftSettings, on_progress: Progress = lambda _: None) -> Unavailable | None:
        """Load what a mode needs, once.

        Returns:
            Why the mode cannot run; None where it can.

        Raises:
            RdchatError: If a drafter or draft model that was named is wrong, missing or damaged.
        """
        if settings.mode in {Mode.OFF, Mode.AUTO}:
            return None
        capability = self._model.capability
        if capability.kind is DraftKind.NONE:
            return Unavailable(f"{self._model.info.name} cannot verify drafts: {capability.reason}.")
        if settings.mode is Mode.SPECULATIVE:
            return self._load_draft_model(settings.draft_model, on_progress)
        if settings.mode is Mode.RECURRENT:
            return self._load_recurrent(settings.drafter)
        return None

    def options(self, settings: DraftSettings) -> tuple[ModeOption, ...]:
        """Tell which modes are to be had; see `Engine.draft_options`."""
        found = []
        for mode in Mode:
            try:
                unavailable = self.load(replace(settings, mode=mode))
                reason = unavailable.reason if unavailable else ""
            except RdchatError as error:
                reason = str(error)
            found.append(ModeOption(mode, not reason, reason))
        return tuple(found)

    def drafter(self, prompt: list[int], request: GenerationRequest, ledger: Ledger) -> ReadyDrafter | None:
        """Return the drafter of one reply, for which `load` found nothing in the way; None in mode `off`."""
        settings = request.draft
        match settings.mode:
            case Mode.OFF | Mode.AUTO:
                return None
            case Mode.LOOKUP:
                return ReadyDrafter(LookupDrafter(prompt, settings.draft_tokens, ledger), "prompt lookup")
            case Mode.SPECULATIVE:
                assert settings.draft_model is not None
                draft = self._draft_models[settings.draft_model]
                return ReadyDrafter(draft.drafter(prompt, request, ledger=ledger), str(draft.model.info.path))
            case Mode.RECURRENT:
                folder = self._recurrent_folder(settings.drafter)
                assert folder is not None
                shaped = RecurrentSettings.of(settings)
                return ReadyDrafter(self._recurrent[folder].drafter(prompt, request, shaped, ledger), str(folder))

    def _load_draft_model(self, name: str | None, on_progress: Progress) -> Unavailable | None:
        if name is None:
            return Unavailable("No draft model was named (--draft-model).")
        if name not in self._draft_models:
            self._draft_models = {name: load_draft_model(name, self._model, on_progress=on_progress)}
        return None

    def _load_recurrent(self, named: str | None) -> Unavailable | None:
        folder = self._recurrent_folder(named)
        if folder is None:
            name = self._model.info.name
            return Unavailable(f"There is no recurrent drafter for {name} on this machine.")
        if folder not in self._recurrent:
            self._recurrent = {folder: RecurrentModel(self._model, load_drafter(folder, self._model))}
        return None

    def _recurrent_folder(self, named: str | None) -> Path | None:
        return self._own_drafter if named is None else Path(named).expanduser()
