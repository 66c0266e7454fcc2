"""Foreign assistants: each setting is applied or refused by name."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat.inference.api import describes_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import change_tensors, refused
from tests.inference.drafting.heads.assistant_targets import (
    CASES,
    FULL,
    SLIDING,
    TARGET,
    assistant_folder,
    golden_folder,
    golden_target,
    shared_gemma,
    stored,
)
from tests.inference.fakes import loaded, shared_llama
from tests.inference.families import COMMON, network_of


@pytest.fixture
def model() -> LoadedModel:
    return shared_gemma()


@pytest.mark.parametrize("case", CASES)
def test_what_others_publish_is_read(case: str) -> None:
    folder = golden_folder(case)
    assert inspect_drafter(folder) is HeadKind.ASSISTANT
    assert describes_drafter(json.loads((folder / "config.json").read_text()))
    assert not check_drafter(folder, golden_target(case)).sure
    config = stored(folder, golden_target(case)).config
    assert (config.clusters, config.chosen_clusters) == ((8, 3) if case == "ordered" else (0, 0))


def test_the_unified_assistant_is_read_the_same_way(model: LoadedModel, tmp_path: Path) -> None:
    folder = assistant_folder(tmp_path, model_type="gemma4_unified_assistant")
    assert stored(folder, model).kind is HeadKind.ASSISTANT


def test_a_target_that_was_published_with_a_vision_part_is_drafted_for(tmp_path: Path) -> None:
    target = loaded(network_of("gemma4", {"text_config": {**COMMON, **TARGET}, "vocab_size": 31}))
    assert stored(assistant_folder(tmp_path), target).cache_numbers == {SLIDING: 0, FULL: 1}


def test_output_rows_of_their_own_and_unused_projections_are_told_by_name(model: LoadedModel, tmp_path: Path) -> None:
    folder = assistant_folder(tmp_path, tie_word_embeddings=False)
    rows = mx.random.normal((31, 24))
    change_tensors(folder, lm_head__weight=rows, model__layers__0__self_attn__k_proj__weight=mx.zeros((32, 24)))
    assert mx.array_equal(stored(folder, model).network.lm_head.weight, rows)


UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"backbone_hidden_size": 32}, {}, "projection.weight has the shape"),
    ({"text_config": None}, {}, "lacks rope_parameters"),
    ({"quantization": {"bits": 4}}, {}, "quantization is"),
    ({"use_ordered_embeddings": True, "num_centroids": 8}, {}, "num_centroids is 8"),
    ({"use_ordered_embeddings": True, "num_centroids": 31}, {}, "num_centroids is 31"),
    ({"use_ordered_embeddings": True, "num_centroids": 31, "centroid_intermediate_top_k": 2}, {}, "is missing"),
    ({}, {"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
    ({}, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
    ({}, {"enable_moe_block": True}, "enable_moe_block is True"),
    ({}, {"hidden_size_per_layer_input": 8}, "hidden_size_per_layer_input is 8"),
    ({}, {"use_double_wide_mlp": True}, "use_double_wide_mlp is True"),
    ({}, {"num_kv_shared_layers": 1}, "num_kv_shared_layers is 1"),
    ({}, {"num_hidden_layers": 10**9}, "num_hidden_layers is"),
    ({}, {"layer_types": ["chunked_attention"] * 2}, "layer_types is"),
    ({}, {"rope_parameters": {"rope_type": "default"}}, "rope_parameters is"),
    ({}, {"sliding_window": 1}, "sliding_window is 1"),
    ({}, {"vocab_size": 32}, "needs a model with 32 tokens"),
    ({}, {"global_head_dim": 64}, "has the shape"),
    ({}, {"num_attention_heads": 10**9}, "fewer weights than its configuration needs"),
    ({"backbone_hidden_size": 2**31 - 1}, {}, "fewer weights than its configuration needs"),
]


@pytest.mark.parametrize(("changes", "text", "message"), UNFIT, ids=[str(case[:2])[:60] for case in UNFIT])
def test_what_is_unknown_or_cannot_be_is_refused_by_name(
    changes: dict[str, Any], text: dict[str, Any], message: str, model: LoadedModel, tmp_path: Path
) -> None:
    folder = assistant_folder(tmp_path, text=text, **changes)
    for load in (check_drafter, load_drafter):
        refused(folder, model, message, load)


TENSORS: list[tuple[dict[str, mx.array | None], str]] = [
    ({"model__embed_tokens__weight": None}, "the tensor embed_tokens.weight is missing"),
    ({"model__extra__weight": mx.zeros(4)}, "has an unknown tensor extra.weight"),
    ({"masked_embedding__token_ordering": mx.zeros(31, mx.int64)}, "unknown tensor masked_embedding.token_ordering"),
]


@pytest.mark.parametrize(("changes", "message"), TENSORS, ids=[case[1] for case in TENSORS])
def test_tensors_that_do_not_fit_are_named(
    changes: dict[str, mx.array | None], message: str, model: LoadedModel, tmp_path: Path
) -> None:
    folder = assistant_folder(tmp_path)
    change_tensors(folder, **changes)
    refused(folder, model, message)


@pytest.mark.parametrize("ids", [mx.full(31, 31, mx.int64), mx.full(31, -1, mx.int64)], ids=["too large", "negative"])
def test_clusters_of_tokens_that_do_not_exist_are_refused(ids: mx.array, model: LoadedModel, tmp_path: Path) -> None:
    folder = assistant_folder(tmp_path, clusters=31)
    change_tensors(folder, masked_embedding__token_ordering=ids)
    refused(folder, model, "token_ordering has tokens that the model does not have")


def test_a_target_without_such_layers_is_named(tmp_path: Path) -> None:
    folder = assistant_folder(tmp_path / "other", backbone_hidden_size=32)
    change_tensors(folder, pre_projection__weight=mx.zeros((24, 64)), post_projection__weight=mx.zeros((32, 24)))
    refused(folder, shared_llama(), "keys of a sliding attention layer as Gemma 4 has it, but tiny has no such")


def test_a_target_whose_heads_have_another_width_is_named(tmp_path: Path) -> None:
    other = loaded(network_of("gemma4_text", {**TARGET, "vocab_size": 31, "global_head_dim": 64}))
    refused(assistant_folder(tmp_path), other, "keys of width 32 with 4 heads, but in a full attention layer tiny has")


def test_a_target_over_several_macs_is_refused(tmp_path: Path) -> None:
    """Each has the keys of some heads only."""
    other = loaded(network_of("gemma4_text", {**TARGET, "vocab_size": 31}))
    plain: Any = type(other.network)
    other.network.__class__ = type("Mirrored", (plain,), {"mirror": staticmethod(lambda *_: None)})
    refused(assistant_folder(tmp_path), other, "Gemma 4's assistant reads keys that are spread over several Macs")
