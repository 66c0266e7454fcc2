"""Which family a folder is, and whether it has a tower, is decided by the names of its tensors."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rdchat.errors import ModelError
from rdchat.inference.library.model_library import read_facts
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_config import text_config
from rdchat.inference.prompts.encoding import filled
from rdchat.inference.vision.families import FAMILIES, image_token, vision_of
from rdchat.inference.vision.image_process import Layout
from tests.inference.model_folders import change_config
from tests.inference.vision.fetched_towers import is_tower, without_tower
from tests.inference.vision.golden_models import GOLDEN, golden_folder

NAMES = {
    "qwen2_vl": "Qwen2-VL",
    "qwen2_5_vl": "Qwen2.5-VL",
    "smolvlm": "SmolVLM",
    "idefics3": "SmolVLM",
    "gemma3": "Gemma 3",
    "gemma4": "Gemma 4",
    "gemma4_e": "Gemma 4",
    "lfm2_vl": "LFM2-VL",
    "mistral3": "Mistral 3",
    "ministral3": "Mistral 3",
    "pixtral": "Mistral 3",
}
QWEN, SMOL, GEMMA, GEMMA4, LFM, *_ = FAMILIES


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_a_folder_with_a_tower_has_a_family(tmp_path: Path, kind: str) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    vision = vision_of(folder)
    config = GOLDEN[kind]["config"]
    assert vision.family is not None
    assert vision.family.name == NAMES.get(kind, "Qwen")
    assert vision.reason == ""
    assert vision.width == text_config(config)["hidden_size"]
    assert vision.deep == (3 if "qwen3_vl" in kind else 0)
    assert read_facts(folder).sees
    tower = [name for name in load_file(folder / "model.safetensors") if is_tower(name)]
    assert sorted(vision.tensors.values()) == sorted(tower)
    assert image_token(config) == 90
    assert len(vision.family.sections(config)) == (3 if vision.family.by_axis else 0)


@pytest.mark.parametrize(
    "kind", ["qwen3_vl", "qwen3_5", "qwen2_vl", "qwen2_5_vl", "smolvlm", "gemma4", "gemma4_e", "mistral3", "pixtral"]
)
def test_a_copy_without_a_tower_says_so_and_writes(tmp_path: Path, kind: str) -> None:
    folder = without_tower(golden_folder(tmp_path / "model", kind))
    vision = vision_of(folder)
    assert (vision.family, vision.reason) == (None, "This copy has no vision.")
    assert load_model(folder, "float32").info.vocabulary_size == 96


def test_a_tower_of_another_kind_is_named(tmp_path: Path) -> None:
    """Such as one without a table of positions."""
    folder = golden_folder(tmp_path / "model", "qwen3_vl")
    file = folder / "model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if "pos_embed" not in name}, file)
    assert vision_of(folder).reason == "rdchat does not know how this model sees."


def test_gemma_4_without_an_encoder_is_named(tmp_path: Path) -> None:
    """Names of `gemma4_unified`, as transformers' mapping and mlx-lm have them."""
    folder = without_tower(golden_folder(tmp_path / "model", "gemma4"))
    file = folder / "model.safetensors"
    names = ("vision_embedder.patch_dense.weight", "embed_vision.embedding_projection.weight")
    save_file(load_file(file) | {f"model.{name}": np.ones((2, 2), np.float32) for name in names}, file)
    change_config(folder, model_type="gemma4_unified")
    assert vision_of(folder).family is None
    assert vision_of(folder).reason == "rdchat does not know how this model sees."
    assert not read_facts(folder).sees


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("kimi_vl", "mlx-lm's module for 'kimi_vl' cannot take images."),
        ("llama4", "mlx-lm's module for 'llama4' cannot take images."),
        ("gemma3n", "rdchat does not know how this model sees."),
        ("qwen3_vl", "rdchat does not know how this model sees."),
        ("of tomorrow", "rdchat does not know how this model sees."),
    ],
)
def test_a_reason_names_mlx_lm_where_its_module_takes_no_rows(tmp_path: Path, model_type: str, reason: str) -> None:
    folder = golden_folder(tmp_path / "model", "qwen3_vl")
    save_file({"vision_tower.patch_embed.weight": np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    change_config(folder, model_type=model_type)
    assert vision_of(folder).reason == reason


def test_a_model_for_text_has_nothing_to_say(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "qwen3_vl")
    change_config(folder, vision_config=None, image_token_id=None)
    assert vision_of(folder)[:2] == (None, {})
    assert vision_of(folder).reason == ""


def test_settings_of_either_file_are_read(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "smolvlm")
    assert SMOL.image_settings(folder) == {"token_side": 4}
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": 64}}))
    assert SMOL.image_settings(folder) == {"token_side": 4, "size": {"longest_edge": 64}}
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_seq_len": 16, "image_processor": {"resample": 1}}))
    assert SMOL.image_settings(folder) == {"token_side": 4, "resample": 1}


def test_expansions_are_those_of_transformers() -> None:
    """As `_prompt_split_image` of its processor for SmolVLM writes them."""
    tiled = SMOL.expanded(Layout(((1, 2),) * 5, (1, 1), (2, 2)))
    around = "<fake_token_around_image>"
    pixels = "<image><image>"
    tiles = [f"{around}<row_{row}_col_{column}>{pixels}" for row in (1, 2) for column in (1, 2)]
    assert tiled == f"{tiles[0]}{tiles[1]}\n{tiles[2]}{tiles[3]}\n\n{around}<global-img>{pixels}{around}"
    assert SMOL.expanded(Layout(((1, 2),), (1, 1))) == f"{around}<global-img>{pixels}{around}"
    assert QWEN.expanded(Layout(((2, 2),), (1, 1))) == "<|image_pad|>" * 4
    assert GEMMA.expanded(Layout(((1, 2),), (1, 1))) == (
        "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n"
    )
    assert GEMMA4.expanded(Layout(((1, 2),), (1, 1))) == "<|image><|image|><|image|><image|>"
    # As `_build_image_tokens` of its processor for LFM2-VL writes them.
    assert LFM.expanded(Layout(((1, 2),), (1, 1))) == f"<|image_start|>{pixels}<|image_end|>"
    two = f"<|image_start|><|img_row_1_col_1|>{pixels}<|img_row_2_col_1|>{pixels}"
    assert LFM.expanded(Layout(((1, 2),) * 2, (1, 1), (2, 1))) == f"{two}<|image_end|>"
    whole = f"{two}<|img_thumbnail|><image><|image_end|>"
    assert LFM.expanded(Layout((*((1, 2),) * 2, (1, 1)), (1, 1), (2, 1))) == whole


def test_a_typed_placeholder_stays_text() -> None:
    texts = [QWEN.expanded(Layout(((1, 2),), (1, 1)))]
    prompt = "a<|image_pad|>b\ue000<|image_pad|>\ue001"
    assert filled(prompt, QWEN.placeholder, texts, "\ue000") == "a<|image_pad|><|image_pad|>b\ue000<|image_pad|>\ue001"
    with pytest.raises(ModelError, match="has a place for 1 of its 2"):
        filled(prompt, QWEN.placeholder, texts * 2, "\ue000")
