"""Whether a tower fits its settings is found by shapes as the model is loaded; then no image fails for that."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from safetensors.numpy import load_file, save_file

from rdchat.inference.library.model_library import read_facts
from rdchat.inference.loading import load_model
from rdchat.inference.vision.families import ANY_TOWER, vision_of
from rdchat.inference.vision.image_rows import ImageRows, seeing
from rdchat.inference.vision.processors import PROCESSORS
from tests.inference.vision.golden_models import KINDS, golden_folder, prepared, tensors_of
from tests.inference.vision.seeing_chats import seeing_folder

UNKNOWN = "rdchat does not know how this model sees."
UNFIT = "Its vision is of a kind that rdchat does not know, or does not fit its settings."


def harmed(tensors: dict[str, np.ndarray], name: str, harm: str) -> dict[str, np.ndarray]:
    """Return the tensors of a model where one is missing, or has fewer rows or columns."""
    if harm == "missing":
        return {each: tensor for each, tensor in tensors.items() if each != name}
    changed = tensors[name][1:] if harm == "rows" else tensors[name][..., 1:]
    return tensors | {name: np.ascontiguousarray(changed)}


def check_images(folder: Path, kind: str) -> None:
    """Assert that the model sees an image if it is said to see; that would otherwise raise an error."""
    vision = seeing(folder, vision_of(folder))
    if vision.family is not None:
        ImageRows(folder, vision).see("image", prepared(kind)[0])
    else:
        assert vision.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_as_it_should_be_fits(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    assert seeing(folder, vision_of(folder)).family is not None
    # Positions alone are computed.
    assert mx.get_peak_memory() - before < 2**16


@settings(max_examples=100)
@given(data=some.data(), kind=some.sampled_from(KINDS), harm=some.sampled_from(("missing", "rows", "columns")))
def test_a_tensor_of_another_shape_is_found_before_the_first_image(
    tmp_path_factory: pytest.TempPathFactory, data: some.DataObject, kind: str, harm: str
) -> None:
    """It was called damaged at each image, and no chat with one went on."""
    tensors = tensors_of(kind)
    name = data.draw(some.sampled_from(sorted(filter(ANY_TOWER.search, tensors))))
    folder = seeing_folder(tmp_path_factory.mktemp("harmed") / "model", kind)
    save_file(harmed(tensors, name, harm if tensors[name].ndim else "missing"), folder / "model.safetensors")
    check_images(folder, kind)


@settings(max_examples=100)
@given(data=some.data(), kind=some.sampled_from(KINDS), value=some.sampled_from((0, 1, 3, 5, 7, 64, 2**40)))
def test_a_number_that_does_not_fit_is_found_before_the_first_image(
    tmp_path_factory: pytest.TempPathFactory, data: some.DataObject, kind: str, value: int
) -> None:
    folder = seeing_folder(tmp_path_factory.mktemp("harmed") / "model", kind)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config["vision_config"] if data.draw(some.booleans()) else config
    numbers = sorted(key for key, number in part.items() if type(number) is int and "token" not in key)
    if numbers:
        part[data.draw(some.sampled_from(numbers))] = value
    path.write_text(json.dumps(config))
    check_images(folder, kind)


@pytest.mark.parametrize("changed", [{"patch_size": 8}, {"merge_size": 1}, {"temporal_patch_size": 3}])
def test_settings_of_another_tower_leave_the_text(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    model = load_model(folder, "float32")
    assert (model.info.sees, model.info.blind, model.image_input) == (False, UNFIT, None)


def test_llava_is_not_taken_for_lfm2(tmp_path: Path) -> None:
    """Its tensors have the same names, but patches are read by a kernel."""
    folder = golden_folder(tmp_path / "model", "lfm2_vl")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    (name,) = (each for each in tensors if each.endswith("patch_embedding.weight"))
    save_file(tensors | {name: tensors[name].reshape(-1, 3, 4, 4)}, file)
    assert (vision_of(folder).family, vision_of(folder).reason) == (None, UNKNOWN)
    assert not read_facts(folder).sees
    assert load_model(folder, "float32").info.blind == UNKNOWN


_SIZES = some.integers(1, 200)


@settings(max_examples=60)
@given(name=some.sampled_from(sorted(PROCESSORS)), width=_SIZES, height=_SIZES, merge=some.integers(1, 3))
def test_the_shape_of_patches_is_known_without_them(name: str, width: int, height: int, merge: int) -> None:
    own = {"patch_size": 4, "encoder_patch_size": 4, "merge_size": merge, "token_side": 2, "tile_size": 8 * merge}
    own |= {"pooling_kernel_size": merge, "downsample_factor": merge, "max_image_size": {"longest_edge": 32}}
    size = {"longest_edge": 64, "shortest_edge": 16, "height": 32, "width": 32}
    given_settings = own | {"size": size, "do_image_splitting": False}
    layout = PROCESSORS[name].layout(width, height, given_settings, 8)
    rgb = np.zeros((height, width, 3), np.uint8)
    patches = PROCESSORS[name].patches(rgb, given_settings, layout)
    assert PROCESSORS[name].patches_shape(given_settings, layout) == patches.shape
