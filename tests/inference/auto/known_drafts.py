"""Replies of the automatic mode with a recurrent drafter whose acceptance is made up."""

import numpy as np
import pytest

from rdchat.inference.api import GenerationRequest, ReplyEnd, SamplingParams
from rdchat.inference.auto.auto_drafter import AutoState, AvailableDrafters
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.planner import WIDTH, AcceptanceEstimates, DraftEstimate
from rdchat.inference.drafting.lookup_index import LookupIndex, LookupTree
from rdchat.inference.verification.target import LoadedModel
from tests.inference.auto.automatic_replies import iterator_of
from tests.inference.fakes import (
    ask,
    random_drafter,
    tiny_llama,
)


def reply_of(state: AutoState, request: GenerationRequest) -> ReplyEnd:
    *_, end = iterator_of(state, request)
    assert isinstance(end, ReplyEnd)
    return end


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


class KnownState(AutoState):
    """Knows how far drafts are followed, and learns nothing of it."""

    known: AcceptanceEstimates

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        return self.known


def reply_with_drafts(
    monkeypatch: pytest.MonkeyPatch, believed: float
) -> tuple[ReplyEnd, LoadedModel, GenerationRequest]:
    """Return a reply in which drafts are chains of three tokens, believed to come to so many."""
    monkeypatch.setattr(CostModel, "learn", lambda *_: None)
    monkeypatch.setattr(CostModel, "learn_plain", lambda *_: None)
    monkeypatch.setattr(LookupIndex, "draft_tree", lambda *_, **__: LookupTree())
    model = tiny_llama()
    model.tokenizer.eos_token_ids = frozenset()
    state = KnownState(model)
    request = ask("abcabcabc", temperature=1, max_tokens=41)
    state.use_drafters(AvailableDrafters(random_drafter(model)))
    calls = {1: 1.0, 2: 1.1, **{rows: 1.1 + 0.45 * (rows - 2) for rows in range(3, MAX_ROWS + 1)}}
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, **{(rows, 128): ms for rows, ms in calls.items()}})
    state.costs.use(Part.BEAMS, {(WIDTH, length): 0.1 for length in LENGTHS})
    state.known = Known(4, believed)  # always three tokens
    return reply_of(state, request), model, request
