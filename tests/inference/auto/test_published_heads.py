"""The automatic mode with EAGLE-3 and block drafters of random weights, through their folders."""

from pathlib import Path

import pytest

from rdchat.inference.auto.measuring import measure_beams
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms
from tests.inference.auto.chips import finished
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.fakes import tiny_llama

HEADS = {"eagle3": eagle3_folder, "block": written_block}


def ready(kind: str, model: LoadedModel, folder: Path) -> HeadModel:
    """Return a drafter of a kind, written to a folder and read from there."""
    head = HeadModel(model, load_drafter(HEADS[kind](folder / kind, model), model))
    assert head.head.kind == kind
    assert head.head.remembers
    return head


@pytest.mark.parametrize("kind", HEADS)
def test_their_costs_are_measured(kind: str, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    head = ready(kind, model, tmp_path)
    longest = min(6, 1 + head.head.max_drafted)
    costs = finished(measure_beams(model, head, 4, OtherPrograms())).costs
    assert set(costs) == {(4, 2), (4, longest)}
    assert all(ms > 0 for ms in costs.values())
