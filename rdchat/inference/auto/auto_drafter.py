"""The automatic mode's drafter: has the drafters draft what the controller has decided."""

from collections.abc import Callable, Iterator, Sequence
from math import isnan
from typing import override

import mlx.core as mx

from rdchat.inference.api.requests import BeamShape, GenerationRequest, Mode
from rdchat.inference.auto.controller import Controller
from rdchat.inference.auto.draft_table import ChainSource, HeadSource
from rdchat.inference.auto.plan import DRAFT_TOKENS
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadSettings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.verifier import Verified


class AutoDrafter(Drafter):
    """Drafts for one reply what its controller plans; see `Drafter`.

    All drafters are told of every token, also of those of plain steps.

    Args:
        state: What is known of the target and its drafters.
        prompt: Token ids.
        request: What was asked.
        ledger: Takes the time of its stages.

    Attributes:
        controller: Decides; `control_loop` tells it what came of that.
    """

    name = "auto"

    def __init__(self, state: AutoState, prompt: list[int], request: GenerationRequest, ledger: Ledger) -> None:
        available, costs = state.available, state.costs
        estimates = state.estimates(request.sampling)
        self._ledger = ledger
        alone = HeadSettings(lookup_branch=False)
        head, small = available.head, available.draft_model
        self._head = head.drafter(prompt, request, alone, ledger) if head else None
        self._draft_model = model = small.drafter(prompt, request, ledger=ledger) if small else None
        self._parts: list[Drafter] = [part for part in (self._head, self._draft_model) if part]
        shapes = [shape for steps in DRAFT_TOKENS for shape in small.shapes(steps)] if small else []
        beams: HeadSource | None = None
        if head:
            most, ahead = head.most_drafted, head.drafts_ahead
            width = state.planner.beam_width(estimates.known, len(prompt), most) if state.trees else 1
            beams = HeadSource(estimates.values(width), costs, width, state.padding, most, ahead)
        self._drafted: tuple[mx.array, int]  # tokens of the draft model's last tree, and how many are its chain
        self._waited = False  # whether the draft that was begun ahead was waited for with its round
        self.controller = Controller(
            state.planner,
            estimates,
            prompt,
            beams,
            ChainSource(estimates.chains, costs, shapes, lambda: model.late) if model else None,
        )

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
        if length:
            self.controller.end()
        for part in self._parts:
            part.close(length)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`; by the controller's plan, cut to what pays once it is drafted."""
        plan = self.controller.plan
        if plan.mode is Mode.SPECULATIVE:
            return self._draft_while_it_pays(root, limit)
        if plan.mode is Mode.DRAFTER:
            return self._beams(root, limit)
        chain = [root, *self._look_up(plan.length - 1)]
        return Draft(PackedTree.of(PrefixTree.from_beams([chain])), rows=plan.rows, drafter=plan.mode.value)

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        if self.controller.plan.mode is Mode.SPECULATIVE:
            self._learn_chain(tokens, len(path) - 1)
        for part in self._parts:
            part.observe(root, tokens, verified, path)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        """See `Drafter`; where the controller has it so."""
        return self._head is not None and self.controller.ahead(limit) is not None

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> Sequence[mx.array]:
        """See `Drafter`; a draft that is going to be cut is waited for at once."""
        controller, head = self.controller, self._head
        assert head is not None
        pool = head.search_ahead(path, verified, BeamShape(controller.plan.width, controller.plan.length))
        mx.async_eval(pool.scores)
        self._waited = controller.cuts
        return (pool.tokens, pool.parents, pool.scores) if self._waited else ()

    @override
    def leave_out(self, source: str) -> None:
        """See `Drafter`."""
        self.controller.leave_out(Mode(source))

    def follow(self, root: int, token: int, verified: Verified) -> None:
        """Take a plain step: `token` came after `root`."""
        for part in self._parts:
            part.observe(root, [token], verified, [0])

    def draft_off_path(self, shape: BeamShape) -> None:
        """Draft below the last token, to compare it with the text."""
        assert self._head is not None
        pool = self._head.search(self.controller.text[-1], shape)
        self._ledger.queue(pool.tokens, pool.parents, pool.scores)
        self.controller.compare(pool, offered=False)

    def _look_up(self, length: int) -> list[int]:
        with self._ledger.stage("lookup"):
            return self.controller.index.continuation(length)

    def _draft_while_it_pays(self, root: int, limit: int) -> Draft:
        """Let the draft model draft as planned, but go on only while it is sure enough of what it drafted."""
        model, controller = self._draft_model, self.controller
        assert model is not None
        behind = model.late
        margins: list[float] = []  # of the tokens that are drafted; the last one need not be waited for

        def goes_on(margin: float) -> bool:
            margins.append(margin)
            return controller.goes_on(margins, limit)

        keeps = (lambda: controller.keeps(margins)) if controller.drafts_on else None
        model.take_shape(DraftShape(DRAFT_TOKENS[-1], controller.runner_ups), goes_on, keeps)
        draft = model.propose(root, limit)
        steps = draft.tree.deepest
        controller.chain_drafted(margins, steps, len(draft.tree), behind)
        if not steps:  # its context is full
            return draft
        self._drafted = draft.tree.tokens, steps
        return Draft(draft.tree, rows=controller.rows, drafter=Mode.SPECULATIVE.value, finite=draft.finite)

    def _learn_chain(self, tokens: Sequence[int], accepted: int) -> None:
        assert self._draft_model is not None
        margins = self._draft_model.margins
        if not margins or any(map(isnan, margins)):  # its context is full, or the draft is dropped
            return
        packed, steps = self._drafted
        chain = fetch(packed)[1 : 1 + steps].tolist()  # it comes first
        right = [mine == came for mine, came in zip(chain, tokens, strict=False)]
        self.controller.chain_came(margins, right, accepted)

    def _beams(self, root: int, limit: int) -> Draft:
        controller, head = self.controller, self._head
        assert head is not None
        waited, self._waited = self._waited, False
        pool = head.search(root, controller.beams(limit))
        if controller.cuts:
            if not (waited and head.began_ahead):
                self._ledger.wait(pool.tokens, pool.parents, pool.scores)
            drawn = pool.fetch()
            if not drawn.finite:
                controller.draft_dropped()
                return Draft(PackedTree.chain(mx.array([root])), drafter=Mode.DRAFTER.value, finite=False)
            controller.cut(drawn)
            controller.compare(drawn, offered=True)
        else:
            self._ledger.queue(pool.tokens, pool.parents, pool.scores)
            controller.compare(pool, offered=True)
        offered = head.offer(pool, controller.plan.nodes)
        return Draft(offered.tree, offered.looked_up, controller.rows, Mode.DRAFTER.value, pool.finite)
