"""The names of a folder's tensors decide its family, and each setting is followed, assumed, or nothing is seen.

The settings are those of transformers' classes, so that a new one of a later version fails here until it is looked at.
"""

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import transformers
from hypothesis import given, settings, strategies as some
from mlx_lm.models.cache import make_prompt_cache
from safetensors.numpy import load_file, save_file
from transformers.image_processing_base import ImageProcessingMixin

from rdchat.errors import ModelError
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.models.model_settings import model_settings
from rdchat.inference.prompts.encoding import filled
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from rdchat.inference.sharding.model_split import Split, split_of
from rdchat.inference.vision import families
from rdchat.inference.vision.families import FAMILIES, Family, vision_of
from rdchat.inference.vision.prepared_images import Layout
from tests.inference.golden_families import logits
from tests.inference.model_folders import change_config
from tests.inference.vision.seeing_models import (
    GOLDEN,
    ONE_OF_EACH,
    apart,
    expected,
    golden_folder,
    seeing_folder,
)

UNKNOWN = "rdchat does not know how this model sees."
QWEN, SMOL, GEMMA, GEMMA4, LFM, *_ = FAMILIES


PATCHES = "vision_tower.patch_embed.weight"


@pytest.mark.parametrize(
    ("model_type", "tensor", "reason"),
    [
        ("kimi_vl", PATCHES, "mlx-lm's module for 'kimi_vl' cannot take images."),
        ("llama4", PATCHES, "mlx-lm's module for 'llama4' cannot take images."),
        ("gemma3n", PATCHES, UNKNOWN),
        ("qwen3_vl", PATCHES, UNKNOWN),
        ("of tomorrow", PATCHES, UNKNOWN),
        # As transformers' mapping and mlx-lm have it: a tower without an encoder.
        ("gemma4_unified", "embed_vision.embedding_projection.weight", UNKNOWN),
    ],
)
def test_a_reason_names_mlx_lm_where_its_module_takes_no_rows(
    tmp_path: Path, model_type: str, tensor: str, reason: str
) -> None:
    folder = golden_folder(tmp_path / "model", "qwen3_vl")
    save_file({tensor: np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    change_config(folder, model_type=model_type)
    assert vision_of(folder).reason == reason
    assert not read_facts(folder).sees


def test_a_model_for_text_has_nothing_to_say(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "qwen3_vl")
    change_config(folder, vision_config=None, image_token_id=None)
    assert vision_of(folder)[:2] == (None, {})
    assert vision_of(folder).reason == ""


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


_HERE = Path(transformers.__file__).parent
# For each family: the kind of a golden model, the classes of its towers, and the module of its processor.
_SOURCES = {
    "Qwen": ("qwen3_vl", ("qwen3_vl.Qwen3VLVisionConfig", "qwen3_5.Qwen3_5VisionConfig"), "qwen2_vl"),
    "Qwen2-VL": ("qwen2_vl", ("qwen2_vl.Qwen2VLVisionConfig",), "qwen2_vl"),
    "Qwen2.5-VL": ("qwen2_5_vl", ("qwen2_5_vl.Qwen2_5_VLVisionConfig",), "qwen2_vl"),
    "Mistral 3": ("mistral3", ("pixtral.PixtralVisionConfig", "mistral3.Mistral3Config"), "pixtral"),
    "SmolVLM": ("smolvlm", ("smolvlm.SmolVLMVisionConfig", "idefics3.Idefics3VisionConfig"), "idefics3"),
    "Gemma 3": ("gemma3", ("siglip.SiglipVisionConfig",), "gemma3"),
    "Gemma 4": ("gemma4", ("gemma4.Gemma4VisionConfig",), "gemma4"),
    "LFM2-VL": ("lfm2_vl", ("siglip2.Siglip2VisionConfig", "lfm2_vl.Lfm2VlConfig"), "lfm2_vl"),
}
_NAMES = [family.name for family in FAMILIES]
_BY_NAME = {family.name: family for family in FAMILIES}
_CHANGES_NOTHING = {
    "weights have these sizes": r"hidden_size|intermediate_size|out_hidden_size|head_dim|num_position_embeddings|"
    r"num_(key_value|attention)_heads|embed_dim|mlp_ratio|position_embedding_size|num_patches|image_size|projector_hidden_size|in_channels|num_channels",
    "files have these tensors only where it is set": r"use_clipped_linears|standardize|(multimodal_)?projector_bias",
    "the processor's has to be the same": r"patch_size|temporal_patch_size|pooling_kernel_size|downsample_factor|"
    r"image_seq_length",
    "of training, or of a part that rows do not come from": r"initializer_range|attention_dropout|vision_use_head|"
    r"max_position_embeddings|attention_bias",
    "of the model around the tower": r"(text|vision)_config|image_token_id|tie_word_embeddings",
    "of the answer's form": r"(input_)?data_format|device|return_tensors|disable_grouping|return_row_col_info",
    "all pictures are made RGB": r"do_convert_rgb",
    "read by no processor of these families": r"crop_size|pad_size|do_center_crop",
    "pads a batch, with a mask": r"do_pad",
    "for a size without names, which counts as a square": r"default_to_square",
    "of videos": r"tokens_per_second",
    "of what is not done": r"pan_and_scan_\w+",
}


def _annotated(source: Path, end: str) -> set[str]:
    """Return the fields of a class of a module, whose name ends so."""
    classes = [each for each in ast.parse(source.read_text()).body if isinstance(each, ast.ClassDef)]
    fields = [line for each in classes if each.name.endswith(end) for line in each.body]
    return {each.target.id for each in fields if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}


def _settings_of(name: str) -> set[str]:
    """Return the settings of a family's towers and processor."""
    _, classes, processor = _SOURCES[name]
    found = _annotated(_HERE / "processing_utils.py", "ImagesKwargs")
    found |= _annotated(_HERE / "models" / processor / f"image_processing_{processor}.py", "Kwargs")
    for each in classes:
        module, kind = each.split(".")
        found |= _annotated(_HERE / "models" / module / f"configuration_{module}.py", kind)
    return found


@pytest.mark.parametrize("name", _NAMES)
def test_each_setting_is_followed_or_assumed_or_changes_nothing(name: str) -> None:
    family = _BY_NAME[name]
    room = Path(families.__file__).parent
    sources = [room / f"{module}.py" for module in ("families", "processors", "towers")]
    read = set(re.findall(r'"(\w+)"', "".join(path.read_text() for path in sources)))
    exempt = re.compile("|".join(f"(?:{each})" for each in _CHANGES_NOTHING.values()))
    # Some names are read for other families.
    known = (read - {each for other in FAMILIES for each in other.assumed}) | family.assumed.keys() | family.size.keys()
    unknown = {each for each in _settings_of(name) - known if not exempt.fullmatch(each)}
    ignored = {"LFM2-VL": {"do_resize", "size"}, "Gemma 4": {"size"}}
    assert unknown <= ignored.get(name, set())


def _write(folder: Path, **changed: Any) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def _other(family: Family, name: str) -> Any:
    usual = family.assumed[name][0]
    return (not usual) if isinstance(usual, bool) else usual * 2


@pytest.mark.parametrize(("name", "setting"), [(each.name, key) for each in FAMILIES for key in each.assumed])
def test_a_model_with_a_setting_that_is_not_followed_does_not_see(tmp_path: Path, name: str, setting: str) -> None:
    """It once gave other rows than transformers' without a word."""
    folder = seeing_folder(tmp_path / "model", _SOURCES[name][0])
    family = _BY_NAME[name]
    tower = json.loads((folder / "config.json").read_text())["vision_config"]
    for value in (family.assumed[setting][0], None, _other(family, setting)):
        if setting.startswith("do_"):
            _write(folder, **{setting: value})
        elif setting.startswith(("projector_", "vision_")):
            change_config(folder, **{setting: value})
        elif setting.startswith("rope_"):
            change_config(folder, vision_config=tower | {"rope_parameters": {setting: value} if value else None})
        else:
            change_config(folder, vision_config=tower | {setting: value})
        assert (vision_of(folder).family is None) is (value == _other(family, setting)), value
    assert vision_of(folder).reason == f"rdchat does not follow {setting} of its settings for images."


@pytest.mark.parametrize(
    ("kind", "changed", "sees"),
    [
        ("qwen3_vl", {"size": {"height": 64, "width": 64}}, False),
        ("qwen3_vl", {"size": {"longest_edge": 640}}, False),
        ("qwen3_vl", {"size": {"longest_edge": 640}, "min_pixels": 64}, True),
        ("qwen3_vl", {"size": {"min_pixels": 64, "max_pixels": 640}, "min_pixels": 64, "max_pixels": 640}, True),
        ("smolvlm", {"size": {"longest_edge": 64, "shortest_edge": 32}}, True),
        ("gemma3", {"size": {"shortest_edge": 32}}, False),
        ("gemma3", {"size": 32}, True),
        ("gemma4", {"size": {"shortest_edge": 32}}, True),
        ("lfm2_vl", {"size": {"shortest_edge": 32}, "do_resize": False}, True),
    ],
)
def test_a_size_by_other_names_is_not_guessed(tmp_path: Path, kind: str, changed: dict[str, Any], sees: bool) -> None:
    """Gemma 3 once took 224 pixels for them."""
    folder = seeing_folder(tmp_path / "model", kind)
    _write(folder, **changed)
    vision = vision_of(folder)
    assert (vision.family is not None) is sees
    assert vision.reason == ("" if sees else "rdchat does not follow size of its settings for images.")


_ENTRIES = some.dictionaries(some.sampled_from(("resample", "merge_size", "patch_size")), some.integers(1, 4))
_NEWER = some.fixed_dictionaries(
    {}, optional={"image_processor": some.none() | _ENTRIES, "image_seq_len": some.just(9)}
)


@settings(max_examples=40)
@given(newer=some.none() | _NEWER, older=some.none() | _ENTRIES)
def test_of_two_files_those_settings_count_that_transformers_takes(
    tmp_path_factory: pytest.TempPathFactory, newer: dict[str, Any] | None, older: dict[str, Any] | None
) -> None:
    """The older file once won, entry by entry."""
    folder = tmp_path_factory.mktemp("settings")
    for name, content in (("processor_config.json", newer), ("preprocessor_config.json", older)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    try:
        expected, _ = ImageProcessingMixin.get_image_processor_dict(folder)
    except OSError:
        # Without settings it refuses; here they are those of its class.
        expected = {}
    assert _BY_NAME["Qwen"].image_settings(folder) == expected


@pytest.mark.parametrize("kind", [*ONE_OF_EACH, "qwen3_5"])
def test_no_warning_names_what_is_for_images(tmp_path: Path, kind: str) -> None:
    """Gemma 4 that sees was said not to follow what rdchat follows."""
    folder = seeing_folder(tmp_path / "model", kind)
    module = GOLDEN[kind]["config"]["model_type"]
    source = importlib.import_module(f"transformers.models.{module}.configuration_{module}").__file__
    config = json.loads((folder / "config.json").read_text())
    values: dict[str, Any] = {
        "mm_tokens_per_image": 4, "scale_factor": 4, "downsample_factor": 3, "projector_hidden_act": "silu",
        "projector_hidden_size": 8, "projector_bias": False, "projector_use_layernorm": False,
    }  # fmt: skip
    fields = {each for each in _annotated(Path(source or ""), "Config") if each in values}
    assert kind.startswith(("qwen", "gemma4")) or fields
    change_config(folder, **{each: values[each] for each in fields})
    assert model_settings(folder, shared_tokenizers()).warning == ""
    if kind == "gemma4":
        text = config["text_config"]
        change_config(folder, text_config=text | {"use_bidirectional_attention": "vision"})
        assert model_settings(folder, shared_tokenizers()).warning == ""
        change_config(folder, text_config=text | {"use_bidirectional_attention": "all"})
        assert "use_bidirectional_attention" in model_settings(folder, shared_tokenizers()).warning


IDS = GOLDEN["smolvlm"]["ids"]
# Rows of text before the first image.
TEXT = IDS.index(90)


def text_logits(folder: Path, dtype: str = "float32") -> np.ndarray:
    network = load_model(folder, dtype).network
    return np.array(network(mx.array([IDS[:TEXT]]), cache=make_prompt_cache(network))[0].astype(mx.float32))


@pytest.mark.parametrize("model_type", ["smolvlm", "idefics3", "lfm2_vl"])
def test_text_is_that_of_the_whole_model(tmp_path: Path, model_type: str) -> None:
    """They were refused: mlx-lm has no such module. Whether output rows are tied, their file decides."""
    kind = "lfm2_vl" if model_type == "lfm2_vl" else "smolvlm"
    folder = golden_folder(tmp_path / "model", kind)
    change_config(folder, model_type=model_type, tie_word_embeddings=True)
    assert check_model_folder(folder).architecture == model_type
    model = load_model(folder, "float32")
    assert (model.info.architecture, model.info.warning) == (model_type, "")
    assert apart(text_logits(folder), expected(kind)["logits"][:TEXT]) < 1e-5


# Settings of published files: SmolVLM's text_config has those of a resampler that it does not use.
FURTHER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "smolvlm": (
        {
            "pixel_shuffle_factor": 4, "neftune_noise_alpha": 0.0,
            "perceiver_config": {"model_type": "vllama3", "num_key_value_heads": 1, "resampler_depth": 6},
        },
        {"max_image_size": {"longest_edge": 512}, "size": {"longest_edge": 2048}},
        {"vocab_size": 96},
    ),
    "lfm2_vl": (
        {"block_norm_eps": 1e-5, "block_use_swiglu": True, "conv_dim": 64, "num_heads": 4},
        {},
        {"encoder_patch_size": 4, "max_image_tokens": 256, "use_image_special_tokens": True},
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


def test_they_can_be_split(tmp_path: Path) -> None:
    assert split_of(golden_folder(tmp_path / "model", "smolvlm"), 2) is Split.TENSOR


@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen2_vl"])
def test_the_text_part_of_a_model_loads_alone(tmp_path: Path, kind: str) -> None:
    """Tunes for text alone have the type of the text part, for which mlx-lm has no module."""
    whole = seeing_folder(tmp_path / "whole", kind)
    part = seeing_folder(tmp_path / "part", kind)
    config = json.loads((whole / "config.json").read_text())
    own = {key: each for key, each in config.items() if key in {"tie_word_embeddings", "eos_token_id"}}
    (part / "config.json").write_text(
        json.dumps({**own, **config["text_config"], "model_type": f"{config['model_type']}_text"})
    )
    tensors = load_file(whole / "model.safetensors")
    text = {name.replace("model.language_model.", "model."): each for name, each in tensors.items()
            if "visual" not in name}  # fmt: skip
    save_file(text, part / "model.safetensors", {"format": "pt"})
    loaded = load_model(part, "float32")
    assert not loaded.info.sees
    change_config(whole, vision_config=None)
    ids = np.arange(24)[None] * 37 % 89
    assert np.array_equal(logits(loaded.network, ids), logits(load_model(whole, "float32").network, ids))


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_a_model_without_a_token_for_images_answers_texts(tmp_path: Path, kind: str) -> None:
    """It was refused altogether."""
    folder = seeing_folder(tmp_path / "model", kind)
    change_config(folder, image_token_id=None, image_token_index=None)
    info = load_model(folder, "float32").info
    assert not info.sees
    assert "image_token_id" in info.blind
