"""Configurations of block drafters as others export them: what their trainers mean, and what is copied noise."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, drafter_config, load_drafter
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import BlockConfig, Markov
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.head import HeadKind
from tests.inference.drafting.checkpoints.drafter_folders import change, refused
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.fakes import shared_llama

MROPE = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [2, 1, 1]}


def config_of(folder: Path) -> BlockConfig:
    stored = load_drafter(folder, shared_llama())
    assert isinstance(stored, BoundBlockHead)
    return stored.config


@pytest.mark.parametrize("kind", [{}, {"markov": Markov.VANILLA}], ids=str)
def test_the_targets_part_of_a_head_is_not_the_drafters(kind: dict[str, Any], tmp_path: Path) -> None:
    """Stock heads for Qwen3.5 copy its configuration, and turn whole heads all the same."""
    rope = MROPE | {"rope_theta": 1e7, "partial_rotary_factor": 0.25}
    noise = {"partial_rotary_factor": 0.25, "rope_parameters": rope, "attn_output_gate": True}
    config = config_of(written_block(tmp_path / "drafter", shared_llama(), noise, **kind))
    assert config.rope.theta == 1e7
    assert config.rope.scaling == {"rope_type": "default"}


def speculators_block(folder: Path, **changes: Any) -> Path:
    """Write a DSpark in vLLM's speculators layout; `changes` are settings at its top."""
    written_block(folder, shared_llama(), markov=Markov.VANILLA)
    path = folder / "config.json"
    layers = json.loads(path.read_text())
    names = ("block_size", "mask_token_id", "markov_rank", "markov_head_type", "draft_vocab_size")
    top = {name: layers.pop(name) for name in names}
    top |= {"speculators_model_type": "dspark", "aux_hidden_state_layer_ids": [1, 1]}
    path.write_text(json.dumps(top | {"transformer_layer_config": layers} | changes))
    return folder


def test_a_part_of_a_head_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    """It counts in vLLM; beside the settings of a rope it was refused, but without those it was dropped unseen."""
    folder = speculators_block(tmp_path / "drafter")
    layers = json.loads((folder / "config.json").read_text())["transformer_layer_config"]
    change(folder, transformer_layer_config=layers | {"partial_rotary_factor": 0.5})
    refused(folder, shared_llama(), "its setting partial_rotary_factor is 0.5")


def proposing(tokens: Any) -> dict[str, Any]:
    return {"speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": tokens}]}}


@pytest.mark.parametrize(
    ("changes", "from_anchor"),
    [
        ({}, False),  # vLLM's speculators before July 2026
        (proposing(4), False),
        (proposing(5), True),
        (proposing(None), False),
        ({"speculators_config": {"proposal_methods": 3}}, False),
        ({"speculators_config": {"proposal_methods": [3, None]}}, False),
        ({"sample_from_anchor": True}, True),
        (proposing(5) | {"sample_from_anchor": False}, False),
    ],
)
def test_a_dspark_without_a_word_on_its_anchor_was_trained_as_dflash(
    changes: dict[str, Any], from_anchor: bool, tmp_path: Path
) -> None:
    """Read the other way, each token is one too early, and hardly any is accepted."""
    config = config_of(speculators_block(tmp_path / "drafter", **changes))
    assert (config.from_anchor, config.max_drafted) == (from_anchor, 5 if from_anchor else 4)


def test_windows_may_stand_beside_the_settings_of_the_layers(tmp_path: Path) -> None:
    """vLLM heeds them there; without them, all layers saw the whole text, and each token of a block all others."""
    kinds = ["sliding_attention", "full_attention"]
    windows = {"layer_types": kinds, "use_sliding_window": True, "sliding_window": 3}
    config = config_of(speculators_block(tmp_path / "drafter", **windows))
    assert (config.windows, config.causal) == ((3, None), (True, False))


SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}


@pytest.mark.parametrize(
    ("changes", "causal"),
    [
        ({}, (True, False)),
        ({"is_causal": False}, (False, False)),
        ({"dflash_config": {"causal": False}}, (False, False)),
        ({"dflash_config": {"causal": True}}, (True, True)),
        ({"is_causal": False, "dflash_config": {"causal": True}}, (False, False)),
        ({"is_causal": False, "dflash_config": {"causal_head": True}}, (True, True)),
        ({"dflash_config": {"causal_head": False}}, (False, False)),
    ],
    ids=str,
)
def test_sliding_layers_look_back_unless_the_settings_say_otherwise(
    changes: dict[str, Any], causal: tuple[bool, bool], tmp_path: Path
) -> None:
    """So z-lab's drafters for Qwen3.6 were trained (z-lab/dflash, vLLM 47914, SGLang 34524); their windows move on."""
    folder = written_block(tmp_path / "drafter", shared_llama())
    change(folder, "dflash_config", **changes.get("dflash_config", {}))
    change(folder, **SLIDING | {name: value for name, value in changes.items() if name != "dflash_config"})
    config = config_of(folder)
    assert (config.windows, config.causal, config.rolling) == ((8, None), causal, True)


def test_nvidias_exports_have_a_window_on_all_layers(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama())
    change(folder, "dflash_config", use_swa=True, causal=False, swa_window_size=9)
    read = config_of(folder)
    assert (read.windows, read.causal) == ((8, 8), (False, False))
    change(folder, sliding_window=7)
    change(folder, "dflash_config", swa_window_size=None)
    assert config_of(folder).windows == (6, 6)
    change(folder, sliding_window=None)
    refused(folder, shared_llama(), "its setting swa_window_size is None")


def dspark_of(folder: Path, moved: tuple[str, ...], **changes: Any) -> Path:
    """Write a DSpark with some settings moved into its `dflash_config`; `changes` are settings at the top."""
    written_block(folder, shared_llama(), markov=Markov.VANILLA)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    inner = {"dflash_config": {name: config.pop(name) for name in moved}} if moved else {}
    path.write_text(json.dumps(config | inner | changes))
    return folder


@pytest.mark.parametrize(("bonus", "from_anchor"), [(True, False), (False, True), (None, True)])
def test_vllms_word_for_the_anchor_is_read(bonus: bool | None, from_anchor: bool, tmp_path: Path) -> None:
    changes = {} if bonus is None else {"dspark_bonus_anchor": bonus}
    assert config_of(dspark_of(tmp_path / "drafter", (), **changes)).from_anchor is from_anchor


def specforge_block(folder: Path, **changes: Any) -> Path:
    """Write a DSpark as SpecForge exports it; `changes` are settings in its `dflash_config`."""
    moved = ("mask_token_id", "target_layer_ids", "markov_rank", "markov_head_type")
    dspark_of(folder, moved, architectures=["DSparkDraftModel"])
    inner = {"projector_type": "dspark", "attention_mode": "gqa", "confidence_head_alpha": 1.0}
    inner |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
    change(folder, "dflash_config", **inner | changes)
    return folder


def test_specforge_keeps_the_settings_of_dspark_beside_the_mask(tmp_path: Path) -> None:
    """Its training labels the root's place with the token behind the root."""
    config = config_of(specforge_block(tmp_path / "drafter"))
    assert (config.markov, config.markov_rank, config.from_anchor) == (Markov.VANILLA, 8, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention_mode": "mla"}, "its setting attention_mode is 'mla'"),
        ({"attention_sink_bias": True}, "does not support its setting attention_sink_bias"),
    ],
)
def test_what_else_specforge_trains_is_refused_by_name(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    refused(specforge_block(tmp_path / "drafter", **changes), shared_llama(), words)


def test_liquid_ais_drafters_turn_neighbouring_values(tmp_path: Path) -> None:
    """Those for LFM2.5; with the usual pairs half of their drafts would be lost (mlx-dspark)."""
    moved = ("mask_token_id", "target_layer_ids", "num_target_layers")
    changes = {"architectures": ["Lfm2DSparkDraftModel"], "rope_is_neox_style": False, "enable_confidence_head": True}
    config = config_of(dspark_of(tmp_path / "drafter", moved, **changes))
    assert (config.rope.traditional, config.from_anchor, config.max_drafted) == (True, True, 5)
    assert (config.windows, config.causal) == ((None, None), (False, False))


def test_openbmbs_drafters_are_read_unless_they_scale_values(tmp_path: Path) -> None:
    """Those for MiniCPM5."""
    changes = {
        "sample_from_anchor": True,
        "confidence_head_with_markov": True,
        "attention_value_scale": None,
        "rope_theta": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
    }
    config = config_of(dspark_of(tmp_path / "drafter", (), **changes))
    assert (config.rope.theta, config.from_anchor, config.rope.traditional) == (5e6, True, False)
    scaled = dspark_of(tmp_path / "scaled", (), **changes | {"attention_value_scale": 0.5})
    refused(scaled, shared_llama(), r"its setting attention_value_scale is 0\.5")


def test_metas_assistant_leaves_sizes_to_its_class(tmp_path: Path) -> None:
    """It is for Muse Glimmer alone, whose sizes its configuration does not repeat."""
    folder = written_block(tmp_path / "drafter", shared_llama())
    path = folder / "config.json"
    weights = str(folder / "model.safetensors")
    config = json.loads(path.read_text()) | {"model_type": "muse_glimmer_assistant", "mask_token_id": 30}
    config |= {"layer_types": ["sliding_attention"] * 2, "sliding_window": 9, "target_layer_ids": [0, 0]}
    for name in ("dflash_config", "draft_vocab_size", "vocab_size", "num_target_layers"):
        del config[name]
    path.write_text(json.dumps(config))
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    tensors = {names.get(name, name): mx.array(np.array(tensor)) for name, tensor in mx.load(weights).items()}
    mx.save_safetensors(weights, tensors)
    kind, read = drafter_config(folder)
    assert (kind, read.vocabulary_size, read.target_depth) == (HeadKind.BLOCK, 202_048, 52)
    assert (read.windows, read.causal, read.rolling) == ((9, 9), (False, False), True)
    refused(folder, shared_llama(), "needs a model with 202,048 tokens, but tiny has 31", check_drafter)


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
