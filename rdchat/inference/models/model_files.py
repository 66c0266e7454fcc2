"""Finds a model by its name, and checks its files by their headers."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import InvalidSettingError, ModelError, RdchatError
from rdchat.files.atomic_folder import make_folder
from rdchat.files.foreign_files import check_entries, check_file, entries_of, read_json
from rdchat.hub.cache_layout import snapshot_of
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.memory_facts import ModelSizes
from rdchat.inference.api.requests import Dtype
from rdchat.inference.models.default_model import ensure_default_model
from rdchat.inference.models.file_digest import sha256_of
from rdchat.inference.models.gguf_header import check_gguf
from rdchat.inference.models.gguf_import import CONVERTER_REVISION, convert_gguf
from rdchat.inference.models.model_config import (
    check_architecture,
    check_quantization,
    context_length,
    kv_values_per_token,
    read_config,
)
from rdchat.inference.models.model_places import place_named
from rdchat.inference.models.model_sizes import check_sizes
from rdchat.inference.models.safetensors_file import StoredTensor
from rdchat.inference.models.weight_files import is_weights, read_headers, weight_files

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "*.tiktoken", "vocab.json", "spiece.model")
_READ_TOO = ("generation_config.json", "hf_quant_config.json")  # by mlx-lm, as parts of the configuration
_FLOAT_TYPES = {"BF16": Dtype.BFLOAT16, "F16": Dtype.FLOAT16, "F32": Dtype.FLOAT32}
_PACKED = {"weight", "biases", "qweight", "qzeros", "g_idx"}  # beside `scales` in MLX's, AWQ's and GPTQ's layouts
_CHOOSE_HINT = "Choose an MLX model folder: one with config.json, model*.safetensors and tokenizer.json."
_REFETCH_HINT = "Download or convert the model again."
_CACHED = "models--"  # begins the name of a repository's folder in the hub's cache
_LONGEST_WORDS = 200  # of what a file or a person says, in a message


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model folder by its headers."""

    folder: Path
    config: dict[str, Any] = field(repr=False)  # the content of config.json
    architecture: str  # mlx-lm's model type, such as `llama`
    weight_files: tuple[Path, ...]  # the safetensors files, in order
    sizes: ModelSizes


def resolve_model(model: str | None, on_progress: Callable[[LoadProgress], None] = lambda _progress: None) -> Path:
    """Find the model folder that a name stands for; look inside with `check_model_folder`.

    Args:
        model: A model folder, a GGUF file, a folder with nothing but one GGUF file, a name that `rdchat models list`
            gives, or None for the default model. GGUF files are converted once, into the cache.
        on_progress: Called while the default model is fetched or a GGUF file is converted.

    Raises:
        ModelError: If there is no such model, or it cannot be looked at.
        InvalidSettingError: If the name is empty.
        NetworkError: If the default model has to be fetched and cannot be.
        StorageError: If there is no room or permission to convert it.
    """
    if model is None:
        return ensure_default_model(on_progress)
    found = locate_model(model)
    return _import_gguf(found, on_progress) if found.suffix.lower() == ".gguf" and found.is_file() else found


def locate_model(model: str) -> Path:
    """Return the model folder or the GGUF file that a name stands for; nothing is converted.

    Raises:
        ModelError: If there is no such model, or it cannot be looked at.
        InvalidSettingError: If the name is empty.
    """
    if not model.strip():
        raise InvalidSettingError("The model's name is empty.", _CHOOSE_HINT)
    with _in_words(model):
        return _find(model)


@contextmanager
def _in_words(model: str) -> Iterator[None]:
    """Turn errors of the system, and unforeseen ones from damaged files, into ModelErrors."""
    try:
        yield
    except RdchatError:
        raise
    except OSError as error:
        raise ModelError(
            f"{_shortened(model)} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
    except RecursionError as error:
        raise ModelError(f"{_shortened(model)} is damaged: its files are nested too deeply.", _REFETCH_HINT) from error
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ModelError(f"{_shortened(model)} cannot be used: {_shortened(str(error))}.", _REFETCH_HINT) from error


def _shortened(text: str) -> str:
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "..."


def _find(model: str) -> Path:
    """Return the folder or the GGUF file that a name stands for."""
    place = Path(os.path.expanduser(model)).absolute()  # noqa: PTH111  pathlib raises where there is no such user
    if place.is_dir():
        return _lone_gguf(place) or place
    if place.is_file():
        if place.suffix.lower() != ".gguf":
            raise ModelError(f"{place} is a file, not a model.", _CHOOSE_HINT)
        return place
    if os.path.lexists(place):
        check_file(place, _CHOOSE_HINT)  # says what it is: a named pipe, a link that leads nowhere
    if is_hub_id(model) and (snapshot := snapshot_of(model)) is not None:
        return _lone_gguf(snapshot) or cached_snapshot(model)
    if (named := place_named(model)) is not None:
        return named.path
    if is_hub_id(model):
        return cached_snapshot(model)
    raise ModelError(f"There is no model at {place}.", "Check the path. " + _CHOOSE_HINT)


def display_name(model: str | Path | None, folder: Path) -> str:
    """Return the name to show for the model in `folder` that was asked for as `model`."""
    return folder.name if model is None or Path(os.path.expanduser(model)).is_dir() else str(model)  # noqa: PTH111


def shown_name(folder: Path) -> str:
    """Return the name to show for a folder; the hub id in the hub's cache, whose folders are named by hashes."""
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith(_CACHED):
        return repository.removeprefix(_CACHED).replace("--", "/")[:100]
    return folder.name[:100]


def _lone_gguf(folder: Path) -> Path | None:
    """Return the GGUF file of a folder that is no MLX model folder but holds one."""
    entries = entries_of(folder)
    if folder / "config.json" in entries and any(path.suffix == ".safetensors" for path in entries):
        return None
    found = [path for path in entries if path.suffix == ".gguf" and path.is_file()]
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:5])
        raise ModelError(f"{folder} holds {len(found)} GGUF files: {names}.", "Name the one that you want.")
    return found[0] if found else None


def _import_gguf(source: Path, on_progress: Callable[[LoadProgress], None]) -> Path:
    check_gguf(source)  # before it is read whole
    try:
        size = source.stat().st_size
        digest = sha256_of(source, lambda done: on_progress(LoadProgress("Reading the GGUF file", done)))
    except OSError as error:
        raise ModelError(f"{source} cannot be read: {error.strerror}.", "Check its permissions.") from error
    stem = source.stem.encode("utf-8", "replace").decode()  # MLX writes and reads only paths of UTF-8
    return make_folder(
        paths.models_dir() / f"{stem}-{digest[:8]}",
        f"sha256:{digest} converter {CONVERTER_REVISION}",
        lambda folder: convert_gguf(source, folder, on_progress),
        lambda: on_progress(LoadProgress("Waiting for another rdchat that converts the model", None)),
        f"{size / 1e9:.1f} GB",
    )


def is_hub_id(name: str) -> bool:
    """Tell whether a name looks like one of the hub's: `publisher/name`."""
    return _HUB_ID.fullmatch(name) is not None


def cached_snapshot(repository: str, what: str = "model") -> Path:
    """Return the folder of a repository that is in the hub's cache; nothing is fetched.

    Args:
        repository: A hub id.
        what: What it should hold, for the message.

    Raises:
        ModelError: If it is not there.
    """
    snapshot = snapshot_of(repository)
    if snapshot is None or not (snapshot / "config.json").is_file():
        raise ModelError(
            f"{repository} is neither a folder nor a {what} in the Hugging Face cache.",
            f"Fetch it with `rdchat models download {repository}`, or give the path of a {what} folder.",
        )
    return snapshot


def check_model_folder(folder: Path) -> ModelFiles:
    """Check a model folder by its headers alone, in milliseconds.

    Raises:
        ModelError: Says what is wrong with which file: missing, empty, no model folder, a damaged config, an unknown
            architecture or quantisation, weights missing or cut short, no tokenizer, no permission to read.
    """
    with _in_words(str(folder)):
        return _check(folder)


def _check(folder: Path) -> ModelFiles:
    if not folder.is_dir():
        raise ModelError(f"There is no folder at {folder}.", "It may have been moved or deleted. " + _CHOOSE_HINT)
    entries = entries_of(folder)
    if not entries:
        raise ModelError(f"The folder {folder} is empty.", _CHOOSE_HINT)
    if folder / "config.json" not in entries:
        raise ModelError(f"{folder} is not a model folder: it has no config.json.", _CHOOSE_HINT)
    check_entries(entries, is_weights)
    for name in _READ_TOO:
        if folder / name in entries and not isinstance(read_json(folder / name), dict):
            raise ModelError(f"{folder / name} is damaged: it is no JSON object.", _REFETCH_HINT)
    config = read_config(folder)
    architecture = check_architecture(config)
    bits, group = check_quantization(config)
    found = weight_files(folder, entries)
    if not any(path.match(pattern) for path in entries for pattern in _VOCABULARIES):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json).", _REFETCH_HINT)
    tensors = read_headers(folder, found)
    check_sizes(config, tensors)
    sizes = ModelSizes(
        parameters=_count_parameters(tensors, config, group),
        stored_bytes=sum(tensor.stored_bytes for tensor in tensors.values()),
        quantization_bits=bits,
        float_type=_float_type(tensors),
        kv_values_per_token=kv_values_per_token(config),
        context_length=context_length(config, folder),
    )
    return ModelFiles(folder, config, architecture, found, sizes)


def _float_type(tensors: Mapping[str, StoredTensor]) -> Dtype:
    """Return the type that most bytes of floats have; bfloat16 where there are none of the three."""
    stored = dict.fromkeys(_FLOAT_TYPES, 0)
    for tensor in tensors.values():
        if tensor.dtype in stored:
            stored[tensor.dtype] += tensor.stored_bytes
    return _FLOAT_TYPES[max(stored, key=stored.__getitem__)]


def _count_parameters(tensors: Mapping[str, StoredTensor], config: Mapping[str, Any], group: int) -> int:
    """Count weights: a quantised matrix has one scale for each group, whatever its bits; the rest as they are."""
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
