"""What a rank does between calls."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Kind


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
