"""Rows of images equal transformers', from original checkpoints, copies and quantised ones, in published shapes.

`scripts/golden_shapes.py` writes those. Whether a tower fits its settings is found as the model is loaded.
"""

import gc
import json
from pathlib import Path
from typing import Any
from weakref import ref

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from safetensors.numpy import load_file, save_file

import rdchat.inference.blas  # noqa: F401  before MLX
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.loading import load_model
from rdchat.inference.vision import image_rows, layer_functions
from rdchat.inference.vision.families import ANY_TOWER, vision_of
from rdchat.inference.vision.image_rows import ImageRows, seeing
from rdchat.inference.vision.layer_functions import attend
from rdchat.inference.vision.prepared_images import Layout, Prepared
from rdchat.inference.vision.processors import PROCESSORS
from scripts.families.drawn_weights import drawn
from tests.inference.model_folders import change_config, folder_of
from tests.inference.vision.seeing_models import (
    GOLDEN,
    HERE,
    KINDS,
    apart,
    expected,
    golden_folder,
    prepared,
    seeing_folder,
    tensors_of,
)

EQUAL = 1e-5


def rows_of(folder: Path, kind: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the rows of both images of a golden model, and their deep features."""
    rows = ImageRows(folder, vision_of(folder))
    seen = [rows.see(str(number), image) for number, image in enumerate(prepared(kind))]
    deep = [np.concatenate(each) for each in zip(*(image.deep for image in seen), strict=True)]
    return np.concatenate([image.rows for image in seen]), deep


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_rows_equal_those_of_transformers(tmp_path: Path, kind: str) -> None:
    rows, deep = rows_of(golden_folder(tmp_path / "model", kind), kind)
    wanted = expected(kind)
    assert apart(rows, wanted["rows"]) < EQUAL
    assert len(deep) == len(wanted["deep"])
    assert all(apart(*pair) < EQUAL for pair in zip(deep, wanted["deep"], strict=True))


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl", "lfm2_vl"])
def test_images_of_one_token_and_of_one_line(tmp_path: Path, kind: str) -> None:
    """Positions stretch over the image, also where their table is larger or smaller."""
    folder = golden_folder(tmp_path / "model", kind)
    rows = ImageRows(folder, vision_of(folder))
    images = prepared(kind, [[(1, 1)], [(1, 7)], [(7, 1)], [(5, 5)]])
    seen = [rows.see(str(number), image).rows for number, image in enumerate(images)]
    assert apart(np.concatenate(seen), expected(kind)["others"]) < EQUAL


def test_the_configuration_decides_whether_a_projector_has_a_norm(tmp_path: Path) -> None:
    """Its weights may be there all the same."""
    folder = golden_folder(tmp_path / "model", "lfm2_vl")
    change_config(folder, projector_use_layernorm=False)
    assert apart(rows_of(folder, "lfm2_vl")[0], expected("lfm2_vl")["plain"]) < EQUAL
    assert apart(expected("lfm2_vl")["plain"], expected("lfm2_vl")["rows"]) > 1e-2


@pytest.mark.parametrize("stored", [mx.float16, mx.bfloat16])
def test_numbers_of_16_bits_are_read(tmp_path: Path, stored: mx.Dtype) -> None:
    folder = golden_folder(tmp_path / "model", "smolvlm")
    arrays = {name: mx.array(each).astype(stored) for name, each in tensors_of("smolvlm").items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    assert apart(rows_of(folder, "smolvlm")[0], expected("smolvlm")["rows"]) < 2e-2


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4", "mxfp8", "float8"])
def test_packing_without_biases_is_refused_when_the_model_is_opened(tmp_path: Path, mode: str) -> None:
    """It was refused in the middle of a reply, or read as whole numbers."""
    folder = golden_folder(tmp_path / "model", "smolvlm")
    arrays = {name: mx.array(each) for name, each in tensors_of("smolvlm").items()}
    for name, array in list(arrays.items()):
        if "vision" in name and array.ndim == 2 and array.shape[1] % 32 == 0:
            if mode == "float8":
                arrays |= {name: mx.to_fp8(array), f"{name}_scale_inv": mx.ones((1, 1))}
            else:
                words, scales = mx.quantize(array, mode=mode)
                arrays |= {name: words, f"{name.removesuffix('weight')}scales": scales}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    reason = "Its vision is packed in a way that rdchat does not know."
    assert (vision_of(folder).family, vision_of(folder).reason) == (None, reason)
    facts = read_facts(folder)
    info = load_model(folder, "float32").info
    assert (facts.sees, facts.blind, facts.problem) == (False, reason, "")
    assert (info.sees, info.blind) == (False, reason)


def test_rows_are_kept_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last, and the latest even if they alone are more."""
    folder = golden_folder(tmp_path / "model", "smolvlm")
    rows = ImageRows(folder, vision_of(folder))
    image, _ = prepared("smolvlm")
    size = rows.see("a", image).rows.nbytes
    for limit, stored in ((2 * size, "ac"), (1, "c")):
        monkeypatch.setattr(image_rows, "CACHED_ROWS_BYTES", limit)
        rows.drop_rows()
        for key in "ab":
            rows.see(key, image)
        rows.stored_rows("a")
        rows.see("c", image)
        assert [key for key in "abc" if rows.stored_rows(key)] == [*stored]


def test_a_tower_is_freed_with_its_rows(tmp_path: Path) -> None:
    """Without Python's collector: a model that is unloaded frees its memory at once."""
    folder = golden_folder(tmp_path / "model", "smolvlm")
    rows = ImageRows(folder, vision_of(folder))
    rows.see("a", prepared("smolvlm")[0])
    held = ref(rows._weights)
    assert held() is not None
    gc.disable()
    try:
        del rows
        assert held() is None
    finally:
        gc.enable()


def test_work_ends_between_two_layers(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "smolvlm")
    rows = ImageRows(folder, vision_of(folder))
    calls = []

    def waiting() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        rows.see("a", prepared("smolvlm")[0], waiting)
    assert len(calls) == 3
    assert rows.stored_rows("a") is None


# isort: split


@given(
    some.lists(some.integers(1, 3), max_size=1),
    some.integers(1, 9),
    some.integers(1, 3),
    some.integers(1, 2),
    some.integers(1, 80),
    some.booleans(),
    some.integers(0, 2**32 - 1),
)
def test_attention_in_parts_is_the_same(
    batch: list[int], count: int, heads: int, each: int, pairs: int, as_on_gpu: bool, seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    shapes = [(*batch, count, number, 8) for number in (each * heads, heads, heads)]
    q, k, v = (mx.array(3 * numbers.normal(size=shape)).astype(mx.float32) for shape in shapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_functions, "_PAIRS", pairs)
        patch.setattr(layer_functions, "_CPU_PAIRS", pairs)
        patch.setattr(layer_functions, "on_gpu", lambda: as_on_gpu)
        found = attend(q, k, v, 0.5)
    whole = [part.reshape(-1, count, part.shape[-2], 8).swapaxes(1, 2) for part in (q, k, v)]
    expected = mx.fast.scaled_dot_product_attention(*whole, scale=0.5).swapaxes(1, 2)
    assert found.shape == (*batch, count, each * heads * 8)
    assert np.allclose(np.array(found), np.array(expected.reshape(found.shape)), atol=1e-5)


def test_numbers_that_are_not_finite_stay_so_without_a_warning() -> None:
    q = mx.array([[[np.inf]], [[1.0]]])
    assert not np.isfinite(np.array(attend(q, q, q))).all()


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


@settings(max_examples=30)
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


@settings(max_examples=30)
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


PUBLISHED: dict[str, dict[str, Any]] = json.loads((HERE / "published.json").read_text())
EQUAL_PUBLISHED = 3e-5


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_tower_of_a_published_shape_is_that_of_transformers(tmp_path: Path, name: str) -> None:
    case = PUBLISHED[name]
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
    assert np.abs(seen - wanted).max() < 6e-5 + EQUAL_PUBLISHED * np.ptp(wanted)
