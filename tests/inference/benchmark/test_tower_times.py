"""The towers that `rdchat report` times have shapes that fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.benchmark import tower_times
from rdchat.inference.benchmark.tower_times import SHAPES, time_towers

# isort: split
import mlx.core as mx

from rdchat.inference.vision import layer_functions
from rdchat.inference.vision.layer_functions import nothing_computed
from rdchat.inference.vision.towers import TOWERS, TowerCall, TowerWeights

CASES: dict[str, dict[str, Any]] = json.loads(SHAPES.read_text())


def test_each_tower_is_timed() -> None:
    assert {case["tower"] for case in CASES.values()} == TOWERS.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_shapes_fit(name: str) -> None:
    case = CASES[name]
    shapes = case["shapes"].items()
    weights = {each.format(n): mx.zeros(shape, mx.bfloat16) for each, (count, *shape) in shapes for n in range(count)}
    image = mx.zeros(case["image"])
    call = TowerCall(TowerWeights(weights), case["settings"], image, tuple(case["grid"]), lambda _: None)
    with nothing_computed():
        seen = TOWERS[case["tower"]](call)
    rows, columns = case["grid"]
    assert all(each.shape[0] == rows * columns for each in seen.arrays)
    assert 9e7 < sum(each.size for each in weights.values()) < 7e8


def test_times_of_a_small_tower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = next(name for name, case in CASES.items() if case["tower"] == "shuffled siglip")
    widths = {768: 24, 3072: 32, 12288: 384, 576: 16}
    case = json.loads(json.dumps(CASES[name]))
    case["shapes"] = {
        each: [min(shape[0], 2), *(widths.get(n, n) for n in shape[1:])] for each, shape in case["shapes"].items()
    }
    small = tmp_path / "towers.json"
    small.write_text(json.dumps({name: case}))
    monkeypatch.setattr(tower_times, "SHAPES", small)
    facts: dict[str, Any] = {}
    time_towers(facts, lambda _stage: None)
    assert facts == {"left_out": ["there is no GPU"]} or mx.metal.is_available()
    for module in (tower_times, layer_functions):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    facts = {}
    stages: list[str] = []
    time_towers(facts, stages.append)
    assert len(facts[name]) == 3
    # Two layers have attention and the rest, and a projector follows.
    assert [len(parts) for parts in facts[name]] == [5, 5, 5]
    assert min(map(min, facts[name])) > 0
    assert stages == [f"Images: {name}"]
