"""MTP layers against transformers' own: logits that `scripts/golden_mtp.py` had them compute."""

import pytest

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from tests.inference.drafting.heads.golden_heads import GoldenHead
from tests.inference.drafting.heads.mtp_targets import CASES, golden_folder, golden_target

pytestmark = pytest.mark.across_rows


@pytest.fixture(params=CASES)
def golden(request: pytest.FixtureRequest) -> GoldenHead:
    """The layer bound to a target of its family."""
    model = golden_target(request.param)
    folder = golden_folder(request.param)
    return GoldenHead(load_drafter(folder, model), folder, "hidden", 2e-4)


def test_each_family_has_a_chain_and_a_tree(golden: GoldenHead) -> None:
    assert {"chain", "tree", "parents"} <= golden.expected.keys()


def test_each_row_of_a_prompt_has_the_references_logits(golden: GoldenHead) -> None:
    golden.assert_each_row()


def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: GoldenHead) -> None:
    golden.assert_rows_one_by_one()


def test_a_chain_has_the_references_logits(golden: GoldenHead) -> None:
    golden.assert_chain()
    assert isinstance(golden.head, BoundMtpHead)
    golden.head.read_as(Reading(recycles_before_norm=True))
    golden.assert_chain("chain_before")


def test_a_tree_has_the_references_logits(golden: GoldenHead) -> None:
    golden.assert_tree()
