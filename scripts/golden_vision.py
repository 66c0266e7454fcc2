"""Writes the golden files of models that see: what transformers computes with weights that are drawn by their names.

    PYTHONPATH=. python scripts/golden_vision.py OUT [FAMILY ...]

It runs with a Python that has torch (a CPU is enough) and transformers 5.23; neither is needed by rdchat or its tests.
OUT is tests/inference/vision/golden. models.json has, for each family, the config.json that transformers writes, the
shapes of the checkpoint's tensors by name, a prompt with two images, and the grids of tokens of their tiles. Tensors
are drawn by `scripts/families/drawn_weights.py`, pixels as in `tests.inference.vision.seeing_models`. NAME.npz has what
the whole model computes:

    rows (tokens, width)        the rows of both images
    deep (layers, tokens, width)  features for the first layers (DeepStack)
    logits (length, vocabulary)   of the prompt
    written (n,)                  the next tokens at temperature 0
    others (tokens, width)        of Qwen2.5-VL, Qwen3-VL and LFM2-VL: the rows of four more images, of the grids OTHERS
    plain (tokens, width)         of LFM2-VL: `rows` without the projector's layer norm
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

from scripts.families.drawn_weights import drawn

OTHERS = [(1, 1), (1, 7), (7, 1), (5, 5)]
VOCABULARY = 96
IMAGE = 90
START = 91
END = 92
WRITTEN = 12
TEXT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "vocab_size": VOCABULARY, "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "num_hidden_layers": 4,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
}
SHARED = {"shared_expert_intermediate_size": 32}
QWEN = {"image_token_id": IMAGE, "video_token_id": 89, "vision_start_token_id": START, "vision_end_token_id": END}
QWEN_EYES: dict[str, Any] = {
    "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "out_hidden_size": 64, "num_position_embeddings": 36,
}  # fmt: skip
DEEP = QWEN_EYES | {"deepstack_visual_indexes": [0, 1, 2]}
# Patches in windows of 2 x 2 tokens, those at the edges smaller.
QWEN2_5_EYES: dict[str, Any] = {
    "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "out_hidden_size": 64, "window_size": 16, "fullatt_block_indexes": [1, 3],
}  # fmt: skip
QWEN2_EYES: dict[str, Any] = {
    "depth": 3, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 2, "patch_size": 4,
    "spatial_merge_size": 2,
}  # fmt: skip
QWEN2: dict[str, Any] = {key: value for key, value in TEXT.items() if key != "head_dim"} | {
    "num_attention_heads": 2, "num_key_value_heads": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]},
}  # fmt: skip
QWEN3_VL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5]}}
QWEN3_5: dict[str, Any] = {
    "full_attention_interval": 2, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2],
    },
}  # fmt: skip
SIGLIP = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4,
    "image_size": 32,
}  # fmt: skip
LLAMA = TEXT | {"model_type": "llama", "head_dim": 16}
SMOL = {"image_token_id": IMAGE, "scale_factor": 2, "tie_word_embeddings": False, "vision_config": SIGLIP}
GEMMA3: dict[str, Any] = TEXT | {
    "num_hidden_layers": 6, "query_pre_attn_scalar": 16, "sliding_window": 12, "head_dim": 16,
    "sliding_window_pattern": 3,
}  # fmt: skip
GEMMA4_EYES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
    "num_key_value_heads": 2, "patch_size": 4, "pooling_kernel_size": 2, "position_embedding_size": 40,
}  # fmt: skip
GEMMA4_CLIPPED = {"use_clipped_linears": True, "num_key_value_heads": 1}
GEMMA4_TEXT: dict[str, Any] = TEXT | {
    "num_hidden_layers": 6, "sliding_window": 12, "head_dim": 16, "global_head_dim": 32,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "vocab_size_per_layer_input": VOCABULARY, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
}  # fmt: skip
# As 26B and 31B are, with the experts of the first.
GEMMA4_LARGE = GEMMA4_TEXT | {
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
    "use_bidirectional_attention": "vision", "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24,
}  # fmt: skip
# As E2B and E4B are.
GEMMA4_SMALL = GEMMA4_TEXT | {
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
}  # fmt: skip
# The table of positions, 5 x 5, becomes larger and smaller than it is.
NAFLEX: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4,
    "num_patches": 25, "vision_use_head": False,
}  # fmt: skip
LFM2: dict[str, Any] = TEXT | {
    "num_hidden_layers": 4, "conv_L_cache": 3, "conv_bias": False, "block_ff_dim": 96, "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.0, "norm_eps": 1e-5, "tie_word_embeddings": True, "head_dim": 16,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
}  # fmt: skip
LFM2_VL = {"image_token_id": IMAGE, "projector_hidden_size": 48, "downsample_factor": 2, "text_config": LFM2}
PIXTRAL: dict[str, Any] = {
    "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 2, "patch_size": 4, "image_size": 64, "hidden_act": "silu",
}  # fmt: skip
MISTRAL = TEXT | {"model_type": "mistral", "head_dim": 16, "sliding_window": None, "rms_norm_eps": 1e-5}
MINISTRAL = TEXT | {
    "model_type": "ministral3", "head_dim": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    # The prompt passes the original length.
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.1,
    },
}  # fmt: skip
MISTRAL3 = {"image_token_index": IMAGE, "spatial_merge_size": 2}
LLAVA = {"image_token_index": IMAGE, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
GEMMA4 = {"image_token_id": IMAGE, "boi_token_id": START, "eoi_token_id": END, "audio_config": None}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl": ("Qwen2VL", QWEN | {"vision_config": QWEN2_EYES, "text_config": QWEN2}),
    "qwen2_5_vl": ("Qwen2_5_VL", QWEN | {"vision_config": QWEN2_5_EYES, "text_config": QWEN2}),
    "qwen3_vl": ("Qwen3VL", QWEN | {"vision_config": DEEP, "text_config": TEXT | QWEN3_VL}),
    "qwen3_vl_moe": ("Qwen3VLMoe", QWEN | {"vision_config": DEEP, "text_config": TEXT | QWEN3_VL | EXPERTS}),
    "qwen3_5": ("Qwen3_5", QWEN | {"vision_config": QWEN_EYES, "text_config": TEXT | QWEN3_5}),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        QWEN | {"vision_config": QWEN_EYES, "text_config": TEXT | QWEN3_5 | EXPERTS | SHARED},
    ),
    # Idefics3 computes the same.
    "smolvlm": ("SmolVLM", SMOL | {"text_config": LLAMA}),
    "gemma3": (
        "Gemma3",
        {
            "image_token_index": IMAGE, "boi_token_index": START, "eoi_token_index": END, "mm_tokens_per_image": 16,
            "vision_config": SIGLIP, "text_config": GEMMA3,
        },
    ),
    "gemma4": ("Gemma4", GEMMA4 | {"vision_config": GEMMA4_EYES | {"standardize": True}, "text_config": GEMMA4_LARGE}),
    "gemma4_e": (
        "Gemma4",
        GEMMA4 | {"vision_config": GEMMA4_EYES | GEMMA4_CLIPPED, "text_config": GEMMA4_SMALL},
    ),
    "mistral3": (
        "Mistral3",
        MISTRAL3 | {"vision_config": PIXTRAL, "text_config": MISTRAL, "tie_word_embeddings": False},
    ),
    "ministral3": (
        "Mistral3",
        MISTRAL3 | {"vision_config": PIXTRAL | {"hidden_act": "gelu"}, "text_config": MINISTRAL},
    ),
    "pixtral": ("Llava", LLAVA | {"vision_config": PIXTRAL, "text_config": MISTRAL}),
    "lfm2_vl": ("Lfm2Vl", LFM2_VL | {"vision_config": NAFLEX}),
}  # fmt: skip


def pixels(number: int, shape: list[int]) -> np.ndarray:
    """Return the numbers of an image."""
    return np.random.default_rng(number).uniform(-1, 1, shape).astype(np.float32)


def make(name: str, config: dict[str, Any], folder: str) -> tuple[Any, dict[str, list[int]]]:
    """Return a model with drawn weights, and the shapes of its checkpoint, whose config.json stays in a folder."""
    made = getattr(transformers, f"{name}Config")(**json.loads(json.dumps(config)))
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    kind(made).save_pretrained(folder)
    file = Path(folder, "model.safetensors")
    with safe_open(file, "np") as held:
        shapes = {key: held.get_slice(key).get_shape() for key in held.keys()}  # noqa: SIM118
    if "VLMoe" in name:
        # Published checkpoints have the experts' matrices the other way; transformers turns them when it reads them.
        turned = {key for key in shapes if key.endswith((".gate_up_proj", ".down_proj"))}
        shapes |= {key: [shapes[key][0], *shapes[key][:0:-1]] for key in turned}
    save_file({key: drawn(key, shape) for key, shape in shapes.items()}, file, {"format": "pt"})
    return kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval(), shapes


def prompt_of(kind: str) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Return the ids of a prompt with two images, and the grids of the tiles of each."""
    # The first image of SmolVLM has two tiles and one of the whole.
    squares = [[(4, 4)] * (1 if kind == "gemma3" else 3), [(4, 4)]]
    has_rows = kind in {"mistral3", "ministral3", "pixtral"}
    grids = [[(3, 4)], [(2, 5)]] if has_rows or kind.startswith(("qwen", "gemma4")) else squares
    if kind.startswith("lfm2"):
        # Two tiles and the whole image, which has another shape; a single one.
        grids = [[(2, 2), (2, 2), (1, 3)], [(3, 2)]]
    random = np.random.default_rng(1)
    ids = random.integers(3, 80, 7).tolist()
    for tiles in grids:
        for high, broad in tiles:
            runs = [broad] * high if has_rows else [high * broad]
            for count in runs:
                ids += [START, *[IMAGE] * count, END]
        ids += random.integers(3, 80, 5).tolist()
    return ids, grids


def inputs_of(kind: str, ids: list[int], grids: list[list[tuple[int, int]]]) -> dict[str, torch.Tensor]:
    """Return the inputs of a whole model."""
    tokens = torch.tensor([ids])
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if kind.startswith("qwen"):
        patches = [pixels(number, [4 * high * broad, 96]) for number, ((high, broad),) in enumerate(grids)]
        inputs["pixel_values"] = torch.tensor(np.concatenate(patches))
        inputs["image_grid_thw"] = torch.tensor([[1, 2 * high, 2 * broad] for ((high, broad),) in grids])
        inputs["mm_token_type_ids"] = (tokens == IMAGE).long()
        return inputs
    if kind.startswith("gemma4"):
        # An image with fewer patches is padded. A patch has its column and row, or -1.
        most = max(4 * high * broad for ((high, broad),) in grids)
        values = np.zeros((len(grids), most, 48), np.float32)
        places = np.full((len(grids), most, 2), -1)
        for number, ((high, broad),) in enumerate(grids):
            count = 4 * high * broad
            values[number, :count] = pixels(number, [count, 48])
            places[number, :count] = np.indices((2 * high, 2 * broad)).reshape(2, -1).T[:, ::-1]
        inputs |= {"pixel_values": torch.tensor(values), "image_position_ids": torch.tensor(places)}
        return inputs | {"mm_token_type_ids": (tokens == IMAGE).long()}
    if kind in {"mistral3", "ministral3", "pixtral"}:
        # Smaller images are padded.
        side = 4 if kind == "pixtral" else 8
        sizes = [(side * high, side * broad) for ((high, broad),) in grids]
        values = np.zeros((len(grids), 3, *map(max, zip(*sizes, strict=True))), np.float32)
        for number, (high, broad) in enumerate(sizes):
            squares = pixels(number, [high * broad // 16, 48]).reshape(high // 4, broad // 4, 3, 4, 4)
            values[number, :, :high, :broad] = squares.transpose(2, 0, 3, 1, 4).reshape(3, high, broad)
        return inputs | {"pixel_values": torch.tensor(values), "image_sizes": torch.tensor(sizes)}
    if kind.startswith("lfm2"):
        most = max(4 * high * broad for tiles in grids for high, broad in tiles)
        count = sum(map(len, grids))
        values = np.zeros((count, most, 48), np.float32)
        masks = np.zeros((count, most), np.int64)
        tile = 0
        for number, each in enumerate(grids):
            rest = pixels(number, [4 * sum(high * broad for high, broad in each), 48])
            for high, broad in each:
                own = rest[: 4 * high * broad]
                rest = rest[4 * high * broad :]
                values[tile, : len(own)], masks[tile, : len(own)], tile = own, 1, tile + 1
        shapes = [[2 * high, 2 * broad] for tiles in grids for high, broad in tiles]
        inputs |= {"pixel_values": torch.tensor(values), "pixel_attention_mask": torch.tensor(masks)}
        return inputs | {"spatial_shapes": torch.tensor(shapes)}
    tiles = torch.tensor(np.concatenate([pixels(number, [len(each), 3, 32, 32]) for number, each in enumerate(grids)]))
    if kind == "gemma3":
        return inputs | {"pixel_values": tiles, "token_type_ids": (tokens == IMAGE).long()}
    return inputs | {"pixel_values": tiles[None]}


def features_of(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    """Return what a model's tower makes of the images."""
    images = {key: inputs[key] for key in inputs if key.startswith(("pixel", "image", "spatial"))}
    return model.model.get_image_features(**images)


def joined(rows: Any) -> torch.Tensor:
    """Return the rows of all images, (tokens, width), which some classes keep apart."""
    return (torch.cat(list(rows)) if isinstance(rows, list | tuple) else rows).flatten(0, -2)


def write(kind: str, out: Path) -> dict[str, Any]:
    """Write the arrays of a family; return its entry of models.json."""
    name, config = FAMILIES[kind]
    with tempfile.TemporaryDirectory() as folder:
        model, shapes = make(name, config, folder)
        written = json.loads(Path(folder, "config.json").read_text())
    # transformers reads some settings, and writes what they mean; published files have them.
    text = config["text_config"] | written.pop("text_config")
    # Qwen2.5-VL's are flat, and name the sections as older classes do.
    rope = text.pop("rope_parameters") if kind == "qwen2_5_vl" else {}
    flat = (
        text
        | {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
        if rope
        else {}
    )
    written = flat | written | ({} if rope else {"text_config": text})
    ids, grids = prompt_of(kind)
    inputs = inputs_of(kind, ids, grids)
    seen = features_of(model, inputs)
    deep = getattr(seen, "deepstack_features", None) or ()
    logits = model(**inputs, use_cache=False).logits[0]
    model.model.rope_deltas = None
    following = model.generate(
        **inputs, max_new_tokens=WRITTEN, do_sample=False, eos_token_id=None, pad_token_id=0, use_cache=False
    )
    more = {}
    if kind in {"qwen2_5_vl", "qwen3_vl", "lfm2_vl"}:
        more["others"] = joined(features_of(model, inputs_of(kind, ids, [[grid] for grid in OTHERS])).pooler_output)
    if kind == "lfm2_vl":
        model.model.multi_modal_projector.use_layer_norm = False
        more["plain"] = joined(features_of(model, inputs).pooler_output)
    np.savez_compressed(
        out / f"{kind}.npz",
        rows=joined(seen.pooler_output).numpy(),
        deep=np.array([joined(each).numpy() for each in deep], np.float32),
        logits=logits.numpy(),
        written=following[0, len(ids) :].numpy(),
        **more,
    )
    return {"config": written, "shapes": shapes, "ids": ids, "grids": grids}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    # Others stay as they are where some are named.
    held = json.loads((target / "models.json").read_text()) if sys.argv[2:] else {}
    cases = held | {kind: write(kind, target) for kind in sys.argv[2:] or FAMILIES}
    lines = (f"{json.dumps(kind)}: {json.dumps(case)}" for kind, case in cases.items())
    (target / "models.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
