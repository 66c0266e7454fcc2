"""The automatic mode's drafter: has the drafters draft what the controller has decided."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import override

import mlx.core as mx

from rdchat.inference.api.requests import BeamShape, GenerationRequest, Mode
from rdchat.inference.auto.controller import Controller
from rdchat.inference.auto.sources import Source, draft_model_source, head_source
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.verifier import Verified

_LATE = 4  # tokens that a draft model catches up with; a round with more says little of other rounds


class AutoDrafter(Drafter):
    """Drafts for one reply what its controller plans; see `Drafter`.

    All drafters observe every token, also those of plain steps.

    Args:
        state: What is known of the target and its drafters.
        prompt: Token ids.
        request: What was asked.
        ledger: Takes the time of its stages.

    Attributes:
        controller: Decides.
        usual: Whether the last draft took as long as such drafts do.
    """

    name = "auto"

    def __init__(self, state: AutoState, prompt: list[int], request: GenerationRequest, ledger: Ledger) -> None:
        available, costs, trees = state.available, state.costs, state.trees
        estimates = state.estimates(request.sampling)
        self._ledger, self.usual = ledger, True
        head, small = available.head, available.draft_model
        self._head = head.drafter(prompt, request, ledger) if head else None
        self._draft_model = model = small.drafter(prompt, request, ledger) if small else None
        self._parts: list[Drafter] = [part for part in (self._head, self._draft_model) if part]
        self._drafts_ahead = head is not None and head.head.drafts_ahead
        sources: list[Source] = []
        if model:
            sources.append(draft_model_source(estimates.chains, costs, lambda: model.late, trees))
        if head:
            most = head.head.most_drafted
            width = state.planner.beam_width(estimates, len(prompt), most) if trees else 1
            sources.append(head_source(estimates.head(width), costs, width, most))
        self.controller = Controller(state.planner, estimates, prompt, sources)

    @override
    def prefill(self, cancelled: Callable[[], bool], ledger: Ledger) -> Iterator[int]:
        """See `Drafter`."""
        for part in self._parts:
            yield from part.prefill(cancelled, ledger)

    @override
    def read(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        """See `Drafter`."""
        for part in self._parts:
            part.read(tokens, hidden, start)

    @override
    def close(self, length: int) -> None:
        """See `Drafter`."""
        for part in self._parts:
            part.close(length)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`; by the controller's plan."""
        plan, model, head = self.controller.plan, self._draft_model, self._head
        self.usual = True
        if plan.mode is Mode.SPECULATIVE:
            assert model is not None
            self.usual = model.late <= _LATE
            model.take_shape(DraftShape.of_size(plan.length - 1, plan.nodes))
            draft = model.propose(root, limit)
            if draft.tree.deepest + 1 < plan.length:  # its context is nearly full
                return replace(draft, drafter=plan.mode.value)
        elif plan.mode is Mode.DRAFTER:
            assert head is not None
            draft = head.draft(root, BeamShape(plan.width, min(plan.length, 1 + limit)), plan.nodes)
        else:
            with self._ledger.stage("lookup"):
                chain = [root, *self.controller.index.continuation(plan.length - 1)]
            draft = Draft(PackedTree.of(PrefixTree.from_beams([chain])))
        return replace(draft, rows=plan.rows, drafter=plan.mode.value)

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        for part in self._parts:
            part.observe(root, tokens, verified, path)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        """See `Drafter`."""
        return self._drafts_ahead and self.controller.begins_ahead(limit) is not None

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> Sequence[mx.array]:
        """See `Drafter`; `propose` does not wait for it."""
        assert self._head is not None
        plan = self.controller.plan
        self._head.search_ahead(path, verified, BeamShape(plan.width, plan.length))
        return ()

    @override
    def leave_out(self, source: str) -> None:
        """See `Drafter`."""
        self.controller.leave_out(Mode(source))
