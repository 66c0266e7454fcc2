"""Decoding that can switch between plain steps and rounds at every token, and the drafter that makes its drafts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from time import perf_counter
from typing import override

import mlx.core as mx

from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.reply_statistics import Stage
from rdchat.inference.api.requests import BeamShape, EarlierReplies, GenerationRequest, Mode
from rdchat.inference.auto.controller import CallResult, Controller, decode
from rdchat.inference.auto.plan import WIDTH
from rdchat.inference.auto.planner import Source, draft_model_source, head_source
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.accepted_path import LazyPath
from rdchat.inference.decoding.autoregressive import Step
from rdchat.inference.decoding.draft import Draft, Drafter, NodeSource
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.draft_model import DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup import lookup_draft
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.verifier import Verified

# Times of rounds in which a draft model reads more tokens first are not learnt.
_MAX_UNREAD = 4


class AutoDrafter(Drafter):
    """Drafts for one reply as its controller plans; see `Drafter`.

    All drafters observe every token, also those of plain steps.

    Args:
        state: Costs and estimates of the target and its drafters.
        prompt: Token ids.
        request: Sampling, reply seed and draft settings.
        ledger: Records the time of its stages.
        earlier: Earlier replies, if prompt lookup may use them.

    Attributes:
        controller: Plans each call.
        usual: Whether the last draft's time is typical of its kind.
    """

    name = "auto"

    def __init__(
        self,
        state: AutoState,
        prompt: list[int],
        request: GenerationRequest,
        ledger: Ledger,
        earlier: EarlierReplies | None = None,
    ) -> None:
        available, costs, trees = state.available, state.costs, state.trees
        estimates = state.estimates(request.sampling)
        self._ledger, self.usual = ledger, True
        head, small = available.head, available.draft_model
        self._head = head.drafter(prompt, request, ledger) if head else None
        self._draft_model = model = DraftModelDrafter(small, prompt, request, ledger) if small else None
        self._parts: list[Drafter] = [part for part in (self._head, self._draft_model) if part]
        sources: list[Source] = []
        if model:
            sources.append(draft_model_source(estimates.chains, costs, lambda: model.unread, trees))
        if head:
            sources.append(head_source(estimates.head, costs, WIDTH if trees else 1, head.head.max_drafted))
        self.controller = Controller(state.planner, estimates, prompt, sources, trees=trees, earlier=earlier)

    @override
    def use_cache(self, cache: KVCache) -> None:
        for part in self._parts:
            part.use_cache(cache)

    @override
    def prefill(self, cancelled: Callable[[], bool], ledger: Ledger) -> Iterator[int]:
        for part in self._parts:
            yield from part.prefill(cancelled, ledger)

    @override
    def read(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        for part in self._parts:
            part.read(tokens, hidden, start)

    @override
    def close(self, length: int) -> None:
        for part in self._parts:
            part.close(length)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`; follows the controller's plan."""
        plan, model, head = self.controller.plan, self._draft_model, self._head
        self.usual = True
        if plan.mode is Mode.SPECULATIVE:
            assert model is not None
            self.usual = model.unread <= _MAX_UNREAD
            model.take_shape(DraftShape.of_size(plan.length - 1, plan.nodes))
            draft = model.propose(root, limit)
            # The draft model's context is nearly full.
            if draft.tree.deepest + 1 < plan.length:
                return replace(draft, drafter=plan.mode.value)
        elif plan.mode is Mode.DRAFTER:
            assert head is not None
            draft = head.draft(root, BeamShape(plan.width, min(plan.length, 1 + limit)), plan.nodes)
        else:
            with self._ledger.stage(Stage.LOOKUP):
                draft = lookup_draft(root, self.controller.looked_up.cut(plan.nodes - 1))
                if self.controller.is_forced:
                    draft = replace(draft, sources=[NodeSource.SHAPE] * len(draft.tree))
        return replace(draft, rows=plan.rows, drafter=plan.mode.value)

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        for part in self._parts:
            part.observe(root, tokens, verified, path)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        return self._head is not None and self.controller.begins_ahead(limit)

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> None:
        assert self._head is not None
        plan = self.controller.plan
        self._head.search_ahead(path, verified, BeamShape(plan.width, plan.length))

    @override
    def leave_out(self, source: str) -> None:
        self.controller.leave_out(Mode(source))


class AutoIterator(RoundIterator):
    """A `TokenIterator` of plain steps (as in `AutoregressiveIterator`) and rounds; the `CallMaker` for `decode`.

    Args:
        job: Model, cache, prompt and request; the cache has rounds.
        drafter: Drafts as its controller plans.
    """

    def __init__(self, job: ReplyJob, drafter: AutoDrafter) -> None:
        super().__init__(job, drafter)
        self._auto = drafter
        self._step: Step | None = None
        self._reply.choice = lambda: drafter.controller.status
        if (matcher := self._reply.matcher) is not None:
            drafter.controller.forced = matcher.forced
        self._marked = perf_counter()
        # Whether the next call is the first after a pause: its time is not typical.
        self._resumed = False

    @override
    def _resume(self, nanoseconds: int) -> None:
        super()._resume(nanoseconds)
        self._marked, self._resumed = perf_counter(), True

    @override
    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        self._pass_prompt(len(self._prompt) - 1, len(self._prompt))
        self._step = self._steps.first(logits, len(self._prompt), self._seen)
        return decode(self, self._auto.controller)

    @property
    def room(self) -> int | None:
        reply = self._reply
        if reply.finish_reason is not None or self._cancel.is_set():
            return None
        return reply.last_index - len(reply.token_ids)

    def round(self) -> CallResult[TokenEvent]:
        before = len(self._reply.token_ids)
        events = self._round()
        usual = self._auto.usual and not (self._resumed or self._reshaped or self._ledger.exact)
        self._resumed = False
        return CallResult(events, self._reply.token_ids[before:], self._lap_ms(), usual=usual)

    def step(self, queue: bool) -> CallResult[TokenEvent]:
        step = self._step or self._begin_again()
        event, following = self._steps.advance(step, queue)
        self._seen, self._step = step.seen, following
        tokens, ms = self._reply.token_ids, self._lap_ms()
        if len(tokens) > 1:
            hidden = None if step.hidden is None else step.hidden[0]
            with self._ledger.stage(Stage.FOLLOW):
                self._auto.observe(tokens[-2], [tokens[-1]], Verified(step.logits, hidden), [0])
        held_up = self._resumed or (following is not None and following.held_up)
        self._resumed = False
        return CallResult((event,), tokens[-1:], ms, following is not None, held_up, usual=not self._ledger.exact)

    def stage(self, stage: Stage) -> AbstractContextManager[object]:
        return self._ledger.stage(stage)

    def _begin_again(self) -> Step:
        """Return the plain step after a round, for which nothing is queued yet."""
        self._verifier.catch_up()
        return self._steps.after(self._seen)

    def _lap_ms(self) -> float:
        """Return the milliseconds since the last call of this method."""
        now = perf_counter()
        ms, self._marked = (now - self._marked) * 1000, now
        return ms
