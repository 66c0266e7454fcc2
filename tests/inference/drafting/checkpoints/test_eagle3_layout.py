"""Foreign EAGLE-3 checkpoints: each setting is applied or refused, and no code is run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.heads.eagle3_head import BoundEagle3Head
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import change, change_tensors, refused
from tests.inference.drafting.heads.eagle3_drafters import LAYOUTS, eagle3_folder, golden_folders
from tests.inference.fakes import loaded, shared_family, shared_llama
from tests.inference.families import network_of


@pytest.fixture
def model() -> LoadedModel:
    return shared_llama()  # two layers of width 32, 31 tokens


def stored(folder: Path, model: LoadedModel) -> BoundEagle3Head:
    found = load_drafter(folder, model)
    assert isinstance(found, BoundEagle3Head)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_read(layout: str, model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, layout)
    assert inspect_drafter(folder) is HeadKind.EAGLE3
    assert not check_drafter(folder, model).sure
    drafter = stored(folder, model)
    config = drafter.config
    network = drafter.network
    assert {name: tensor.shape for name, tensor in tree_flatten(network.parameters())} == config.shapes()
    assert drafter.vocabulary.tolist() == sorted(drafter.vocabulary.tolist())
    assert drafter.vocabulary.shape == (31,) if layout == "deepspec" else (20,)
    assert config.target_layers == ((0, 1, 0, 0, 1) if layout == "deepspec" else (0, 1, 0))
    assert config.qk_norm == (layout == "deepspec")
    assert config.norm_before_residual == (layout == "speculators")


@pytest.mark.parametrize(
    ("layout", "changes", "layers"),
    [
        ("safeailab", {"eagle_config": None}, (1, 5, 8)),
        ("safeailab", {"eagle_config": {}}, (1, 5, 8)),
        ("safeailab", {"eagle_aux_hidden_state_layer_ids": [2, 6, 9]}, (1, 5, 8)),
        ("safeailab", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}}, (1, 5, 8)),
        ("safeailab", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [8, 10, 12]}}, (7, 9, 11)),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": None}, (1, 5, 8)),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [2, 6, 12]}, (1, 5, 11)),
        ("deepspec", {"target_layer_ids": [1, 3, 5, 7, 9], "num_target_layers": 12}, (1, 3, 5, 7, 9)),
    ],
)
def test_which_layers_are_read(
    layout: str, changes: dict[str, Any], layers: tuple[int, ...], model: LoadedModel, tmp_path: Path
) -> None:
    """The references count them in two ways."""
    deep = shared_deep()
    folder = eagle3_folder(tmp_path / "drafter", deep, layout, **changes)
    assert stored(folder, deep).config.target_layers == layers


@cache
def shared_deep() -> LoadedModel:
    """Return a target of twelve layers."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 12, "vocab_size": 31, "intermediate_size": 8}
    return loaded(network_of("llama", sizes))


UNFIT: list[tuple[str, dict[str, Any], str]] = [
    ("safeailab", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("safeailab", {"model_type": "gemma4_text"}, "model_type is 'gemma4_text'"),
    ("safeailab", {"parallel_drafting": True}, "does not know its setting parallel_drafting"),
    ("safeailab", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state is False"),
    ("safeailab", {"eagle_config": {"parallel_draft_step": 4}}, "parallel_draft_step is 4"),
    ("safeailab", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
    ("safeailab", {"logit_scale": 0.5}, "logit_scale is 0.5"),
    ("safeailab", {"use_rotary_pos_emb": False}, "use_rotary_pos_emb is False"),
    ("safeailab", {"sliding_window": 4}, "sliding_window is 4"),
    ("safeailab", {"num_hidden_layers": 2}, "the tensor layers.1."),
    ("safeailab", {"draft_vocab_size": 2**31 - 1}, "it proposes 2,147,483,647 tokens"),
    ("safeailab", {"draft_vocab_size": 19}, "has the shape"),
    ("safeailab", {"vocab_size": 32}, "needs a model with 32 tokens"),
    ("safeailab", {"norm_before_fc": True}, "the tensor input_norm.weight is missing"),
    ("safeailab", {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, "eagle_aux_hidden_state_layer_ids is"),
    ("safeailab", {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, "reads the layers"),
    ("speculators", {"speculators_model_type": "peagle"}, "speculators_model_type is 'peagle'"),
    ("speculators", {"norm_before_residual": None}, "lacks norm_before_residual"),
    ("speculators", {"fc_norm": True}, "fc_norm is True"),
    ("speculators", {"transformer_layer_config": None}, "lacks hidden_size"),
]


@pytest.mark.parametrize(("layout", "changes", "words"), UNFIT, ids=[str(case[1])[:50] for case in UNFIT])
def test_what_is_unknown_or_cannot_be_is_refused_by_name(
    layout: str, changes: dict[str, Any], words: str, model: LoadedModel, tmp_path: Path
) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, layout)
    change(folder, **changes)
    for load in (check_drafter, load_drafter):
        refused(folder, model, words, load)


TENSORS: list[tuple[dict[str, mx.array | None], str]] = [
    ({"fc__weight": None}, "the tensor fc.weight is missing"),
    ({"lm_head__weight": None}, "the tensor lm_head.weight is missing"),
    ({"d2t": None}, "does not say which .d2t."),
    ({"norm__weight": mx.zeros(31)}, r"norm.weight has the shape \(31,\) instead of \(32,\)"),
    ({"midlayer__self_attn__sinks": mx.zeros(4)}, "has an unknown tensor layers.0.self_attn.sinks"),
    ({"d2t": mx.zeros(20)}, "d2t is stored as F32"),
]
CONTENTS: list[tuple[dict[str, mx.array | None], str]] = [
    ({"d2t": mx.full(20, 12, mx.int64)}, "d2t has tokens that the model does not have"),
    ({"d2t": -mx.arange(20)}, "not in ascending order"),
    ({"t2d": mx.zeros(31, mx.bool_)}, "d2t and t2d do not name the same tokens"),
]


@pytest.mark.parametrize(("changes", "words"), TENSORS, ids=[case[1] for case in TENSORS])
def test_tensors_that_do_not_fit_are_named(
    changes: dict[str, mx.array | None], words: str, model: LoadedModel, tmp_path: Path
) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model)
    change_tensors(folder, **changes)
    for load in (check_drafter, load_drafter):
        refused(folder, model, words, load)


@pytest.mark.parametrize(("changes", "words"), CONTENTS, ids=[case[1] for case in CONTENTS])
def test_contents_that_cannot_be_are_named(
    changes: dict[str, mx.array | None], words: str, model: LoadedModel, tmp_path: Path
) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model)
    change_tensors(folder, **changes)
    refused(folder, model, words)


@pytest.mark.parametrize("folder", golden_folders(), ids=lambda folder: folder.name)
def test_a_drafter_for_another_model_is_refused(folder: Path, model: LoadedModel) -> None:
    inspect_drafter(folder)
    refused(folder, model, r"needs a model with 48 tokens, but tiny has 31|needs a model with 12 layers", check_drafter)


def test_a_narrow_drafter_needs_tables_of_its_own(model: LoadedModel, tmp_path: Path) -> None:
    """`target_hidden_size`: the target's embeddings are too wide for it."""
    wide = shared_family("llama")
    folder = eagle3_folder(tmp_path / "drafter", model, target_hidden_size=64)
    change_tensors(folder, fc__weight=mx.zeros((32, 3 * 64)))
    refused(folder, wide, "uses the model's tables of width 64, but its own width is 32", check_drafter)
    change_tensors(folder, embed_tokens__weight=mx.random.normal((31, 32)))
    assert stored(folder, wide).reads.layers == (0, 1, 0)


WITHOUT_SAFETENSORS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pickle": (lambda folder: (folder / "pytorch_model.bin").write_bytes(b"\x80\x04."), "pytorch_model.bin"),
    "nothing": (lambda folder: None, "drafter"),
}


@pytest.mark.parametrize("case", WITHOUT_SAFETENSORS)
def test_pickles_are_not_read(case: str, model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model)
    (folder / "model.safetensors").unlink()
    act, words = WITHOUT_SAFETENSORS[case]
    act(folder)
    error = refused(folder, model, words)
    assert ("safetensors" in (error.hint or "")) == (case == "a pickle")


def test_biases_tied_tables_and_windows_are_as_the_checkpoint_says(model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, "deepspec", tie_word_embeddings=True, sliding_window=4)
    change(folder, layer_types=["sliding_attention"], use_sliding_window=True, attention_bias=True)
    change_tensors(folder, lm_head__weight=None, layers__0__self_attn__q_proj__bias=mx.zeros(32))
    config = stored(folder, model).config
    assert config.tied_output
    assert config.biases == {"layers.0.self_attn.q_proj"}
    assert config.windows == (4,)


def test_the_tokens_that_are_listed_are_those_that_are_drafted(model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, "speculators", draft_vocab_size=None)
    assert stored(folder, model).config.draft_vocabulary_size == 20


def test_a_window_that_is_not_used_is_none(model: LoadedModel, tmp_path: Path) -> None:
    """Qwen's configurations have a size of it, and perhaps say that they do not use it."""
    for number, switch in enumerate((None, False)):
        options = {"sliding_window": 4, "layer_types": ["sliding_attention"], "use_sliding_window": switch}
        folder = eagle3_folder(tmp_path / str(number), model, "deepspec", **options)
        assert stored(folder, model).config.windows == (None,)


def test_what_only_training_needs_is_left_out(model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, "speculators")
    change_tensors(folder, verifier_norm__weight=mx.zeros(32), verifier_lm_head__weight=mx.zeros((20, 32)))
    assert "verifier_norm.weight" not in stored(folder, model).config.shapes()


@pytest.mark.parametrize(
    "changes", [{"use_qk_norm": True, "use_rotary_pos_emb": True}, {"model_type": "phi3"}], ids=str
)
def test_what_is_the_targets_is_no_reason_to_refuse(
    changes: dict[str, Any], model: LoadedModel, tmp_path: Path
) -> None:
    """AngelSlim copies Hunyuan's switches, SpecForge the name of Phi-4's layers; the drafter's are llama's."""
    config = stored(eagle3_folder(tmp_path / "drafter", model, **changes), model).config
    assert not config.qk_norm


def test_the_code_that_a_checkpoint_names_is_not_run(model: LoadedModel, tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "drafter", model, auto_map={"AutoModel": "evil.Model"})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    load_drafter(folder, model)
    assert not (tmp_path / "ran").exists()
