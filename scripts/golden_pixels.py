"""Writes the golden file of image processors: hashes of what transformers' processors for Pillow make of pictures.

    python scripts/golden_pixels.py tests/inference/vision/golden/processors.json

It runs with a Python that has transformers 5.23, Pillow, NumPy, and for LFM2-VL torch and torchvision. A case has
rdchat's processor and settings, the cap of tokens, and for each size the SHA-256 of the patches, float32, with their
shape and their mean. transformers knows no cap: its limit of pixels, or of tiles, is lowered instead.

For LFM2-VL transformers has no processor for Pillow. The one for torchvision resizes by Pillow here, and numbers are
rounded to the 256 levels of pixels before they are hashed. By torchvision's own resizing, which is checked here, some
differ by up to LEVELS.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.image_processing_backends import TorchvisionBackend
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

SIZES = [(640, 480), (1920, 1080), (2016, 1512), (1000, 50), (100, 100), (1, 1), (33, 700), (15, 2000)]
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "rescale_factor": 0.00392156862745098,
    "resample": 3,
}
QWEN3 = HALF | {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
QWEN3_SIZE = {"shortest_edge": 65536, "longest_edge": 16777216}
QWEN2 = CLIP | {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
PIXTRAL = CLIP | {"size": {"longest_edge": 1540}, "patch_size": 14}
SMOL = HALF | {"max_image_size": {"longest_edge": 512}, "resample": 1, "do_image_splitting": True}
SMALL_TILES = HALF | {"max_image_size": {"longest_edge": 384}, "size": {"longest_edge": 1536}}
GEMMA = HALF | {"size": {"height": 896, "width": 896}, "resample": 2}
LFM2 = HALF | {"min_image_tokens": 64, "max_image_tokens": 256, "tile_size": 512, "max_tiles": 10, "resample": 2}
LEVELS = 2
GEMMA4 = {"patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 280, "resample": 3, "do_normalize": False}
# rdchat's processor, its settings and cap; transformers' class, and the settings that differ there
CASES: list[tuple[str, dict[str, Any], int | None, type, dict[str, Any]]] = [
    ("qwen", QWEN3 | {"size": QWEN3_SIZE}, None, Qwen2VLImageProcessorPil, {}),
    ("qwen", QWEN3 | {"size": QWEN3_SIZE}, 256, Qwen2VLImageProcessorPil,
     {"size": QWEN3_SIZE | {"longest_edge": 256 * 32**2}}),
    ("qwen", QWEN2 | {"min_pixels": 3136, "max_pixels": 1003520}, None, Qwen2VLImageProcessorPil, {}),
    # Mistral's processor of texts gives the one of images the size of a token.
    ("pixtral", PIXTRAL | {"merge_size": 2}, None, PixtralImageProcessorPil, {"patch_size": 28}),
    ("pixtral", CLIP | {"size": {"longest_edge": 1024}, "patch_size": 16}, None, PixtralImageProcessorPil, {}),
    ("idefics3", SMOL | {"size": {"longest_edge": 2048}, "token_side": 8}, None, SmolVLMImageProcessorPil, {}),
    ("idefics3", SMOL | {"size": {"longest_edge": 2048}, "token_side": 8}, 256, SmolVLMImageProcessorPil,
     {"size": {"longest_edge": 1024}}),
    ("idefics3", SMALL_TILES | {"token_side": 9}, None, Idefics3ImageProcessorPil, {}),
    ("idefics3", SMOL | {"size": {"longest_edge": 512}, "do_image_splitting": False, "token_side": 8}, None,
     SmolVLMImageProcessorPil, {}),
    ("gemma3", GEMMA | {"token_side": 16}, None, Gemma3ImageProcessorPil, {}),
    ("gemma4", GEMMA4, 1024, Gemma4ImageProcessorPil, {}),
    ("gemma4", GEMMA4, 140, Gemma4ImageProcessorPil, {"max_soft_tokens": 140}),
    # The most that transformers takes.
    ("gemma4", GEMMA4, None, Gemma4ImageProcessorPil, {"max_soft_tokens": 1120}),
    ("lfm2", LFM2, None, Lfm2VlImageProcessor, {}),
    ("lfm2", LFM2, 1024, Lfm2VlImageProcessor, {"max_tiles": 4}),
    ("lfm2", LFM2, 256, Lfm2VlImageProcessor, {"do_image_splitting": False}),
    ("lfm2", LFM2 | {"use_thumbnail": False}, None, Lfm2VlImageProcessor, {}),
]  # fmt: skip


def drawn(width: int, height: int) -> np.ndarray:
    """Draw the picture of `tests.inference.vision.pictures`."""
    y, x, channel = np.ogrid[:height, :width, :3]
    levels: np.ndarray = (x * x * 7 + y * y * 13 + x * y * 3 + channel * 808) // 8 % 256
    return levels.astype(np.uint8)


def patches_of(processor: Any, width: int, height: int, patch: int) -> np.ndarray:
    """Return transformers' patches: of Qwen, Gemma 4 and Pixtral (patches, numbers), else as tiles.

    Tiles are (tiles, channels, height, width). `patch` is the side of Pixtral's patches.
    """
    found = processor(Image.fromarray(drawn(width, height)), return_tensors="np")
    values: np.ndarray = np.asarray(found["pixel_values"])
    if "image_position_ids" in found:
        there: np.ndarray = values[0, found["image_position_ids"][0, :, 0] >= 0]
        return there
    if "image_sizes" in found:
        high, broad = (side // patch for side in values.shape[2:])
        return values.reshape(3, high, patch, broad, patch).transpose(1, 3, 0, 2, 4).reshape(high * broad, -1)
    # Idefics3 has a list of images for each text of the batch.
    return values[0] if values.ndim == 5 else values


def by_pillow(_self: Any, images: torch.Tensor, size: Any, **_: Any) -> torch.Tensor:
    """Resize images (n, channels, height, width) as the processors for Pillow do."""
    resized = [Image.fromarray(image.permute(1, 2, 0).numpy()).resize((size.width, size.height), 2) for image in images]
    return torch.tensor(np.stack([np.asarray(each) for each in resized])).permute(0, 3, 1, 2)


def levels_of(processor: Any, width: int, height: int, _: int) -> np.ndarray:
    """Return transformers' patches of LFM2-VL, tile after tile, in levels of pixels."""
    found = list[np.ndarray]()
    for resize in (TorchvisionBackend.resize, by_pillow):
        with patch.object(TorchvisionBackend, "resize", resize):
            made = processor(Image.fromarray(drawn(width, height)), return_tensors="pt")
        own = made["pixel_values"][made["pixel_attention_mask"].bool()].numpy()
        found.append(np.rint((own + 1) * 127.5))
    assert np.abs(found[0] - found[1]).max() <= LEVELS
    return found[1].astype(np.uint8)


def main() -> None:
    cases = []
    for name, settings, cap, kind, others in CASES:
        # Later limits of pixels count, as in the classes of transformers.
        processor = kind(**({key: value for key, value in settings.items() if key != "token_side"} | others))
        sizes = {}
        # Thin images have few tiles, so rdchat's cap leaves them as they are.
        is_tiled = name == "idefics3" and cap is not None
        for width, height in (each for each in SIZES if not is_tiled or max(each) < 4 * min(each)):
            read = levels_of if name == "lfm2" else patches_of
            patches = read(processor, width, height, settings.get("patch_size", 16))
            digest = hashlib.sha256(np.ascontiguousarray(patches)).hexdigest()
            mean = float(patches.mean()) if name != "lfm2" else float(patches.mean()) / 127.5 - 1
            sizes[f"{width}x{height}"] = {"shape": patches.shape, "sha256": digest, "mean": mean}
        cases.append({"processor": name, "settings": settings, "max_tokens": cap, "sizes": sizes})
    text = json.dumps({"transformers": transformers.__version__, "cases": cases}, indent=1)
    Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
