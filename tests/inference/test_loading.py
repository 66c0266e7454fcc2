"""Loading a model folder in every precision, and what is said where it cannot be."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file, save_file

from rdchat.errors import ModelError, OutOfMemoryError
from rdchat.inference.loading import load_model
from rdchat.inference.protocol import LoadProgress

TOKENS = mx.array([[1, 2, 3, 4]])


def logits(folder: Path, dtype: str) -> np.ndarray:
    return np.array(load_model(folder, dtype).network(TOKENS).astype(mx.float32))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 0), ("float16", 0.02), ("bfloat16", 0.1), ("8bit", 0.1), ("4bit", 0.02)]
)
def test_every_precision_gives_about_the_same_logits(small_model: Path, dtype: str, tolerance: float) -> None:
    exact = logits(small_model, "auto")  # on a CPU: float32
    assert np.abs(logits(small_model, dtype) - exact).max() <= tolerance * exact.std() * 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "8bit", "4bit"])
def test_what_is_loaded_is_what_is_said(small_model: Path, dtype: str) -> None:
    model = load_model(small_model, dtype)
    kinds = {str(array.dtype).removeprefix("mlx.core.") for _, array in _arrays(model.network)}
    assert model.info.dtype == dtype
    assert kinds == {dtype} if "float" in dtype else "uint32" in kinds
    assert model.info.weights_bytes == sum(array.nbytes for _, array in _arrays(model.network))
    assert model.info.vocabulary_size == model.network(TOKENS).shape[-1]


def _arrays(network: object) -> list[tuple[str, mx.array]]:
    from mlx.utils import tree_flatten

    return tree_flatten(network.parameters())  # type: ignore[attr-defined, no-any-return]


def test_progress_goes_from_nothing_to_all(small_model: Path) -> None:
    seen: list[LoadProgress] = []
    load_model(small_model, on_progress=seen.append)
    reading = [progress.fraction for progress in seen if progress.stage == "Reading weights"]
    assert (reading[0], reading[-1]) == (0, 1)
    assert reading == sorted(reading, key=lambda fraction: fraction or 0)


def test_a_tensor_that_is_missing_is_named(small_model: Path, tmp_path: Path) -> None:
    for file in small_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "mlx"})
    with pytest.raises(ModelError, match=r"cannot be loaded.*model\.norm\.weight"):
        load_model(tmp_path)


def test_a_model_larger_than_memory_is_refused_before_it_is_read(small_model: Path, tmp_path: Path) -> None:
    """The weights are a sparse file with a true header, so the folder is whole and takes no room."""
    config = json.loads((small_model / "config.json").read_text())
    config.pop("quantization", None)
    for file in small_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = psutil.virtual_memory().total // (2 * 1024)
    header = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "F16", "shape": [rows, 1024], "data_offsets": [0, rows * 2048]}}
    )
    with (tmp_path / "model.safetensors").open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header.encode())
        out.truncate(8 + len(header) + rows * 2048)
    with pytest.raises(OutOfMemoryError, match=r"needs [\d.]+ GB for its weights as float32.*is free") as caught:
        load_model(tmp_path)
    assert "smaller" in caught.value.hint
