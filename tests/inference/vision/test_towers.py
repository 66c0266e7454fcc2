"""Rows of images equal transformers', from original checkpoints, copies by mlx-vlm and quantised ones."""

import gc
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from safetensors.numpy import load_file, save_file

from rdchat.errors import ModelError
from rdchat.inference.library.model_library import read_facts
from rdchat.inference.loading import load_model
from rdchat.inference.vision import towers
from rdchat.inference.vision.families import vision_of
from rdchat.inference.vision.image_rows import ImageRows
from tests.grids import share
from tests.inference.model_folders import change_config
from tests.inference.vision.golden_models import (
    GOLDEN,
    KINDS,
    Tensors,
    apart,
    copied,
    expected,
    golden_folder,
    prepared,
    tensors_of,
)

EQUAL = 1e-5
windows_of = towers._windows
PACKED = ("weight", "scales", "biases")
QUANTISED = share(
    [
        ("qwen3_vl", 4),
        ("smolvlm", 8),
        ("gemma4", 4),
        ("qwen3_vl", 8),
        ("smolvlm", 4),
        ("gemma4_e", 8),
        ("lfm2_vl", 4),
        ("qwen2_vl", 4),
        ("qwen2_5_vl", 4),
        ("mistral3", 4),
    ],
    3,
)


def rows_of(folder: Path, kind: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the rows of both images of a golden model, and their deep features."""
    rows = ImageRows(folder, vision_of(folder))
    seen = [rows.see(str(number), image) for number, image in enumerate(prepared(kind))]
    deep = [np.concatenate(each) for each in zip(*(image.deep for image in seen), strict=True)]
    return np.concatenate([image.rows for image in seen]), deep


def quantised(tensors: Tensors, bits: int, is_part: Callable[[str], bool]) -> tuple[Tensors, Tensors]:
    """Return a checkpoint whose tower is quantised, and one with the floats that this means."""
    packed = dict(tensors)
    floats = dict(tensors)
    for name, array in tensors.items():
        if is_part(name) and array.ndim == 2 and array.shape[1] % 32 == 0:
            parts = mx.quantize(mx.array(array), 32, bits)
            base = name.removesuffix("weight")
            packed |= {base + part: np.array(each) for part, each in zip(PACKED, parts, strict=True)}
            floats[name] = np.array(mx.dequantize(*parts, 32, bits))
    return packed, floats


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


@given(some.integers(1, 9), some.integers(1, 9), some.integers(1, 4))
def test_windows_have_the_patches_of_a_square_of_tokens(high: int, broad: int, side: int) -> None:
    """Each token has four patches, which follow one another."""
    windows = windows_of({"window_size": 8 * side, "patch_size": 4}, 4 * high * broad, (high, broad))
    found = {tuple(sorted(window)) for each in windows for window in np.array(each).tolist()}
    wanted: dict[tuple[int, int], list[int]] = {}
    for patch in range(4 * high * broad):
        row, column = divmod(patch // 4, broad)
        wanted.setdefault((row // side, column // side), []).append(patch)
    assert found == {tuple(each) for each in wanted.values()}


@pytest.mark.parametrize("stored", [mx.float16, mx.bfloat16])
def test_numbers_of_16_bits_are_read(tmp_path: Path, stored: mx.Dtype) -> None:
    folder = golden_folder(tmp_path / "model", "smolvlm")
    arrays = {name: mx.array(each).astype(stored) for name, each in tensors_of("smolvlm").items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    assert apart(rows_of(folder, "smolvlm")[0], expected("smolvlm")["rows"]) < 2e-2


@pytest.mark.parametrize("kind", KINDS)
def test_copies_by_mlx_vlm_have_the_same_rows(tmp_path: Path, kind: str) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    save_file(copied(kind, tensors_of(kind)), folder / "model.safetensors", {"format": "mlx"})
    assert apart(rows_of(folder, kind)[0], expected(kind)["rows"]) < EQUAL


@pytest.mark.parametrize(("kind", "bits"), QUANTISED)
def test_quantised_towers_are_those_of_their_numbers(tmp_path: Path, kind: str, bits: int) -> None:
    """Matrices and tables of positions."""
    folder = golden_folder(tmp_path / "model", kind)
    file = folder / "model.safetensors"
    found = []
    for tensors in quantised(
        load_file(file), bits, lambda name: "vis" in name or "connector" in name or "projector" in name
    ):
        save_file(tensors, file, {"format": "mlx"})
        found.append(rows_of(folder, kind)[0])
    assert apart(*found) < EQUAL
    assert apart(found[0], expected(kind)["rows"]) > 100 * EQUAL


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


def test_a_damaged_tower_is_an_error(tmp_path: Path) -> None:
    folder = golden_folder(tmp_path / "model", "smolvlm")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.vision_model.encoder.layers.1.mlp.fc1.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match="damaged"):
        rows_of(folder, "smolvlm")


def test_rows_are_kept_up_to_a_limit(tmp_path: Path) -> None:
    """The latest are kept even if they alone are more."""
    folder, (image, other) = golden_folder(tmp_path / "model", "smolvlm"), prepared("smolvlm")
    rows = ImageRows(folder, vision_of(folder))
    first = rows.see("a", image)
    assert rows.see("a", image) is first
    rows = ImageRows(folder, vision_of(folder), limit_bytes=first.rows.nbytes + 1)
    seen = [rows.see(key, each) for key, each in (("a", image), ("b", other), ("a", image))]
    assert rows.stored_rows("b") is None or rows.stored_rows("a") is seen[0]
    assert rows.stored_rows("a") is not None
    alone = ImageRows(folder, vision_of(folder), limit_bytes=1)
    assert alone.see("a", image) is alone.stored_rows("a")


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
