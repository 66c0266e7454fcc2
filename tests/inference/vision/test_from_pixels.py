"""Law: an image of any size becomes as many rows as its layout has tokens, and the prompt takes just these."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rdchat.inference.prompts.encoding import filled
from rdchat.inference.vision.families import Family, image_token, vision_of
from rdchat.inference.vision.image_prompts import with_images
from rdchat.inference.vision.image_rows import ImageRows
from rdchat.inference.vision.processors import PROCESSORS
from tests.inference.vision.golden_models import GOLDEN, golden_folder

SETTINGS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"patch_size": 4, "merge_size": 2, "min_pixels": 64, "max_pixels": 64 * 20},
    "qwen3_vl": {"patch_size": 4, "merge_size": 2, "min_pixels": 64, "max_pixels": 64 * 20},
    "mistral3": {"size": {"longest_edge": 64}},
    "pixtral": {"size": {"longest_edge": 40}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 32}},
    "gemma3": {"size": {"height": 32, "width": 32}},
    "gemma4": {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 20},
    "lfm2_vl": {"encoder_patch_size": 4, "min_image_tokens": 4, "max_image_tokens": 16, "tile_size": 16},
}
PIXELS = {"pixtral": "[IMG]", "qwen": "<|image_pad|>", "gemma3": "<image_soft_token>", "gemma4": "<|image|>"}
SIDES = some.integers(1, 120)


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    @cache
    def made(kind: str) -> tuple[ImageRows, Family, dict[str, Any]]:
        folder = golden_folder(tmp_path_factory.mktemp(kind) / "model", kind)
        (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS[kind]))
        vision = vision_of(folder)
        assert vision.family is not None
        return ImageRows(folder, vision), vision.family, vision.family.image_settings(Path(folder))

    yield made
    made.cache_clear()


@pytest.mark.parametrize("kind", sorted(SETTINGS))
@given(sizes=some.lists(some.tuples(SIDES, SIDES), min_size=1, max_size=3), cap=some.sampled_from([None, 4, 64]))
@settings(max_examples=12, deadline=None)
def test_images_of_any_size_become_the_rows_of_their_tokens(
    towers: object, kind: str, sizes: list[tuple[int, int]], cap: int | None
) -> None:
    rows, family, own = towers(kind)  # type: ignore[operator]
    # Gemma 4 takes 1,120 tokens then, more than this tower has positions for.
    cap = 64 if kind == "gemma4" and cap is None else cap
    token = image_token(GOLDEN[kind]["config"])
    images = []
    seen = []
    text = "a"
    for width, height in sizes:
        rgb = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
        image = PROCESSORS[family.processor].prepare(rgb, own, cap)
        seen.append(rows.see(f"{kind} {width} {height} {cap}", image))
        assert seen[-1].rows.shape == (image.layout.pixel_tokens, 64)
        images.append((f"{width} {height}", image.layout))
        text += family.placeholder + "b"
    # Each token for pixels is one word of the expanded text.
    pixels = PIXELS.get(family.processor, "<image>")
    prompt = filled(text, family.placeholder, [family.expanded(layout) for _, layout in images], "\ue000")
    ids = [token if word == "\1" else 5 for word in prompt.replace(pixels, "\0\1\0").split("\0") if word]
    changed, spans = with_images(ids, token, images, family)
    prompt = rows.prompt(changed, spans, seen)
    call = prompt.rows_for_call(0, len(changed), lambda tokens: mx.zeros((len(tokens), 64)))
    assert call is not None
    at = [index for index, each in enumerate(changed) if each < 0]
    found = np.array(call.embeddings[0])[at] * prompt.scale
    assert np.allclose(found, np.concatenate([image.rows for image in seen]), atol=1e-5)
