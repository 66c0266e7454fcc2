"""What is measured of a drafter on plain replies, kept beside it, and begun with."""

import json
from pathlib import Path

import numpy as np
import pytest

from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.auto.acceptance import Acceptance
from rdchat.inference.auto.acceptance_file import read_acceptance, write_acceptance
from rdchat.inference.auto.calibration import (
    AcceptanceCalibration,
    node_chances,
    promises,
    values_by_length,
    values_of_width,
)
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDTHS
from rdchat.inference.auto.state import AutoState, AvailableDrafters
from rdchat.inference.drafting.beam_search import NodePool, step_probs
from tests.inference.fakes import ask, random_drafter, tiny_llama

SHAPE = (len(WIDTHS), len(LENGTHS), MOST_ROWS + 1)


def some() -> Acceptance:
    lengths = np.broadcast_to(np.array(LENGTHS, dtype=float)[:, None] - 1, SHAPE)
    return Acceptance((0.9, 0.8), np.round(np.minimum(lengths, np.arange(MOST_ROWS + 1) / 9), 3))


def test_it_is_read_back_from_beside_the_drafter(tmp_path: Path) -> None:
    write_acceptance(tmp_path, some())
    found = read_acceptance(tmp_path)
    assert found is not None
    assert found.rates == some().rates
    assert (found.values == some().values).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("values"),
        lambda data: data.update(format=2),
        lambda data: data.update(widths=[1, 2]),
        lambda data: data.update(values=data["values"][:1]),
        lambda data: data.update(values="much"),
        lambda data: data["values"][0].pop(),
        lambda data: data.update(rates=[-1.0]),
        lambda data: data.update(rates=[float("nan")]),
        lambda data: data["values"][0][0].__setitem__(3, float("inf")),
    ],
)
def test_what_cannot_be_used_is_as_if_it_were_not_there(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    assert read_acceptance(tmp_path) is None
    write_acceptance(tmp_path, some())
    file = tmp_path / "acceptance.json"
    data = json.loads(file.read_text())
    damage(data)
    file.write_text(json.dumps(data))
    assert read_acceptance(tmp_path) is None
    file.write_text("[1")
    assert read_acceptance(tmp_path) is None


def test_the_automatic_mode_begins_with_it(tmp_path: Path) -> None:
    write_acceptance(tmp_path, some())
    (tmp_path / "config.json").touch()
    model = tiny_llama()
    state = AutoState(model)
    state.equip(AvailableDrafters(random_drafter(model), tmp_path))
    estimates = state.estimates(SamplingParams(temperature=0))
    assert estimates.known is not None
    assert (estimates.known.values == some().values).all()
    assert [estimates.head(width).table()[2, 9] for width in WIDTHS] == pytest.approx(
        [some().values[0, 2, 9]] * 4, abs=0.01
    )
    assert state.estimates(SamplingParams(temperature=1)) is not estimates, "warmer text is followed less"


@pytest.mark.slow
def test_drafts_are_compared_with_plain_replies(tmp_path: Path) -> None:
    model = tiny_llama()
    model.tokenizer.eos_token_ids = frozenset()
    calibration = AcceptanceCalibration(model, random_drafter(model))
    assert calibration.acceptance is None
    replies = [(ask(text, temperature=0, max_tokens=60), tmp_path / f"{text}.npz") for text in ("abcabc", "bca", "c")]
    assert sum(calibration.reply(*reply) for reply in replies) == 180
    found = calibration.acceptance
    assert found is not None
    assert 0 < len(found.rates) <= LONGEST
    assert found.values.shape == SHAPE
    assert (np.diff(found.values, axis=2) >= 0).all(), "a node more is worth something"
    assert 0 < found.values[-1, -1, -1] < LONGEST

    again = AcceptanceCalibration(model, random_drafter(model))
    assert [again.reply(*reply) for reply in replies] == [0, 0, 0], "what was kept is not decoded again"
    assert again.acceptance is not None
    assert again.acceptance.rates == found.rates
    assert (again.acceptance.values == found.values).all()
    replies[1][1].write_bytes(b"cut short")
    assert [AcceptanceCalibration(model, random_drafter(model)).reply(*reply) for reply in replies] == [0, 60, 0]


# Two beams of two tokens; four nodes of each level are kept:
#   0 -> 1 (0.5), 2 (0.25), 3 (0.1), 4 (0.05);  1 -> 5 (0.4), 8 (0.04);  2 -> 6 (0.6), 7 (0.2)
PROBS = [1, 0.5, 0.25, 0.1, 0.05, 0.4, 0.6, 0.2, 0.08]
PARENTS = [-1, 0, 0, 0, 0, 1, 2, 2, 1]
PATHS = [1, 0.5, 0.25, 0.1, 0.05, 0.2, 0.15, 0.05, 0.04]
DRAWN = NodePool(np.arange(9) + 10, np.array(PARENTS), np.log(PATHS), levels=2, width=2)


def test_a_nodes_probability_is_what_its_score_adds() -> None:
    assert step_probs(DRAWN) == pytest.approx(PROBS)


def test_chances_are_products_along_the_path_of_what_comes_true() -> None:
    assert node_chances(DRAWN, (1.0,)) == pytest.approx(PATHS)
    assert node_chances(DRAWN, (0.5,)) == pytest.approx(
        [1, *(0.5 * np.array(PATHS[1:5])), *(0.25 * np.array(PATHS[5:]))]
    )
    assert node_chances(DRAWN, (1.0, 0.5))[5:] == pytest.approx(0.5 * np.array(PATHS[5:]))


def test_nodes_below_a_rejected_one_tell_nothing() -> None:
    assert list(promises(DRAWN, [12, 16])) == [(1.0, pytest.approx(0.9)), (1.0, pytest.approx(0.8))]
    assert list(promises(DRAWN, [99, 16])) == [(0.0, pytest.approx(0.9))]
    assert list(promises(DRAWN, [13, 16])) == [(1.0, pytest.approx(0.9))], "it has no children"


def test_a_trees_value_is_the_sum_of_its_best_nodes() -> None:
    table = values_by_length(DRAWN, np.array(PATHS))
    two, three = LENGTHS.index(2), LENGTHS.index(3)
    assert table[three, 1:6] == pytest.approx([0, 0.5, 0.75, 0.95, 1.1])
    assert table[two, 1:7] == pytest.approx([0, 0.5, 0.75, 0.85, 0.9, 0.9])
    assert not np.isfinite(table[LENGTHS.index(4)]).any(), "two tokens tell nothing of three"


def test_a_wide_draft_tells_of_narrower_ones() -> None:
    #   0 -> 1 (0.5), 2 (0.25), 3 (0.1), 4 (0.05);  1 -> 5 (0.4), 8 (0.04);  2 -> 6 (0.6), 7 (0.2)
    paths = np.array([1, 0.5, 0.25, 0.1, 0.05, 0.2, 0.15, 0.05, 0.04])
    pool = NodePool(np.arange(9), np.array([-1, 0, 0, 0, 0, 1, 2, 2, 1]), np.log(paths), levels=2, width=2)
    three = LENGTHS.index(3)
    assert values_of_width(pool, paths, 2)[three, 1:6] == pytest.approx([0, 0.5, 0.75, 0.95, 1.1])
    assert values_of_width(pool, paths, 1)[three, 1:5] == pytest.approx([0, 0.5, 0.7, 0.7])
