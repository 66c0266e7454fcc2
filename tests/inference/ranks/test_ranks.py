"""Ranks, as processes on this machine, give the tokens of one, and their caches hold what fresh ones would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.api.requests import Mode
from tests.inference.ranks.programs import MODES, results

# Processes that are ranks wait for each other's turn, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(1800)
# Rounding of float32, as a share of a cache's largest value.
ROUNDING = 1e-4


def check(count: int, split: str, names: list[str], modes: Sequence[Mode] = MODES) -> None:
    leader, *followers = results("families", count, split, names, modes)
    for number, name in enumerate(names):
        replies: dict[str, Any] = leader[number]
        assert replies["actual"] == replies["expected"], name
        assert replies["kinds"][0] == replies["kinds"][1], name
        for rank in (leader, *followers):
            caches = rank[number]["caches"]
            assert len(caches) == len(leader[number]["caches"]) > 0
            assert max(caches) < ROUNDING, name


def test_two_ranks_give_the_tokens_of_one() -> None:
    """Around stops, edits, further turns and pauses."""
    check(2, "tensor", ["llama"], [Mode.AUTO])


@pytest.mark.slow
def test_families_over_two_ranks() -> None:
    """In every mode, at temperature 0 and 0.9. The last one has recurrent state."""
    check(2, "tensor", ["llama", "qwen3", "qwen3_moe", "qwen3_5"])


@pytest.mark.slow
def test_three_ranks() -> None:
    check(3, "tensor", ["llama", "qwen3_moe"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_a_pipeline(count: int) -> None:
    check(count, "pipeline", ["qwen2"])


@pytest.mark.slow
def test_an_engine_sleeps_and_loads_another_precision(small_model: Path) -> None:
    arguments = str(small_model), 12, [("off", 0), ("lookup", 0.9)], ""
    assert results("engine", 2, *arguments)[0] == results("engine", 1, *arguments)[0]


@pytest.mark.slow
def test_the_default_model_over_three_ranks(default_model: Path) -> None:
    """In three modes: each token takes a second. The small models above have all of them."""
    arguments = str(default_model), 6, [("off", 0), ("drafter", 0.9), ("auto", 0.9)], str(default_model)
    assert results("engine", 3, *arguments)[0] == results("engine", 1, *arguments)[0]
