"""A chat with a small model that has every kind of drafter at hand, as if they lay on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.auto.cost_model import PLAIN_STEP, Part
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.auto.automatic_replies import RandomPlanner
from tests.inference.fakes import ALPHABET, random_drafter, shared_llama


class ReadyDrafters(Drafters):
    """Has a recurrent drafter, and a draft model named `small`; the automatic mode tries all in random order."""

    def __init__(self, model: LoadedModel, small: LoadedModel | None = None) -> None:
        super().__init__(model)
        size = len(ALPHABET) if small is None else model.info.vocabulary_size
        self._head = random_drafter(model, size)
        self._heads = {Path("head"): self._head}
        draft_model = DraftModel(model, small or shared_llama(seed=3), size)
        self._draft_models = {"small": draft_model}
        self.auto.use_drafters(AvailableDrafters(self._head, None, draft_model))
        self.auto.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, (1, 128): 1.0})
        self.auto.planner = RandomPlanner(self.auto.costs, (Mode.SPECULATIVE, Mode.DRAFTER, Mode.LOOKUP), seed=5)

    def _load_head(self, named: str | None) -> AvailableDrafters:
        return AvailableDrafters(self._head, Path("head"))

    def _load_all(self, settings: DraftSettings, on_progress: Callable[..., Any]) -> AvailableDrafters:
        """Return them; all are loaded."""
        return self.auto.available


def ready_session(model: LoadedModel, small: LoadedModel | None = None, **options: Any) -> ChatSession:
    """Return a new chat with `ReadyDrafters`; `options` are those of `ChatSession`."""
    session = ChatSession(model, ReadyDrafters(model, small), **options)
    session.drafters.auto.look_up_costs = lambda: None  # type: ignore[method-assign]  # the ones made up stay
    return session


def settings_of(mode: Mode) -> DraftSettings:
    return DraftSettings(mode, draft_model="small")
