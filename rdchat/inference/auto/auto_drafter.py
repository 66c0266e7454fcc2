"""The drafter of the automatic mode: makes the drafts that the reply's controller plans."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import override

from rdchat.inference.api import BeamShape, GenerationRequest, Mode, NodeSource, Stage
from rdchat.inference.auto.controller import ChosenRound, Controller
from rdchat.inference.auto.plan import WIDTH
from rdchat.inference.auto.planner import Source, draft_model_source, head_source
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.draft import Draft, Drafter, LazyPath
from rdchat.inference.decoding.ledger import Ledger, TimedPolicy
from rdchat.inference.decoding.loop import RoundPlan
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.drafting.draft_model import DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.drafting.lookup import lookup_draft
from rdchat.inference.drafting.lookup_index import Phrases
from rdchat.inference.verification.verifier import Verified

# Times of rounds in which a draft model reads more tokens first are not learnt.
_MAX_UNREAD = 4


class AutoDrafter(Drafter):
    """Drafts for one reply as its controller plans; see `Drafter`.

    Args:
        state: Costs and estimates of the target and its drafters.
        job: Prompt and request.
        phrases_for: Returns what a table of phrases expects in a reply; asked where there is no other drafter.

    Attributes:
        controller: Plans each call.
    """

    name = "auto"

    def __init__(
        self,
        state: AutoState,
        job: ReplyJob,
        phrases_for: Callable[[GenerationRequest], Phrases | None] = lambda _: None,
    ) -> None:
        available = state.available
        costs = state.costs
        trees = state.trees
        prompt = job.prompt
        request = job.request
        self._ledger = job.ledger
        estimates = state.estimates(request.sampling)
        head = available.head
        small = available.draft_model
        self._head = head.drafter(prompt, request, job.ledger) if head else None
        model = DraftModelDrafter(small, prompt, request, job.ledger) if small else None
        self._draft_model = model
        sources: list[Source] = []
        if model:
            sources.append(draft_model_source(estimates.chains, costs, lambda: model.unread, trees))
        if head:
            sources.append(head_source(estimates.head, costs, WIDTH if trees else 1, head.head.max_drafted))
        # Beside a head or a draft model, phrases were measured to gain nothing: docs/adr/0045.
        phrases = None if sources else phrases_for(request)
        self.controller = Controller(
            state.planner, estimates, prompt, sources, trees=trees, earlier=request.earlier, phrases=phrases
        )
        if job.matcher is not None:
            self.controller.forced = job.matcher.forced
        self.policy = TimedPolicy(self.controller, job.ledger)

    @property
    @override
    def parts(self) -> Sequence[Drafter]:
        return [part for part in (self._head, self._draft_model) if part]

    @override
    def planned(self, plan: RoundPlan) -> Drafter:
        assert isinstance(plan, ChosenRound)
        mode = plan.choice.plan.mode
        drafter = self._head if mode is Mode.DRAFTER else self._draft_model if mode is Mode.SPECULATIVE else None
        return _PlannedDrafter(plan, self.controller, self._ledger, drafter)

    @override
    def stop_source(self, source: str) -> None:
        self.controller.stop_drafter(Mode(source))


@dataclass(frozen=True, slots=True)
class _PlannedDrafter(Drafter):
    """Makes the draft of one round.

    Attributes:
        chosen: The round's plan.
        controller: Says whether the next draft begins ahead.
        ledger: Takes the time of prompt lookup.
        drafter: Drafts; None for prompt lookup.
    """

    chosen: ChosenRound
    controller: Controller
    ledger: Ledger
    drafter: HeadDrafter | DraftModelDrafter | None

    @override
    def propose(self, root: int, limit: int) -> Draft:
        plan = self.chosen.choice.plan
        rows = plan.rows
        usual = True
        match self.drafter:
            case HeadDrafter() as head:
                draft = head.draft_in_shape(root, BeamShape(plan.width, min(plan.length, 1 + limit)), plan.nodes)
            case DraftModelDrafter() as model:
                usual = model.unread <= _MAX_UNREAD
                draft = model.draft_in_shape(root, limit, DraftShape.of_size(plan.length - 1, plan.nodes))
                # Fewer are drafted where the draft model's context is nearly full.
                rows = rows if draft.tree.deepest + 1 >= plan.length else 0
            case None:
                with self.ledger.stage(Stage.LOOKUP):
                    draft = lookup_draft(root, self.chosen.looked_up.cut(plan.nodes - 1))
                    if self.chosen.is_forced:
                        draft = replace(draft, sources=[NodeSource.SHAPE] * len(draft.tree))
        return replace(draft, rows=rows, drafter=plan.mode.value, usual=usual)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        return self.controller.begins_ahead(self.chosen.choice.plan, limit)

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> None:
        assert isinstance(self.drafter, HeadDrafter)
        plan = self.chosen.choice.plan
        self.drafter.search_ahead(path, verified, BeamShape(plan.width, plan.length))
