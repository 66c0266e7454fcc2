"""Writes and damages model folders, and collects the messages about them."""

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rdchat.errors import ModelError
from rdchat.inference.models.model_files import check_model_folder

_WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U32": 4}


def folder_of(place: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    """Write a model folder whose tokenizer has as many words as the model has rows."""
    place.mkdir(parents=True)
    rows = config.get("text_config", config)["vocab_size"]
    Tokenizer(WordLevel({f"w{number}": number for number in range(rows)}, unk_token="w0")).save(
        str(place / "tokenizer.json")
    )
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w2"}
    (place / "tokenizer_config.json").write_text(json.dumps(own))
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    (place / "config.json").write_text(json.dumps(config))
    return place


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def refusal(folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        check_model_folder(folder)
    assert caught.value.hint
    return caught.value


def rewrite_header(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a folder's weights, and leave their bytes."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    edit(header)
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data[end:])


def save_header(path: Path, shapes: dict[str, tuple[str, Sequence[int]]]) -> None:
    """Write the header of a file of weights, from their types and shapes; the weights are a hole and take no room."""
    header = {}
    end = 0
    for name, (kind, shape) in shapes.items():
        size = prod(shape) * _WIDTHS[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


def save_model(folder: Path, tokenizer_of: Path, network: nn.Module, config: dict[str, Any]) -> Path:
    """Write a network with its configuration, as mlx-lm would, and the tokenizer of another folder."""
    folder.mkdir()
    for file in tokenizer_of.glob("*token*.json"):
        shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder
