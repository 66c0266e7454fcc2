"""Published block drafters: recognised by content, bound by sizes, refused if they do not fit."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import Markov
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.verification.target import embedding_scale
from tests.inference.drafting.checkpoints.drafter_folders import change, change_tensors, edit_tensors, refused
from tests.inference.drafting.heads.block_drafters import (
    JETSPEC,
    KINDS,
    XPRESS,
    stored_block,
    written_block,
)
from tests.inference.fakes import shared_family, shared_llama

OWN: dict[str, Any] = {"markov": Markov.GATED, "own_embeddings": True, "own_output": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drafter; not to be changed."""
    return written_block(tmp_path_factory.mktemp("whole") / "drafter", shared_llama(), **OWN)


@pytest.fixture
def drafter(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "drafter"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_written_is_read_again(kind: dict, tmp_path: Path) -> None:
    if "markov" in kind:
        # DeepSpec's layout has no windows.
        kind = {name: value for name, value in kind.items() if name != "windows"}
    model = shared_llama()
    folder = written_block(tmp_path / "drafter", model, **kind)
    assert inspect_drafter(folder) is HeadKind.BLOCK
    loaded = load_drafter(folder, model)
    made = stored_block(model, **kind)
    assert isinstance(loaded, BoundBlockHead)
    found = dict(tree_flatten(loaded.network.parameters()))
    wanted = made.weights()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        np.testing.assert_array_equal(np.array(found[name]), np.array(tensor))
    for name in ("from_anchor", "windows", "causal", "uncorrected", "selected", "refiner_inner"):
        assert getattr(loaded.config, name) == getattr(made.config, name)
    if made.vocabulary is not None:
        np.testing.assert_array_equal(np.array(loaded.vocabulary), np.array(made.vocabulary))


def test_a_drafter_is_known_by_its_tensors_alone(drafter: Path) -> None:
    """Names and classes are as their makers like; `auto_map` names code that is never run."""
    (drafter / "code.py").write_text("raise SystemExit('run')")
    prefixed = lambda tensors: [tensors.update({f"model.{name}": tensors.pop(name)}) for name in list(tensors)]  # noqa: E731
    edit_tensors(drafter, prefixed)
    change(drafter, model_type="llama", architectures=["LlamaForCausalLMEagle3"])
    assert isinstance(load_drafter(drafter, shared_llama()), BoundBlockHead)


@pytest.mark.slow
def test_floats_are_not_all_in_memory_beside_their_quantised_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter for a large model once had all its floats in memory until the last was quantised."""
    model = shared_family("llama")
    folder = written_block(
        tmp_path / "drafter", model, **OWN, inner_size=2**13, windows=(None,) * 4, causal=(False,) * 4
    )
    stored_bytes = (folder / "model.safetensors").stat().st_size
    assert stored_bytes > 20e6
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    monkeypatch.setattr("rdchat.inference.drafting.heads.head.on_gpu", lambda: True)
    bound = load_drafter(folder, model)
    assert isinstance(bound, BoundBlockHead)
    assert bound.network.layers[0].mlp.down_proj.bits == 4
    assert mx.get_peak_memory() - before < stored_bytes * 0.4


def test_shards_are_read_together(drafter: Path) -> None:
    tensors = dict(mx.load(str(drafter / "model.safetensors")))
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        shard = drafter / f"model-0000{number + 1}-of-00002.safetensors"
        mx.save_safetensors(str(shard), {name: tensors[name] for name in part})
    (drafter / "model.safetensors").unlink()
    assert isinstance(load_drafter(drafter, shared_llama()), BoundBlockHead)
    shard.unlink()
    refused(drafter, shared_llama(), "it has 1 of 2 files of weights", check_drafter)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "relu"}, "its setting hidden_act is 'relu'"),
        ({"markov_head_type": "lstm"}, "its setting markov_head_type is 'lstm'"),
        ({"markov_rank": 9}, "its tensor markov_head.gate_proj.bias has the shape"),
        ({"markov_rank": 0}, "has an unknown tensor markov_head.gate_proj.bias"),
        ({"num_hidden_layers": 3}, "the tensor layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 10**9}, "its setting num_hidden_layers is 1000000000"),
        ({"intermediate_size": None}, "its configuration lacks intermediate_size"),
        ({"num_key_value_heads": 3}, "its 4 query heads cannot share 3"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "its setting layer_types is"),
        ({"layer_types": ["sliding_attention"] * 2}, "its configuration lacks sliding_window"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "its setting rope_type is 'longrope'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "its setting type is 'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "lacks factor for its linear rope"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "its setting factor is 0"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "wave": 1}}, "does not support its setting wave"),
        ({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2}}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 0.5}}, "its setting rope_theta is 0.5"),
        ({"head_dim": 7}, "cannot rotate 7 of 7 values in pairs"),
        ({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.4}}, "cannot rotate 3.2 of 8"),
        ({"block_size": 10**6}, "its setting block_size is 1000000"),
        ({"mask_token_id": None}, "its configuration lacks mask_token_id"),
        ({"mask_token_id": 31}, "its setting mask_token_id is 31"),
        ({"target_layer_ids": None}, "its configuration lacks target_layer_ids"),
        ({"target_layer_ids": [-1, 0]}, "its setting target_layer_ids is"),
        ({"target_layer_ids": [0, 900]}, r"it reads the layers \[0, 900\], but tiny has 2"),
        ({"draft_vocab_size": 20}, r"it drafts 20 tokens and does not say which \(d2t\)"),
        ({"dflash_config": {"causal": "yes"}}, "its setting causal is 'yes'"),
        ({"dflash_config": {"selector": 4}}, "does not support its setting selector"),
        ({"gating": "per-head"}, "its setting gating is 'per-head'"),
        ({"x" * 10**5: 1, "hidden_act": "y" * 10**5}, "its setting hidden_act is 'yyy"),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, Any], words: str, drafter: Path) -> None:
    change(drafter, **changes)
    refused(drafter, shared_llama(), words)


DOMINO, DFLASH2 = KINDS[4:6]


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (DOMINO, {"gru_hidden_dim": None}, "its configuration lacks gru_hidden_dim"),
        (DOMINO, {"emb_dim": 8}, "its tensor embed_proj.0.weight has the shape"),
        (DOMINO, {"projector_type": "dspark"}, "its setting projector_type is 'dspark'"),
        (DOMINO, {"shift_label": 1}, "its setting shift_label is 1"),
        (DFLASH2, {"conv_kernel_size": 6}, "its setting conv_kernel_size is 6"),
        (DFLASH2, {"conv_group_size": 5}, "its setting conv_group_size is 5"),
        (DFLASH2, {"selector_top_k": 32}, "its setting selector_top_k is 32"),
        (DFLASH2, {"selector_rank": 4}, "its tensor candidate_selector.hidden_projection.weight has the shape"),
        (DFLASH2, {"output_multiplier": -1}, "its setting output_multiplier is -1"),
        (JETSPEC, {"draft_shift": "no"}, "its setting draft_shift is 'no'"),
        (JETSPEC, {"target_hidden_size": 32}, "does not support its setting target_hidden_size"),
        (JETSPEC, {"draft_shift": True, "sample_from_anchor": False}, "its setting draft_shift is True"),
        ({}, {"draft_shift": True}, "its setting draft_shift is True"),
        (XPRESS, {"xpress_rank": 0}, "its setting xpress_rank is 0"),
        (XPRESS, {"xpress_rank": 7}, "its tensor refiner_head.down_g.weight has the shape"),
        (XPRESS, {"xpress_mlp_hidden": 2**50}, "its setting xpress_mlp_hidden is"),
        (XPRESS, {"xpress_block_size": 4}, "its setting xpress_block_size is 4"),
        (XPRESS, {"markov_rank": 8}, "does not know drafters with two kinds of corrections"),
    ],
)
def test_settings_of_later_kinds_that_do_not_fit(
    kind: dict[str, Any], changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **kind)
    for name, value in changes.items():
        change(folder, None if name.startswith("xpress") else "dflash_config", **{name: value})
    refused(folder, shared_llama(), words)


@pytest.mark.parametrize("told", [{"architectures": ["DSpineDraftModel"]}, {"dspine_config": {"top_k": 16}}], ids=str)
def test_a_dspine_is_refused_by_name(told: dict[str, Any], drafter: Path) -> None:
    change(drafter, **told)
    error = refused(drafter, shared_llama(), "does not know how the layers of a DSpine")
    assert "newer version of rdchat" in str(error.hint)


def test_a_shifted_jetspec_drafts_one_token_less_than_its_block(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **JETSPEC)
    change(folder, "dflash_config", draft_shift=True)
    loaded = load_drafter(folder, shared_llama())
    assert isinstance(loaded, BoundBlockHead)
    assert (loaded.config.from_anchor, loaded.max_drafted) == (True, 4)


def test_parts_of_dflash_2_that_the_configuration_does_not_mention_are_not_left_out(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **DFLASH2)
    change(folder, dflash_config={"target_layer_ids": [0, 0], "mask_token_id": 30})
    refused(folder, shared_llama(), "its configuration lacks conv_kernel_size", check_drafter)
    edit_tensors(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if "selector" in name])
    refused(folder, shared_llama(), r"has an unknown tensor layers\.0\.attention_conv", check_drafter)


def test_convolutions_in_layers_of_gemma_4_are_refused(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **DFLASH2, gemma=True)
    change(folder, hidden_activation="gelu_pytorch_tanh", global_head_dim=8)
    refused(folder, shared_llama(), "does not know convolutions in layers of Gemma 4", check_drafter)


def test_a_list_that_only_training_reads_may_be_longer(tmp_path: Path) -> None:
    """Such as by a table's padding: vLLM and SGLang leave it out."""
    folder = written_block(tmp_path / "drafter", shared_llama(), **KINDS[2])
    change_tensors(folder, t2d=mx.arange(40) >= 5)
    refused(folder, shared_llama(), "d2t and t2d do not name the same tokens")
    change_tensors(folder, t2d=(mx.arange(40) >= 5) & (mx.arange(40) < 31))
    assert load_drafter(folder, shared_llama()).vocabulary.tolist() == list(range(5, 31))


def test_early_dominos_keep_their_parts_in_a_module_of_their_own(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **DOMINO)
    parts = ("prefix_gru", "embed_proj")
    edit_tensors(
        folder,
        lambda tensors: [
            tensors.update({f"logit_head.{name}": tensors.pop(name)})
            for name in list(tensors)
            if name.startswith(parts)
        ],
    )
    assert isinstance(load_drafter(folder, shared_llama()), BoundBlockHead)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers__1__mlp__up_proj__weight": None}, "the tensor layers.1.mlp.up_proj.weight is missing"),
        ({"conv__weight": mx.zeros(3)}, "it has an unknown tensor conv.weight"),
        ({"norm__weight": mx.zeros((32, 1))}, "its tensor norm.weight has the shape"),
        ({"norm__weight": mx.zeros(32, mx.uint32)}, "norm.weight is stored as U32"),
        ({"model__norm__weight": mx.zeros(32)}, "has the tensor norm.weight twice"),
        ({"norm__weight": mx.full(32, mx.inf)}, "its tensor norm.weight has values that are not finite"),
        ({"fc__weight": None}, "the tensor fc.weight is missing"),
        ({"hidden_norm__weight": None}, "the tensor hidden_norm.weight is missing"),
    ],
)
def test_tensors_that_do_not_fit(changes: dict[str, mx.array | None], words: str, drafter: Path) -> None:
    change_tensors(drafter, **changes)
    refused(drafter, shared_llama(), words)


def test_another_models_drafter_is_refused(drafter: Path, tmp_path: Path) -> None:
    refused(
        drafter, shared_family("llama"), "needs a model with hidden states of width 32, but tiny has 64", check_drafter
    )
    tableless = written_block(tmp_path / "tableless", shared_llama())
    change(tableless, vocab_size=40, draft_vocab_size=40)
    refused(tableless, shared_llama(), "needs a model with 40 tokens, but tiny has 31", check_drafter)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (None, "It does not say which model it is for; its sizes fit org/Tiny-4bit."),
        ("Qwen/tiny", "It was made for Qwen/tiny; name and sizes fit org/Tiny-4bit."),
        ("Qwen/Other", "It was made for Qwen/Other; its sizes fit org/Tiny-4bit as well."),
    ],
)
def test_how_sure_it_is_whose_drafter_it_is(named: str | None, words: str, drafter: Path) -> None:
    change(drafter, target_model_name_or_path=named)
    model = shared_llama()
    fit = check_drafter(drafter, replace(model, info=replace(model.info, name="org/Tiny-4bit")))
    assert (fit.sure, fit.text) == (False, words)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("qwen3_moe", "It was made for a qwen3_moe model; its sizes fit tiny as well."),
        ("llama", "It does not say which model it is for; its sizes fit tiny."),
        (7, "It does not say which model it is for; its sizes fit tiny."),
    ],
)
def test_a_drafter_may_say_the_kind_of_its_target(kind: object, words: str, drafter: Path) -> None:
    """AngelSlim and SpecForge write it; Qwen3-30B-A3B's sizes are those of Qwen3-1.7B."""
    change(drafter, target_model_name_or_path=None, target_model_type=kind)
    assert check_drafter(drafter, shared_llama()).text == words


def test_confidence_heads_are_accepted_and_left(drafter: Path) -> None:
    more = {"confidence_head.proj.weight": mx.zeros((1, 40)), "confidence_head.proj.bias": mx.zeros(1)}
    edit_tensors(drafter, lambda tensors: tensors.update(more))
    change(drafter, enable_confidence_head=True, confidence_head_with_markov=True)
    stored = load_drafter(drafter, shared_llama())
    assert isinstance(stored, BoundBlockHead)
    assert "confidence_head.proj.weight" not in dict(tree_flatten(stored.network.parameters()))


def test_tables_of_gemma_are_scaled_as_transformers_does_it() -> None:
    assert embedding_scale("gemma3_text", 64) == embedding_scale("gemma4", 64) == 8
    assert embedding_scale("gemma2", 64) == embedding_scale("qwen3", 64) == 1
    model = shared_family("gemma3")
    scaled = replace(model, info=replace(model.info, architecture="gemma3_text"))
    plain, larger = (stored_block(model).bind(one).embeddings(3, 5) for one in (model, scaled))
    np.testing.assert_allclose(np.array(larger), 8 * np.array(plain), rtol=1e-6)
