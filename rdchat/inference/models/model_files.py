"""Finds a model's folder by name (`locate_model`), and checks it by its headers alone (`check_model_folder`).

A name is a folder, a name in `rdchat models list`, or a hub id. `TargetBinding` is how a drafter names the model that
it was trained for.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError, ModelError, RdchatError
from rdchat.files import (
    REFETCH_HINT,
    check_entries,
    check_file,
    entries_of,
    read_object,
)
from rdchat.hub import drafter_for, snapshot_of
from rdchat.inference.api import Dtype, ModelInfo, ModelSizes, OnProgress
from rdchat.inference.models.default_model import ensure_default_model
from rdchat.inference.models.model_config import (
    check_architecture,
    check_quantization,
    check_sizes,
    context_length,
    kv_values_per_token,
    read_config,
)
from rdchat.inference.models.model_locations import find_card
from rdchat.inference.models.safetensors_file import (
    StoredTensor,
    is_weights,
    read_headers,
    target_hash,
    weight_files,
)

# Key in a drafter's configuration under which a drafter of a published layout has its `TargetBinding`.
BINDING = "rdchat"

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
# Names of a tokenizer's files; a model needs one of them.
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "*.tiktoken", "vocab.json", "spiece.model")
# mlx-lm reads these as parts of the configuration.
_READ_TOO = ("generation_config.json", "hf_quant_config.json")
_FLOAT_TYPES = {"BF16": Dtype.BFLOAT16, "F16": Dtype.FLOAT16, "F32": Dtype.FLOAT32}
# Names of the tensors beside `scales` in a quantised layer, in MLX's, AWQ's and GPTQ's layouts.
_PACKED = {"weight", "biases", "qweight", "qzeros", "g_idx"}
_MLX_HINT = "Look for its MLX version in Models > Find, or with `rdchat models search {}`."
_CHOOSE_HINT = "Choose an MLX model folder: one with config.json, model*.safetensors and tokenizer.json."
# Prefix of a repository's folder in the hub's cache.
_CACHED = "models--"
# Maximum length of quoted names and messages.
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class TargetBinding:
    """The model that a drafter was trained for: its name for people, mlx-lm's model type, and `target_hash`."""

    name: str
    architecture: str
    hash: str

    @classmethod
    def for_model(cls, info: ModelInfo) -> "TargetBinding":
        """Return the binding to a loaded model."""
        return cls(info.name, info.architecture, target_hash(info.path))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Facts about a model folder, from its headers.

    Attributes:
        folder: The folder.
        architecture: Model type of mlx-lm, such as `llama`.
        sizes: What its memory is computed from, and the context length.
        weights: The files of its weights.
    """

    folder: Path
    architecture: str
    sizes: ModelSizes
    weights: tuple[Path, ...]


def resolve_model(model: str | None, on_progress: OnProgress = lambda _progress: None) -> Path:
    """Return the model folder for a name; check it with `check_model_folder`.

    Args:
        model: A model folder, a name from `rdchat models list`, or None for the default model.
        on_progress: Called while the default model is downloaded and converted.

    Raises:
        ModelError: If there is no such model, or it cannot be read.
        InvalidSettingError: If the name is empty.
        NetworkError: If the default model cannot be downloaded.
        StorageError: If there is no space or permission to convert it.
    """
    return ensure_default_model(on_progress) if model is None else locate_model(model)


def locate_model(model: str) -> Path:
    """Return the model folder for a name.

    Raises:
        ModelError: If there is no such model, or it cannot be read.
        InvalidSettingError: If the name is empty.
    """
    if not model.strip():
        raise InvalidSettingError("The model's name is empty.", _CHOOSE_HINT)
    with _as_model_errors(model):
        return _find(model)


@contextmanager
def _as_model_errors(model: str) -> Iterator[None]:
    """Turn errors of the system, and unexpected ones from damaged files, into ModelErrors."""
    try:
        yield
    except RdchatError:
        raise
    except OSError as error:
        raise ModelError(
            f"{_shortened(model)} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
    except RecursionError as error:
        raise ModelError(f"{_shortened(model)} is damaged: its files are nested too deeply.", REFETCH_HINT) from error
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ModelError(f"{_shortened(model)} cannot be used: {_shortened(str(error))}.", REFETCH_HINT) from error


def _shortened(text: str) -> str:
    """Return a name or a foreign message as one line of limited length."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST_NAME else line[:_LONGEST_NAME] + "..."


def _find(model: str) -> Path:
    """Do `locate_model`; a folder on the disk comes before a hub id, and a hub id before a listed name."""
    path = Path(os.path.expanduser(model)).absolute()  # noqa: PTH111  pathlib raises where there is no such user
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            raise ModelError(f"{path} is a GGUF file, which rdchat does not read.", _MLX_HINT.format(path.stem))
        raise ModelError(f"{path} is a file, not a model.", _CHOOSE_HINT)
    if os.path.lexists(path):
        # The error names what it is: a named pipe, a broken link.
        check_file(path, _CHOOSE_HINT)
    if is_hub_id(model) and snapshot_of(model) is not None:
        return cached_snapshot(model)
    if (named := find_card(model)) is not None:
        return named.path
    if is_hub_id(model):
        # It is not in the cache: the error says so.
        return cached_snapshot(model)
    if os.sep not in model:
        raise ModelError(f"There is no model named {_shortened(model)}.", "`rdchat models list` has the names.")
    raise ModelError(f"There is no model at {path}.", "Check the path. " + _CHOOSE_HINT)


def display_name(model: str | Path | None, folder: Path) -> str:
    """Return the name to show for the model in `folder` that was requested as `model`."""
    return folder.name if model is None or Path(os.path.expanduser(model)).is_dir() else str(model)  # noqa: PTH111


def folder_label(folder: Path) -> str:
    """Return the name to show for a folder; in the hub's cache, where folders are named by hashes, the hub id."""
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith(_CACHED):
        return repository.removeprefix(_CACHED).replace("--", "/")[:100]
    return folder.name[:100]


def paired_drafter(model: Path) -> Path | None:
    """Return the folder of the drafter that rdchat suggests for the model in a folder, if the hub's cache has it."""
    drafter = drafter_for(folder_label(model))
    return None if drafter is None else snapshot_of(drafter.repository)


def is_hub_id(name: str) -> bool:
    """Return whether a name looks like a hub id: `publisher/name`."""
    return _HUB_ID.fullmatch(name) is not None


def cached_snapshot(repository: str, what: str = "model") -> Path:
    """Return the folder of a repository in the hub's cache; downloads nothing.

    Args:
        repository: A hub id.
        what: What it should be, for the message.

    Raises:
        ModelError: If it is not in the cache.
    """
    snapshot = snapshot_of(repository)
    if snapshot is None or not (snapshot / "config.json").is_file():
        raise ModelError(
            f"{repository} is neither a folder nor a {what} in the Hugging Face cache.",
            f"Download it with `rdchat models download {repository}`, or give the path of a {what} folder.",
        )
    return snapshot


def check_model_folder(folder: Path) -> ModelFiles:
    """Check a model folder by its headers alone, in milliseconds.

    Raises:
        ModelError: Names the file and its problem: missing, empty, not a model folder, a damaged config, an
            unsupported architecture or quantisation, weights missing or incomplete, no tokenizer, no permission to
            read.
    """
    with _as_model_errors(str(folder)):
        return _check(folder)


def _check(folder: Path) -> ModelFiles:
    """Do `check_model_folder`; foreign data may cause any error."""
    if not folder.is_dir():
        raise ModelError(f"There is no folder at {folder}.", "It may have been moved or deleted. " + _CHOOSE_HINT)
    entries = entries_of(folder)
    if not entries:
        raise ModelError(f"The folder {folder} is empty.", _CHOOSE_HINT)
    if folder / "config.json" not in entries:
        raise ModelError(f"{folder} is not a model folder: it has no config.json.", _CHOOSE_HINT)
    check_entries(entries, is_weights)
    for name in _READ_TOO:
        if folder / name in entries:
            read_object(folder / name)
    config = read_config(folder)
    if folder / "hf_quant_config.json" in entries:
        # ModelOpt keeps its settings in this file alone.
        config = {"quantization_config": {"quant_method": "modelopt"}} | config
    architecture = check_architecture(config)
    bits, group = check_quantization(config)
    files = weight_files(folder, entries)
    if not any(path.match(pattern) for path in entries for pattern in _VOCABULARIES):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json).", REFETCH_HINT)
    tensors = read_headers(folder, files)
    check_sizes(config, tensors)
    sizes = ModelSizes(
        parameters=_count_parameters(tensors, config, group),
        stored_bytes=sum(tensor.stored_bytes for tensor in tensors.values()),
        quantization_bits=bits,
        float_type=_float_type(tensors),
        kv_values_per_token=kv_values_per_token(config),
        context_length=context_length(config, folder),
    )
    return ModelFiles(folder, architecture, sizes, files)


def _float_type(tensors: Mapping[str, StoredTensor]) -> Dtype:
    """Return the float type with the most bytes; bfloat16 if none of the three occurs."""
    stored = dict.fromkeys(_FLOAT_TYPES, 0)
    for tensor in tensors.values():
        if tensor.dtype in stored:
            stored[tensor.dtype] += tensor.stored_bytes
    return _FLOAT_TYPES[max(stored, key=stored.__getitem__)]


def _count_parameters(tensors: Mapping[str, StoredTensor], config: Mapping[str, Any], group: int) -> int:
    """Count weights; a quantised matrix is counted by its scales, one for each group."""
    settings = config.get("quantization") or {}
    total = 0
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        quantized = f"{module}.scales" in tensors
        if quantized and part == "scales":
            own = settings.get(module)
            total += tensor.elements * (own.get("group_size", group) if isinstance(own, dict) else group)
        elif not (quantized and part in _PACKED):
            total += tensor.elements
    return total
