"""Processors of images: transformers' own numbers, and as many tokens as the person allows."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat import host
from rdchat.errors import ModelError
from rdchat.inference.api import ImageCap
from rdchat.inference.vision.processors import PROCESSORS
from tests.inference.vision.pictures import drawn

CASES = json.loads((Path(__file__).parent / "golden" / "processors.json").read_text())["cases"]
SETTINGS: dict[str, dict[str, Any]] = {case["processor"]: case["settings"] for case in reversed(CASES)}
SIDES = some.integers(1, 20_000)


@pytest.mark.parametrize(
    ("number", "size"), [(number, size) for number, case in enumerate(CASES) for size in case["sizes"]]
)
def test_patches_are_those_of_transformers(number: int, size: str) -> None:
    case, (width, height) = CASES[number], map(int, size.split("x"))
    expected = case["sizes"][size]
    prepared = PROCESSORS[case["processor"]].prepare(drawn(width, height), case["settings"], case["max_tokens"])
    assert prepared.patches.dtype == np.float32
    assert list(prepared.patches.shape) == expected["shape"]
    assert prepared.patches.mean() == pytest.approx(expected["mean"], abs=1e-3)
    # A compiler for another processor may round a filter of Pillow's otherwise.
    if not host.MACOS:
        # LFM2-VL's are those of transformers to the nearest level of pixels.
        levels = np.rint((prepared.patches + 1) * 127.5).astype(np.uint8)
        numbers = levels if case["processor"] == "lfm2" else prepared.patches
        assert hashlib.sha256(np.ascontiguousarray(numbers)).hexdigest() == expected["sha256"]


@given(width=SIDES, height=SIDES, cap=some.sampled_from(ImageCap))
def test_every_size_has_tokens_within_the_cap(width: int, height: int, cap: ImageCap) -> None:
    for name, settings in SETTINGS.items():
        layout = PROCESSORS[name].layout(width, height, settings, cap.tokens)
        assert all(rows > 0 and columns > 0 for rows, columns in layout.grids)
        assert min(layout.size) > 0
        assert len(layout.grids) == (layout.tiles[0] * layout.tiles[1] or 0) + 1
        if cap.tokens is not None:
            # The whole image stands behind the tiles, and Gemma 3 always takes 256.
            whole = layout.grids[-1] if any(layout.tiles) else (0, 0)
            assert layout.pixel_tokens - whole[0] * whole[1] <= cap.tokens
            assert layout.pixel_tokens <= PROCESSORS[name].layout(width, height, settings, None).pixel_tokens


def test_a_line_of_pixels_is_seen_whole() -> None:
    for width, height in ((20_000, 1), (1, 20_000)):
        for name, settings in SETTINGS.items():
            prepared = PROCESSORS[name].prepare(drawn(width, height), settings, 256)
            assert np.isfinite(prepared.patches).all()
            assert prepared.layout.pixel_tokens <= 320


@pytest.mark.parametrize(
    "wrong",
    [
        {"patch_size": 0}, {"patch_size": True}, {"merge_size": -2}, {"patch_size": "16"},
        {"size": {"longest_edge": 0}}, {"min_pixels": 0.5}, {"image_std": [0.5, 0, 0.5]}, {"image_mean": [1, 2]},
        {"image_mean": "half"}, {"image_std": 1e-60}, {"rescale_factor": float("nan")}, {"resample": 9},
        {"resample": [1]}, {"temporal_patch_size": 2**80},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"settings for images are invalid: .+ is ") as caught:
        PROCESSORS["qwen"].prepare(drawn(9, 9), SETTINGS["qwen"] | wrong, None)
    assert "\n" not in str(caught.value)


def test_no_side_is_longer_than_4096_before_it_is_cut_into_tiles() -> None:
    layout = PROCESSORS["idefics3"].layout(9000, 4500, SETTINGS["idefics3"] | {"size": {"longest_edge": 8192}}, None)
    assert layout.size == (4096, 2048)


def test_tiles_without_number_are_refused() -> None:
    wrong = {"token_side": 8, "size": {"longest_edge": 4096}, "max_image_size": {"longest_edge": 1}}
    with pytest.raises(ModelError, match="max_image_size is 1"):
        PROCESSORS["idefics3"].layout(5000, 5000, wrong, None)
    for wrong in ({"max_tiles": 2000}, {"tile_size": 500}, {"tile_size": 16}):
        with pytest.raises(ModelError, match="size or number of tiles"):
            PROCESSORS["lfm2"].layout(5000, 5000, wrong, None)


def test_settings_that_are_missing_or_null_have_the_usual_values() -> None:
    usual = PROCESSORS["qwen"].prepare(drawn(99, 66), {}, None)
    nulls = dict.fromkeys(("patch_size", "size", "min_pixels", "max_pixels", "image_mean", "image_std", "resample"))
    assert np.array_equal(PROCESSORS["qwen"].prepare(drawn(99, 66), nulls, None).patches, usual.patches)
