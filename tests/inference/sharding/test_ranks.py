"""Ranks, as processes on this machine, give the tokens of one, and their caches hold what fresh ones would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rdchat.inference.api import Mode
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Kind
from tests.inference.sharding.programs import MODES, results

# Processes that are ranks wait for each other's turn, which takes long on a busy machine.
# Rounding of float32, as a share of a cache's largest value.
ROUNDING = 1e-4
FAMILIES = ["qwen3", "qwen3_moe", "qwen3_5"]


def check(count: int, split: str, names: list[str], modes: Sequence[Mode] = MODES) -> None:
    leader, *followers = results("families", count, split, names, modes)
    for number, name in enumerate(names):
        replies: dict[str, Any] = leader[number]
        assert replies["actual"] == replies["expected"], name
        assert replies["kinds"][0] == replies["kinds"][1], name
        # The message before each call, and the sums of its layers.
        assert all(calls > 1 for _, calls in replies["exchanges"])
        assert "prefill" in dict(replies["exchanges"])
        for rank in (leader, *followers):
            caches = rank[number]["caches"]
            assert len(caches) == len(leader[number]["caches"]) > 0
            assert max(caches) < ROUNDING, name


@pytest.mark.timeout(1800)
def test_two_ranks_give_the_tokens_of_one() -> None:
    """Around stops, edits, further turns and pauses."""
    check(2, "tensor", ["llama"], [Mode.AUTO])


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_families_over_two_ranks() -> None:
    """In every mode, at temperature 0 and 0.9. The last one has recurrent state."""
    check(2, "tensor", FAMILIES)


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.parametrize(("split", "family"), [("tensor", "llama"), ("pipeline", "qwen2")])
def test_three_ranks(split: str, family: str) -> None:
    check(3, split, [family], [Mode.AUTO])


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_rank_0_queues_nothing_of_its_network_before_the_others_have_loaded(small_model: Path, tmp_path: Path) -> None:
    """A GPU that waits for another Mac is ended by macOS. A load that fails on rank 0 leaves the others in step."""
    queued, loads = results("late", 2, str(small_model), str(tmp_path / "loaded"))
    assert queued > loads


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_an_engine_sleeps_and_loads_another_precision(small_model: Path) -> None:
    arguments = str(small_model), 12, [("off", 0), ("lookup", 0.9)], ""
    assert results("engine", 2, *arguments)[0] == results("engine", 1, *arguments)[0]


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_the_default_model_over_three_ranks(default_model: Path) -> None:
    """The small models above have the other modes."""
    arguments = str(default_model), 6, [("drafter", 0.9)], str(default_model)
    assert results("engine", 3, *arguments)[0] == results("engine", 1, *arguments)[0]


def test_a_resting_rank_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests once rank 0 says so, and keeps its memory resident again only if it has a model."""
    kinds = iter([Kind.REST, Kind.LOAD, Kind.REST, Kind.END])
    monkeypatch.setattr(rank_messages, "receive", lambda _group: (next(kinds), [0, 7]))
    monkeypatch.setattr(rank_messages, "resolve_model", lambda *_: Path("model"))
    monkeypatch.setattr(rank_messages, "check_sum", lambda _: 7)
    steps = Mock()
    for name in (
        "unwire_memory",
        "wire_memory",
        "free_memory",
        "load_part",
        "meet",
        "Follower",
        "ModelHooks",
        "part_of",
    ):
        monkeypatch.setattr(rank_messages, name, getattr(steps, name))
    group: Any = object()
    rank_messages.run(group, "model", steps.rest)
    named = [name for name, *_ in steps.method_calls if name not in {"Follower", "ModelHooks", "part_of"}]
    rests = ["unwire_memory", "rest"]
    assert named == [*rests, "free_memory", "load_part", "meet", *rests, "wire_memory", "free_memory", "meet"]
