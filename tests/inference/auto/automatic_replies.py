"""Replies of the automatic mode with a random planner, so that every kind of draft follows every other."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rdchat.inference.api import GenerationEvent, GenerationRequest, Mode, ReplyEnd
from rdchat.inference.auto.auto_drafter import AutoDrafter, AutoState, AvailableDrafters
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.planner import AcceptanceEstimates, Choice, DraftEstimate, Drafts, Plan, Planner
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import (
    ALPHABET,
    random_drafter,
    reply_end,
    shared_llama,
)


class RandomPlanner(Planner):
    """Picks any draft that there is, good or bad, so that each kind follows each other."""

    def __init__(self, costs: CostModel, modes: tuple[Mode, ...], seed: int) -> None:
        super().__init__(costs)
        self._modes = modes
        self._rng = np.random.default_rng(seed)

    def best_draft(self, depth: int, drafts: Sequence[Drafts]) -> Choice | None:
        mode = self._modes[self._rng.integers(len(self._modes))]
        tables = [t for t in drafts if t.mode is mode and np.isfinite(t.accepted).any()]
        if not tables:
            return None
        table = tables[self._rng.integers(len(tables))]
        lengths, nodes = np.nonzero(np.isfinite(table.accepted))
        picked = self._rng.integers(len(lengths))
        length = table.lengths[lengths[picked]]
        rows = min(int(nodes[picked]) + int(self._rng.integers(0, 6)), MAX_ROWS)
        plan = Plan(mode, table.width, length, int(nodes[picked]), rows)
        return Choice(plan, 1.5, 1.5, 1.0, rate=float(self._rng.choice([-9.0, 11.0])))  # a gain of 5, or -5


def state_of(model: LoadedModel, drafters: AvailableDrafters) -> AutoState:
    """Return a state with made-up costs."""
    state = AutoState(model)
    state.use_drafters(drafters)
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, (1, 128): 1.0})
    return state


def iterator_of(state: AutoState, request: GenerationRequest, cache: KVCache | None = None) -> ReplyIterator:
    prompt = state.model.encode_chat(request.messages)
    job = replace(ReplyJob.fresh(state.model, prompt, request, cache), mode=Mode.AUTO)
    return ReplyIterator(job, AutoDrafter(state, job))


def automatic(
    model: LoadedModel,
    request: GenerationRequest,
    modes: tuple[Mode, ...],
    seed: int = 0,
    head: HeadModel | None = None,
) -> tuple[list[GenerationEvent], KVCache, KVCache | None]:
    head = (head or random_drafter(model)) if Mode.DRAFTER in modes else None
    small = DraftModel(model, shared_llama(seed=3), len(ALPHABET)) if Mode.SPECULATIVE in modes else None
    state = state_of(model, AvailableDrafters(head, None, small))
    state.planner = RandomPlanner(state.costs, modes, seed)
    cache = KVCache(model.network)
    return list(iterator_of(state, request, cache)), cache, small.cache if small else None


def reply_of(state: AutoState, request: GenerationRequest) -> ReplyEnd:
    return reply_end(iterator_of(state, request))


class _Fixed(DraftEstimate):
    """Believes what it began with."""

    def learn(self, drafted: int, nodes: int, accepted: int, ended: bool = False) -> None:
        pass


class Known(AcceptanceEstimates):
    """Believes so much of recurrent chains of one length, whatever comes of them.

    Args:
        length: Tokens of such a chain, the root included.
        accepted: Of them.
    """

    def __init__(self, length: int, accepted: float) -> None:
        super().__init__()
        values = np.zeros((len(LENGTHS), MAX_ROWS + 1))
        values[LENGTHS.index(length), length:] = accepted
        self.head = _Fixed([n - 1 for n in LENGTHS], values)
