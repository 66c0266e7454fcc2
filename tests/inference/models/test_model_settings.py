"""What config.json says is what is computed: positions, defaults, output rows, windows; and faults of modules."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models import llama
from safetensors.numpy import load_file, save_file

from rdchat.inference.api import DraftKind
from rdchat.inference.loading import load_model
from rdchat.inference.mlx_lm_fixes.config_fixes import class_settings
from rdchat.inference.mlx_lm_fixes.network_fixes import follow_ropes
from rdchat.inference.models import model_settings
from rdchat.inference.models.model_locations import cached_facts, stamp_of
from scripts.families.drawn_weights import drawn
from tests.grids import share
from tests.inference.golden_families import EQUAL, GOLDEN, difference, golden_folder, logits
from tests.inference.model_folders import change_config

THETA = {"rope_type": "default", "rope_theta": 77.0}
LONG = {"original_max_position_embeddings": 64}
FEW = {"factor": 4.0, **LONG}
LLAMA3 = {**FEW, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def add_output_rows(folder: Path, equal: bool) -> None:
    """Give a folder with tied rows rows of its own for the output."""
    tensors = load_file(folder / "model.safetensors")
    inputs = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = inputs.copy() if equal else drawn("lm_head.weight", list(inputs.shape))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", share(sorted(GOLDEN), 6))
def test_a_family_computes_what_transformers_does(tmp_path: Path, name: str) -> None:
    """They were silently different, or refused for arguments or names of weights: see docs/families.md."""
    model = load_model(golden_folder(tmp_path / "model", name), "float32")
    assert difference(logits(model.network)[-1], np.array(GOLDEN[name]["logits"])) < EQUAL
    assert not model.info.warning or name.startswith("gemma3_text")


ROPES = some.one_of(
    some.just({"rope_type": "default"}),
    some.builds(lambda factor: {"rope_type": "linear", "factor": factor}, some.floats(1.5, 40)),
    some.builds(lambda factor: {"rope_type": "yarn", **LONG, "factor": factor}, some.floats(1.5, 40)),
    some.builds(lambda factor: {"rope_type": "llama3", **LLAMA3, "factor": factor}, some.floats(1.5, 40)),
)


@given(ROPES, some.floats(50, 1e6))
def test_one_key_and_two_mean_the_same_positions(rope: dict[str, Any], theta: float) -> None:
    """`rope_parameters` alone, as transformers 5 writes it, was not read: the module's default was used."""
    sizes = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}
    values = class_settings(sizes | {"rope_parameters": {"rope_theta": theta, **rope}})[0]["values"]
    older = class_settings(sizes | {"rope_theta": theta, "rope_scaling": rope})[0]["values"]
    assert values["rope_parameters"] == older["rope_parameters"]
    needed = {"num_hidden_layers": 1, "intermediate_size": 8, "rms_norm_eps": 1e-5, "vocab_size": 8}
    stock = llama.Model(llama.ModelArgs.from_dict({**sizes, **needed, "rope_theta": theta, "rope_scaling": rope}))
    ours = llama.Model(llama.ModelArgs.from_dict({**sizes, **needed}))
    follow_ropes(ours, values)
    x = mx.random.normal((1, 4, 9, 16), key=mx.random.key(0))
    turned, wanted = (np.array(each.layers[0].self_attn.rope(x, offset=1000)) for each in (ours, stock))
    assert np.abs(turned - wanted).max() < 1e-3


def test_infinity_is_read_as_transformers_writes_it(tmp_path: Path) -> None:
    """JSON has none, so `time_step_limit` of Mamba 2 ends in an object."""
    folder = golden_folder(tmp_path / "model", "mamba2")
    assert {"__float__": "Infinity"} in json.loads((folder / "config.json").read_text())["time_step_limit"]
    assert np.isfinite(logits(load_model(folder, "float32").network)).all()


def test_ordinary_folders_keep_their_modules(tmp_path: Path) -> None:
    """Nothing is replaced where mlx-lm is right: every bit of the logits stays."""
    config = {"rope_parameters": ..., "rope_theta": 5e5, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}}
    folder = golden_folder(tmp_path / "model", "llama with yarn", **config)
    stock, _ = mlx_lm_utils.load_model(folder)
    assert np.array_equal(logits(load_model(folder, "float32").network), logits(stock))


def test_dynamic_positions_are_plain_within_the_context(tmp_path: Path) -> None:
    """mlx-lm computes their base anew in each call, which forbade all drafts."""
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 77.0}
    folder = golden_folder(
        tmp_path / "model", "llama with yarn", rope_parameters=..., rope_scaling=dynamic, rope_theta=77.0
    )
    assert load_model(folder).capability.kind is DraftKind.TREE


@pytest.mark.parametrize("said", [True, None])
@pytest.mark.parametrize("equal", [True, False])
def test_rows_in_the_file_decide_whether_they_are_tied(tmp_path: Path, equal: bool, said: bool | None) -> None:
    """Without `tie_word_embeddings`, and with a wrong one, a checkpoint's own output rows were thrown away."""
    tie = ... if said is None else said
    folder = golden_folder(tmp_path / "model", "llama with yarn", tie_word_embeddings=tie)
    add_output_rows(folder, equal)
    network = load_model(folder, "float32").network
    assert ("lm_head" in network) is not equal
    assert cached_facts("tied rows", folder, stamp_of(folder)) is equal
    change_config(folder, tie_word_embeddings=False)
    assert np.array_equal(logits(load_model(folder, "float32").network), logits(network))


def test_compared_rows_are_not_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = golden_folder(tmp_path / "model", "llama with yarn", tie_word_embeddings=True)
    add_output_rows(folder, equal=True)
    load_model(folder)
    monkeypatch.setattr(model_settings, "_are_equal", pytest.fail)
    assert "lm_head" not in load_model(folder).network


def test_a_window_that_the_module_does_not_read_ends_the_context(tmp_path: Path) -> None:
    """Mistral 7B 0.1 has one of 4,096 in all layers; beyond it, replies were other ones than the model's."""
    folder = golden_folder(tmp_path / "model", "llama with yarn", rope_parameters=THETA, max_position_embeddings=64)
    change_config(folder, model_type="mistral", sliding_window=16)
    assert load_model(folder).info.context_length == 16
    change_config(folder, sliding_window=2048)
    assert load_model(folder).info.context_length == 64


def test_a_window_in_the_caches_does_not_end_the_context(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "gemma3_text", layer_types=...)
    assert load_model(folder).info.context_length == GOLDEN["gemma3_text"]["config"]["max_position_embeddings"]


def test_longrope_ends_where_its_short_factors_do(tmp_path: Path) -> None:
    """mlx-lm takes the long factors for short texts too."""
    assert load_model(golden_folder(tmp_path / "model", "phi3 with longrope")).info.context_length == 64


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(("positions", "length"), [(64, 256), (512, 512)])
def test_yarn_lengthens_the_context(tmp_path: Path, place: str, positions: int, length: int) -> None:
    """As model cards tell people to add it: `max_position_embeddings` stays, and prompts were refused."""
    yarn = {"rope_parameters": ..., "max_position_embeddings": positions, place: {"rope_type": "yarn", **FEW}}
    assert load_model(golden_folder(tmp_path / "model", "qwen2", **yarn)).info.context_length == length


def test_settings_that_the_module_does_not_read_are_named(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "qwen2", hidden_act="relu", attention_dropout=0.5)
    assert load_model(folder).info.warning == (
        "mlx-lm does not follow hidden_act of its config.json: replies can differ."
    )


@pytest.mark.parametrize("wrong", [{"rms_norm_eps": 1}, {"use_cache": None}, {"rms_norm_eps": "much"}])
def test_a_value_of_a_wrong_type_does_not_hide_the_others(wrong: dict[str, Any]) -> None:
    config = {"model_type": "llama", "rope_parameters": THETA, **wrong}
    assert class_settings(config)[0]["values"]["rope_parameters"] == THETA


def test_settings_that_their_part_does_not_have_are_not_named() -> None:
    """Some files repeat those of the text beside it, where no library reads them."""
    config = {"model_type": "llama4", "rms_norm_eps": 0.3, "text_config": {"rms_norm_eps": 0.3}}
    assert [set(part["changed"]) for part in class_settings(config)] == [set(), {"rms_norm_eps"}]


def test_an_unknown_model_type_has_its_own_settings(tmp_path: Path) -> None:
    """transformers does not know it, mlx-lm does: `rope_parameters` is handed over all the same."""
    folder = golden_folder(tmp_path / "model", "llama with yarn", model_type="nanbeige", rope_parameters=THETA)
    assert class_settings(json.loads((folder / "config.json").read_text()))[0]["values"] == {}
    network = load_model(folder).network
    assert network.layers[0].self_attn.rope.base == 77.0
    assert not any("rope" in name for name, _ in tree_flatten(network.parameters()))
