"""Text models that mlx-lm has under another name, llama and lfm2, load with their own names; see `own_config`."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from safetensors.numpy import load_file, save_file

from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.sharding.model_split import Split, split_of
from rdchat.inference.vision.families import vision_of
from tests.inference.model_folders import change_config
from tests.inference.vision.golden_models import GOLDEN, KINDS, apart, copied, expected, golden_folder, tensors_of

IDS = GOLDEN["smolvlm"]["ids"]
# Rows of text before the first image.
TEXT = IDS.index(90)


def text_logits(folder: Path, dtype: str = "float32") -> np.ndarray:
    network = load_model(folder, dtype).network
    return np.array(network(mx.array([IDS[:TEXT]]), cache=make_prompt_cache(network))[0].astype(mx.float32))


@pytest.mark.parametrize("model_type", ["smolvlm", "idefics3", "lfm2_vl"])
def test_text_is_that_of_the_whole_model(tmp_path: Path, model_type: str) -> None:
    """They were refused: mlx-lm has no such module."""
    kind = "lfm2_vl" if model_type == "lfm2_vl" else "smolvlm"
    folder = golden_folder(tmp_path / "model", kind)
    change_config(folder, model_type=model_type)
    assert check_model_folder(folder).architecture == model_type
    model = load_model(folder, "float32")
    assert (model.info.architecture, model.info.warning) == (model_type, "")
    assert apart(text_logits(folder), expected(kind)["logits"][:TEXT]) < 1e-5


# Settings of published files: SmolVLM's text_config has those of a resampler that it does not use.
FURTHER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "smolvlm": (
        {
            "_flash_attn_2_enabled": True, "is_llama_config": True, "use_resampler": False, "pixel_shuffle_factor": 4,
            "qk_layer_norms": False, "rope_interleaved": False, "neftune_noise_alpha": 0.0,
            "perceiver_config": {
                "model_type": "vllama3", "num_key_value_heads": 1, "resampler_n_latents": 64, "resampler_depth": 6,
            },
        },
        {"max_image_size": {"longest_edge": 512}, "size": {"longest_edge": 2048}},
        {"vocab_size": 96},
    ),
    "lfm2_vl": (
        {"block_norm_eps": 1e-5, "block_use_swiglu": True, "conv_dim": 64, "num_heads": 4, "use_pos_enc": True},
        {},
        {
            "do_image_splitting": True, "encoder_patch_size": 4, "max_image_tokens": 256, "max_pixels_tolerance": 2.0,
            "max_tiles": 10, "tile_size": 512, "use_image_special_tokens": True, "vision_feature_layer": -1,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FURTHER)
def test_further_settings_of_published_files_do_no_harm(tmp_path: Path, kind: str) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    config = GOLDEN[kind]["config"]
    text, tower, outer = FURTHER[kind]
    change_config(
        folder, text_config=config["text_config"] | text, vision_config=config["vision_config"] | tower, **outer
    )
    assert load_model(folder, "float32").info.warning == ""
    assert apart(text_logits(folder), expected(kind)["logits"][:TEXT]) < 1e-5
    assert vision_of(folder).family is not None


@pytest.mark.parametrize("kind", KINDS)
def test_copies_by_mlx_vlm_load(tmp_path: Path, kind: str) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    save_file(copied(kind, tensors_of(kind)), folder / "model.safetensors", {"format": "mlx"})
    assert apart(text_logits(folder), expected(kind)["logits"][:TEXT]) < 1e-5


@pytest.mark.parametrize(("kind", "bits"), [("smolvlm", 4), ("smolvlm", 8), ("lfm2_vl", 4)])
def test_quantised_copies_load(tmp_path: Path, kind: str, bits: int) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    found = []
    arrays = copied(kind, tensors_of(kind))
    floats = dict[str, mx.array]()
    packed = {name: mx.array(array) for name, array in arrays.items()}
    for name, array in list(packed.items()):
        if name.startswith("language_model") and array.ndim == 2:
            words, scales, biases = mx.quantize(array, 32, bits)
            floats[name] = mx.dequantize(words, scales, biases, 32, bits)
            packed |= {name: words, f"{name[:-6]}scales": scales, f"{name[:-6]}biases": biases}
    plain = {name: each for name, each in (packed | floats).items() if not name.endswith(("scales", "biases"))}
    for tensors, settings in ((packed, {"group_size": 32, "bits": bits}), (plain, None)):
        mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "mlx"})
        change_config(folder, quantization=settings)
        found.append(text_logits(folder))
    assert apart(*found) < 1e-5
    assert apart(found[0], expected(kind)["logits"][:TEXT]) > 1e-4


@pytest.mark.parametrize("said", [True, False, None])
def test_rows_in_the_file_decide_whether_they_are_tied(tmp_path: Path, said: bool | None) -> None:
    """The class of transformers has the setting at the top of the configuration, and not beside the text model's."""
    folder = golden_folder(tmp_path / "model", "smolvlm")
    change_config(folder, tie_word_embeddings=said)
    assert apart(text_logits(folder), expected("smolvlm")["logits"][:TEXT]) < 1e-5
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    if said:
        assert "lm_head" not in load_model(folder, "float32").network


def test_they_can_be_split(tmp_path: Path) -> None:
    assert split_of(golden_folder(tmp_path / "model", "smolvlm"), 2) is Split.TENSOR
