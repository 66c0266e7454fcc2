"""Writes rdchat/inference/benchmark/towers.json: vision towers for `rdchat report`, in the widths of published models.

    PYTHONPATH=. .venv/bin/python scripts/tower_shapes.py

The names, and the numbers of layers, are those of tests/inference/vision/golden/published.json, where only widths are
small. Each of these stands here with its published one. Projectors have the tower's widths where both were one small
number.
"""

import json
import re
from pathlib import Path
from typing import Any

from rdchat.inference.benchmark.tower_times import SHAPES
from rdchat.inference.vision.families import tower_among

PUBLISHED = Path("tests/inference/vision/golden/published.json")
# By the beginning of the name: heads, the image as the tower gets it, its grid of tokens, and the widths.
TOWERS: dict[str, tuple[int, list[int], list[int], dict[int, int]]] = {
    "Qwen3-VL 2B": (16, [4096, 1536], [32, 32], {48: 1024, 144: 3072, 56: 4096, 192: 4096, 64: 2048}),
    "Qwen2.5-VL": (16, [4096, 1176], [32, 32], {80: 1280, 240: 3840, 56: 3420, 320: 5120, 64: 3584}),
    "SmolVLM 256M": (12, [3, 512, 512], [8, 8], {48: 768, 56: 3072, 768: 12288, 64: 576}),
    "Gemma 3": (16, [3, 896, 896], [16, 16], {48: 1152, 56: 4304, 64: 2560}),
    "Gemma 4 26B": (16, [2304, 768], [16, 16], {48: 1152, 56: 4304, 12: 72, 64: 2816}),
    "Mistral": (16, [4096, 588], [32, 32], {64: 1024, 72: 4096, 256: 4096}),
    "LFM2-VL 1.6B": (16, [1024, 768], [16, 16], {48: 1152, 56: 4304, 192: 4608, 64: 2048}),
}
GEMMA3_LAYERS = {2: 27}
KEPT = (
    "depth", "deepstack_visual_indexes", "fullatt_block_indexes", "hidden_act", "in_channels", "num_channels",
    "patch_size", "spatial_merge_size", "window_size", "projector_use_layernorm",
)  # fmt: skip


def tower(
    case: dict[str, Any], heads: int, image: list[int], grid: list[int], widths: dict[int, int]
) -> dict[str, Any]:
    """Return a case of the file: the tower's function, settings, and shapes of tensors, `{}` for a layer's number."""
    family, own, _ = tower_among([name.format(0) for name in case["shapes"]])
    assert family is not None
    names = {stored: name for name, stored in own.items()}
    shapes = {}
    for stored, (count, *shape) in case["shapes"].items():
        if (name := names.get(stored.format(0))) and ".head." not in name:
            template = re.sub(r"(layers|blocks|list)\.0\.", r"\1.{}.", name) if "{}" in stored else name
            # Patches, tables and channels are published as they are.
            wide = [widths.get(size, size) for size in shape]
            if "patch_embedder.input_proj" in name or "patch_embedding" in name:
                wide = [wide[0], *shape[1:]]
            shapes[template] = [GEMMA3_LAYERS.get(count, count), *wide]
    config = case["config"]
    settings = {key: value for key, value in {**config, **config["vision_config"]}.items() if key in KEPT}
    settings |= {"num_heads": heads, "num_attention_heads": heads, "text_norm_eps": 1e-5}
    return {"tower": family.tower, "settings": settings, "image": image, "grid": grid, "shapes": shapes}


def main() -> None:
    published = json.loads(PUBLISHED.read_text())
    cases = {}
    for name, facts in TOWERS.items():
        full, case = next((full, case) for full, case in published.items() if full.startswith(name))
        cases[full] = tower(case, *facts)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    SHAPES.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
