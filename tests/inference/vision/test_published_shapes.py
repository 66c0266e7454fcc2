"""Towers in the shapes of published models compute what transformers does; only widths are small.

`scripts/golden_shapes.py` writes the cases. It once took a tower with pixels over for a damaged one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rdchat.inference.vision.families import vision_of
from rdchat.inference.vision.image_process import Layout, Prepared
from rdchat.inference.vision.image_rows import ImageRows, seeing
from rdchat.inference.vision.processors import PROCESSORS
from scripts.families.drawn_weights import drawn
from tests.inference.model_folders import folder_of
from tests.inference.vision.golden_models import HERE

CASES: dict[str, dict[str, Any]] = json.loads((HERE / "published.json").read_text())
EQUAL = 3e-5


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_tower_of_a_published_shape_is_that_of_transformers(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    names = [(each, number, shape) for each, (count, *shape) in case["shapes"].items() for number in range(count)]
    tensors = {each.format(number): drawn(each.format(number), shape) for each, number, shape in names}
    folder = folder_of(tmp_path / "model", case["config"], tensors)
    (folder / "preprocessor_config.json").write_text(json.dumps(case["settings"]))
    vision = seeing(folder, vision_of(folder))
    assert vision.family is not None, vision.reason
    settings = vision.family.image_settings(folder)
    layout = PROCESSORS[vision.family.processor].layout(640, 480, settings, None)
    assert case["tokens"] in {0, layout.pixel_tokens // len(layout.grids)}
    grid = (case["grid"][0], case["grid"][1])
    pixels = np.random.default_rng(0).uniform(-1, 1, case["pixels"]).astype(np.float32)
    rows = np.array(ImageRows(folder, vision).see("image", Prepared(pixels, Layout((grid,), (1, 1)))).rows)
    wanted = np.array(case["rows"])
    seen = rows[[0, len(rows) // 2, -1], : wanted.shape[1]]
    assert np.abs(seen - wanted).max() < 6e-5 + EQUAL * np.ptp(wanted)
