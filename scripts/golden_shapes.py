"""Writes tests/inference/vision/golden/published.json: rows of towers in the shapes of published models.

    PYTHONPATH=. python scripts/golden_shapes.py

It runs as `golden_vision.py` does. Only widths are small: patches, images, grids, merges, depths and windows are
those of the published files, and a head has a fourth, or a sixth, of its size. That of Gemma 3 has 2 of 27 layers,
since it has 4,096 patches. Qwen3-VL 4B, Qwen3.5 27B, Qwen2.5-VL 7B, Gemma 4, SmolVLM 256M and LFM2-VL were read from
public copies of their files; the others are values that transformers documents. Each case has the configuration, the
processor's settings, the tokens of a tile as the model's processor has them, the grid, the shapes of the tower's
tensors (`{}` is the number of a layer, the first number is how many there are) and some of the rows.
"""

import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from golden_vision import (
    GEMMA3,
    GEMMA4,
    GEMMA4_LARGE,
    GEMMA4_SMALL,
    IMAGE,
    LFM2,
    LLAMA,
    LLAVA,
    MISTRAL,
    QWEN,
    QWEN2,
    QWEN3_5,
    QWEN3_VL,
    TEXT,
    joined,
    make,
    pixels,
)  # fmt: skip

TOWER = re.compile(r"(?:^|\.)(?:visual|vision_\w+|embed_vision|multi_modal_projector|connector)\.")
LAYER = re.compile(r"\b(layers|blocks|deepstack_merger_list)\.\d+")
OUT = Path("tests/inference/vision/golden/published.json")
SMALL = {"hidden_size": 48, "intermediate_size": 56}
HEADS = {"num_attention_heads": 4}
QWEN3_EYES = SMALL | {
    "num_heads": 4, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 64,
    "num_position_embeddings": 2304,
}  # fmt: skip
QWEN14 = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_heads": 4, "depth": 32}
SIGLIP = SMALL | HEADS | {"model_type": "siglip_vision_model"}
GEMMA4_EYES = {
    "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240, "num_key_value_heads": 4,
}  # fmt: skip
PIXTRAL = HEADS | {"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 72, "num_hidden_layers": 24}
QWEN2_EYES = QWEN14 | {"embed_dim": 80, "hidden_size": 64, "mlp_ratio": 1}
PIXTRAL_12B = PIXTRAL | {"patch_size": 16, "image_size": 1024, "hidden_act": "silu"}
LFM = SMALL | HEADS | {"patch_size": 16, "num_patches": 256, "vision_use_head": False}
BY_16 = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}}
BY_14 = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}


def qwen3(text: dict[str, Any], depth: int, deep: list[int] | None = None) -> dict[str, Any]:
    """Return a configuration of Qwen3-VL, or Qwen3.5 without deep layers."""
    eyes = QWEN3_EYES | {"depth": depth} | ({} if deep is None else {"deepstack_visual_indexes": deep})
    return QWEN | {"text_config": TEXT | text, "vision_config": eyes}


def smol(scale: int, image: int, patch: int, layers: int) -> dict[str, Any]:
    """Return a configuration of SmolVLM or Idefics3."""
    eyes = SMALL | HEADS | {"image_size": image, "patch_size": patch, "num_hidden_layers": layers}
    return {"image_token_id": IMAGE, "scale_factor": scale, "text_config": LLAMA, "vision_config": eyes}


def tiles(edge: int) -> dict[str, Any]:
    """Return the settings of a processor of tiles."""
    return {"max_image_size": {"longest_edge": edge}, "size": {"longest_edge": 4 * edge}}


def lfm(layers: int, norm: bool) -> dict[str, Any]:
    """Return a configuration of LFM2-VL."""
    own = {"image_token_id": IMAGE, "projector_hidden_size": 56, "downsample_factor": 2, "text_config": LFM2}
    return own | {"projector_use_layernorm": norm, "vision_config": LFM | {"num_hidden_layers": layers}}


LONGEST = {"patch_size": 14, "size": {"longest_edge": 1540}}
# By name: class, configuration, settings, tokens of a tile (0 if by size), and the grid.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int, tuple[int, int]]] = {
    "Qwen3-VL 2B, 4B": ("Qwen3VL", qwen3(QWEN3_VL, 24, [5, 11, 17]), BY_16, 0, (5, 9)),
    "Qwen3-VL 8B, 30B-A3B, 32B": ("Qwen3VL", qwen3(QWEN3_VL, 27, [8, 16, 24]), BY_16, 0, (5, 9)),
    "Qwen3.5 0.8B": ("Qwen3_5", qwen3(QWEN3_5, 12), BY_16, 0, (3, 5)),
    "Qwen3.5 9B, 27B": ("Qwen3_5", qwen3(QWEN3_5, 27), BY_16, 0, (3, 5)),
    "Qwen2-VL 2B, 7B": (
        "Qwen2VL", QWEN | {"text_config": QWEN2, "vision_config": QWEN2_EYES},
        BY_14, 0, (5, 9),
    ),
    "Qwen2.5-VL 3B, 7B": (
        "Qwen2_5_VL",
        QWEN | {"text_config": QWEN2, "vision_config": QWEN14 | {
            "hidden_size": 80, "intermediate_size": 56, "out_hidden_size": 64, "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        }},
        BY_14, 0, (6, 9),
    ),
    "SmolVLM 256M, 500M": ("SmolVLM", smol(4, 512, 16, 12), tiles(512), 64, (8, 8)),
    "SmolVLM 2.2B": ("SmolVLM", smol(3, 384, 14, 27), tiles(384), 81, (9, 9)),
    "Idefics3 8B": ("Idefics3", smol(2, 364, 14, 27), tiles(364), 169, (13, 13)),
    "Gemma 3 4B, 12B, 27B": (
        "Gemma3",
        {
            "image_token_index": IMAGE, "mm_tokens_per_image": 256, "text_config": GEMMA3,
            "vision_config": SIGLIP | {"image_size": 896, "patch_size": 14, "num_hidden_layers": 2},
        },
        {"size": {"height": 896, "width": 896}}, 256, (16, 16),
    ),
    "Gemma 4 E2B, E4B": (
        "Gemma4",
        GEMMA4 | {"text_config": GEMMA4_SMALL, "vision_config": GEMMA4_EYES | HEADS | {
            "hidden_size": 64, "intermediate_size": 72, "head_dim": 16, "num_hidden_layers": 16,
            "use_clipped_linears": True,
        }},
        {"max_soft_tokens": 280}, 0, (3, 5),
    ),
    "Gemma 4 26B, 31B": (
        "Gemma4",
        GEMMA4 | {"text_config": GEMMA4_LARGE, "vision_config": GEMMA4_EYES | HEADS | SMALL | {
            "head_dim": 12, "num_hidden_layers": 27, "standardize": True,
        }},
        {"max_soft_tokens": 280}, 0, (3, 5),
    ),
    "Mistral Small 3.1, 3.2, Ministral 3": (
        "Mistral3",
        {
            "image_token_index": IMAGE, "spatial_merge_size": 2, "text_config": MISTRAL,
            "vision_config": PIXTRAL | {"patch_size": 14, "image_size": 1540, "hidden_act": "silu"},
        },
        LONGEST, 0, (3, 7),
    ),
    "Pixtral 12B": (
        "Llava",
        LLAVA | {"text_config": MISTRAL, "vision_config": PIXTRAL_12B},
        {"patch_size": 16, "size": {"longest_edge": 1024}}, 0, (5, 7),
    ),
    "LFM2-VL 450M": ("Lfm2Vl", lfm(12, True), {}, 0, (5, 7)),
    "LFM2-VL 1.6B, 3B": ("Lfm2Vl", lfm(27, False), {}, 0, (5, 7)),
}  # fmt: skip


def inputs_of(kind: str, config: dict[str, Any], grid: tuple[int, int]) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Return the inputs for an image, and the shape of its numbers as `golden_vision.pixels` draws them."""
    eyes = config["vision_config"]
    patch = eyes["patch_size"]
    if kind in {"SmolVLM", "Idefics3", "Gemma3"}:
        shape = [1, 3, eyes["image_size"], eyes["image_size"]]
        tile = torch.tensor(pixels(0, shape))
        return {"pixel_values": tile if kind == "Gemma3" else tile[None]}, shape
    side = {"Gemma4": 3, "Llava": 1}.get(kind, 2)
    high, broad = (side * each for each in grid)
    shape = [high * broad, 3 * patch**2 * (2 if kind.startswith("Qwen") else 1)]
    drawn = pixels(0, shape)
    values = torch.tensor(drawn)
    if kind.startswith("Qwen"):
        return {"pixel_values": values, "image_grid_thw": torch.tensor([[1, high, broad]])}, shape
    if kind == "Gemma4":
        places = np.indices((high, broad)).reshape(2, -1).T[None, :, ::-1].copy()
        return {"pixel_values": values[None], "image_position_ids": torch.tensor(places)}, shape
    if kind == "Lfm2Vl":
        mask = torch.ones((1, len(drawn)), dtype=torch.int64)
        sizes = torch.tensor([[high, broad]])
        return {"pixel_values": values[None], "pixel_attention_mask": mask, "spatial_shapes": sizes}, shape
    size = [high * patch, broad * patch]
    image = drawn.reshape(high, broad, 3, patch, patch).transpose(2, 0, 3, 1, 4).reshape(1, 3, *size)
    return {"pixel_values": torch.tensor(image), "image_sizes": torch.tensor([size])}, shape


def case(
    kind: str, config: dict[str, Any], settings: dict[str, Any], tokens: int, grid: tuple[int, int]
) -> dict[str, Any]:
    """Return a case."""
    with tempfile.TemporaryDirectory() as folder:
        model, shapes = make(kind, config, folder)
        written = json.loads(Path(folder, "config.json").read_text())
    inputs, shape = inputs_of(kind, written, grid)
    rows = joined(model.model.get_image_features(**inputs).pooler_output).numpy()
    tower = {name: each for name, each in shapes.items() if TOWER.search(name)}
    named = {LAYER.sub(r"\1.{}", name): each for name, each in tower.items()}
    counts = Counter(LAYER.sub(r"\1.{}", name) for name in tower)
    text = {"hidden_size": 64, "vocab_size": 96}
    own = re.compile(r"\w*(token|factor)\w*|(projector|mm_|spatial|model|vision)\w*")
    kept = {key: each for key, each in written.items() if own.fullmatch(key)}
    return {
        "config": kept | {"text_config": text},
        "settings": settings,
        "tokens": tokens,
        "grid": grid,
        "pixels": shape,
        "shapes": {name: [counts[name], *each] for name, each in named.items()},
        "rows": np.round(rows[[0, len(rows) // 2, -1], :32], 4).tolist(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    lines = [f"{json.dumps(name)}: {json.dumps(case(*each))}" for name, each in CASES.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
