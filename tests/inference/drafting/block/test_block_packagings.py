"""Configurations of block drafters as others export them: what their trainers mean by them, and what is copied noise."""

from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.drafting.folders.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.block_config import BlockConfig, Markov
from rdchat.inference.drafting.heads.block_head import StoredBlockHead
from tests.inference.drafting.block.block_drafters import written_block
from tests.inference.fakes import shared_llama

MROPE = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]}


def config_of(folder: Path) -> BlockConfig:
    stored = load_drafter(folder, shared_llama())
    assert isinstance(stored, StoredBlockHead)
    return stored.config


@pytest.mark.parametrize("kind", [{}, {"markov": Markov.VANILLA}], ids=str)
def test_the_targets_part_of_a_head_is_not_the_drafters(kind: dict[str, Any], tmp_path: Path) -> None:
    """Stock heads for Qwen3.5 copy its configuration, and turn whole heads all the same."""
    rope = MROPE | {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
    noise = {"partial_rotary_factor": 0.25, "rope_parameters": rope, "attn_output_gate": True}
    config = config_of(written_block(tmp_path / "drafter", shared_llama(), noise, **kind))
    assert config.rope.theta == 1e7
    assert config.rope.scaling == {"rope_type": "default"}
