"""Rotary positions in configurations of published drafters, as transformers 4 and 5 and their trainers write them."""

from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.heads.decoder import RopeConfig

YARN = {"factor": 4.0, "original_max_position_embeddings": 512}


def rope_of(data: dict[str, Any]) -> RopeConfig:
    return Settings(Checkpoint(Path("drafter"), data, (), {}), data).rope("full_attention")


@pytest.mark.parametrize(
    ("data", "theta"),
    [
        ({}, 10_000),
        ({"rope_theta": 1e6}, 1e6),
        ({"rope_theta": 1e6, "rope_scaling": None}, 1e6),
        ({"rope_scaling": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
        ({"rope_theta": 1e4, "rope_scaling": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
        ({"rope_parameters": {"rope_theta": None, "full_attention": {"rope_theta": 1e6, "rope_type": "default"}}}, 1e6),
    ],
)
def test_the_base_is_found_wherever_it_is_written(data: dict[str, Any], theta: float) -> None:
    """Model Optimizer's templates have it in `rope_scaling`; without it, 10,000 was taken without a word."""
    assert rope_of(data).theta == theta


@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", ["rope_type", "type"])
def test_the_kind_may_have_its_older_name(place: str, name: str) -> None:
    rope = rope_of({"rope_theta": 1e6, place: {name: "yarn", **YARN}})
    assert rope.scaling == {"rope_type": "yarn", **YARN}


def test_a_texts_mrope_is_plain_rope() -> None:
    """Heads for Qwen2.5-VL name it so; a token of a text has the same position in all three of its parts."""
    rope = rope_of({"rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})
    assert rope.scaling == {"rope_type": "default"}
