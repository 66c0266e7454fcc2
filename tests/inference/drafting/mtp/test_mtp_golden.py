"""MTP layers against transformers' own: logits that `scripts/golden_mtp.py` had them compute."""

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.head import HeadMemory, HeadState, Root
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from tests.inference.drafting.mtp.mtp_targets import CASES, golden_folder, golden_target

pytestmark = pytest.mark.across_rows


class Golden:
    """One case: the layer bound to a target of its family, and what the reference computes."""

    def __init__(self, case: str) -> None:
        model = golden_target(case)
        head = load_drafter(golden_folder(case), model).bind(model)
        assert isinstance(head, BoundMtpHead)
        self.head = head
        self.expected: dict[str, npt.NDArray] = dict(np.load(golden_folder(case) / "expected.npz"))
        self.hidden = mx.array(self.expected["hidden"])
        self.following = self.expected["following"].tolist()

    def memory(self, rows: int) -> HeadMemory:
        """Return a memory that knows what comes before the root whose row is the last of some; 0 is the first token."""
        memory = self.head.memory()
        tokens = [0, *self.following[: rows - 1]]
        memory.begin(tokens)
        memory.take(tokens, self.hidden[:rows], 0)
        return memory

    def state(self, rows: int) -> HeadState:
        """Return the state of that root."""
        return self.memory(rows).state(Root(self.following[rows - 1], rows, self.hidden[rows - 1]))

    def assert_same(self, found: mx.array, name: str, rows: slice) -> None:
        np.testing.assert_allclose(np.array(found), self.expected[name][rows], atol=2e-4)

    def assert_chain(self, name: str) -> None:
        state = self.state(len(self.following))
        for place, token in enumerate(self.expected["chain"]):
            state = state.after(mx.array([0]), mx.array([int(token)]))
            self.assert_same(state.logits(), name, slice(place, place + 1))


@pytest.fixture(params=CASES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_each_row_of_a_prompt_has_the_references_logits(golden: Golden) -> None:
    for rows in range(1, len(golden.following) + 1):
        golden.assert_same(golden.state(rows).logits(), "logits", slice(rows - 1, rows))


def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: Golden) -> None:
    memory = golden.head.memory()
    memory.begin([0])
    token = 0
    for place, following in enumerate(golden.following):
        memory.take([token], golden.hidden[place : place + 1], place)
        state = memory.state(Root(following, place + 1, golden.hidden[place]))
        golden.assert_same(state.logits(), "logits", slice(place, place + 1))
        token = following


def test_a_chain_has_the_references_logits(golden: Golden) -> None:
    golden.assert_chain("chain_logits")
    golden.head.read_as(Reading(recycles_before_norm=True))
    golden.assert_chain("chain_before")


def test_a_tree_has_the_references_logits(golden: Golden) -> None:
    state = golden.state(len(golden.following))
    tokens, parents = golden.expected["tree"], golden.expected["parents"]
    level = [-1]
    while (nodes := np.flatnonzero(np.isin(parents, level))).size:
        beams = mx.array([level.index(parents[node]) for node in nodes])
        state = state.after(beams, mx.array(tokens[nodes]))
        golden.assert_same(state.logits(), "tree_logits", slice(nodes[0], nodes[-1] + 1))
        level = nodes.tolist()
    assert level[-1] == len(parents) - 1, "all nodes were drafted"
