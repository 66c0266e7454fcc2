"""The automatic mode with EAGLE-3 and block drafters of random weights, through their folders."""

from pathlib import Path

import pytest

from rdchat.inference.api import Mode, ReplyEnd
from rdchat.inference.auto.measuring import measure_beams
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms
from tests.grids import grid
from tests.inference.auto.automatic_replies import automatic
from tests.inference.auto.chips import finished
from tests.inference.drafting.checkpoints.eagle3_folders import eagle3_folder
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.fakes import ask, shared_llama, tiny_llama
from tests.inference.plain_replies import plain

HEADS = {"eagle3": eagle3_folder, "block": written_block}


def ready(kind: str, model: LoadedModel, folder: Path) -> HeadModel:
    """Return a drafter of a kind, written to a folder and read from there."""
    head = HeadModel(model, load_drafter(HEADS[kind](folder / kind, model), model))
    assert head.head.kind == kind
    assert head.head.remembers
    return head


@pytest.mark.across_rows
@pytest.mark.parametrize(("temperature", "kind"), grid([0.0, 0.7, 1.3], list(HEADS), one_in=5))
def test_the_text_is_that_of_plain_decoding(kind: str, temperature: float, tmp_path: Path) -> None:
    model = shared_llama()
    request = ask("abcabcabc", seed=5, max_tokens=40, temperature=temperature)
    expected = plain(model, request)
    events, *_ = automatic(model, request, (Mode.LOOKUP, Mode.DRAFTER), 0, ready(kind, model, tmp_path))
    end = events[-1]
    assert isinstance(end, ReplyEnd)
    assert (end.token_ids, end.text) == (expected.token_ids, expected.text)
    assert end.statistics.rounds > 0


@pytest.mark.parametrize("kind", HEADS)
def test_their_costs_are_measured(kind: str, tmp_path: Path) -> None:
    model = tiny_llama(context_length=2048)
    head = ready(kind, model, tmp_path)
    longest = min(6, 1 + head.head.max_drafted)
    costs = finished(measure_beams(model, head, 4, OtherPrograms())).costs
    assert set(costs) == {(4, 2), (4, longest)}
    assert all(ms > 0 for ms in costs.values())
