"""Finds the tensors of MTP layers in a repository at the hub, by its index and the headers of its files.

The tensors are found by their names: configurations are silent in some families. No weights are read.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import parse_json
from rdchat.files.sizes import size_text
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import ChangedFileError, HubError
from rdchat.hub.hub_model import HubModel
from rdchat.hub.known_files import FilePart, HubFile
from rdchat.hub.names import is_safe_name
from rdchat.inference.models.model_config import LAYER_KEYS, text_config
from rdchat.inference.models.safetensors_file import MAX_HEADER_BYTES, StoredTensor, tensors_in

# Repositories that have nothing else end their model type so.
BARE = "_mtp"
OTHER_HINT = "Name another repository of the original model, as ORG/NAME."
_INDEX = "model.safetensors.index.json"
_ANY_MTP = re.compile(r"(?:^|\.)mtp\w*\.", re.ASCII)
_LAYER = re.compile(r"(?:(?:model|language_model)\.)*layers\.(\d{1,5})\.", re.ASCII)
# Copies of the model's own tables.
_COPIES = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head|shared_head\.head)\.")
_LENGTH_BYTES = 8
# Most headers fit into so many bytes.
_FIRST_BYTES = 2**18
# The largest model has some 2,000 in an MTP layer.
_MAX_FILES, _MAX_TENSORS = 300, 50_000


@dataclass(frozen=True, slots=True)
class HubTensor:
    """A tensor in a repository's file.

    Attributes:
        part: Bytes of the file that hold it.
    """

    name: str
    stored: StoredTensor
    part: FilePart


def is_mtp(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor is of an MTP layer: by its name, or by its number where they follow the other layers."""
    if _ANY_MTP.search(name) or str(config.get("model_type")).endswith(BARE):
        return True
    counted = _LAYER.match(name)
    counts = (text_config(config).get(key) for key in LAYER_KEYS)
    layers = next((count for count in counts if type(count) is int), None)
    return counted is not None and layers is not None and int(counted[1]) >= layers


def find_tensors(api: HubApi, model: HubModel, config: Mapping[str, Any]) -> list[HubTensor]:
    """Return the tensors of a model's MTP layers, without copies of the model's token tables.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, or index and headers contradict each other.
    """
    repository, files = model.repository, {file.name: file for file in model.files if is_safe_name(file.name)}
    tensors: dict[str, HubTensor] = {}
    for name, indexed in sorted(_files_with_layers(api, model, config).items()):
        if name not in files or not name.endswith(".safetensors"):
            raise HubError(f"The index of {repository} names a file that it does not have: {name[:100]}.", OTHER_HINT)
        header = {each.name: each for each in _read_file(api, model, files[name])}
        if missing := min(indexed - header.keys(), default=""):
            raise HubError(f"The index of {repository} is wrong: {name} has no tensor {missing[:100]}.", OTHER_HINT)
        layers = {tensor: each for tensor, each in header.items() if is_mtp(tensor, config)}
        if twice := min(layers.keys() & tensors.keys(), default=""):
            raise HubError(f"{repository} has the tensor {twice[:100]} in two files.", OTHER_HINT)
        tensors |= layers
        if len(tensors) > _MAX_TENSORS or not all(tensor.isprintable() for tensor in layers):
            raise HubError(f"{repository} has MTP layers with impossible names, or too many of them.", OTHER_HINT)
    return [each for each in tensors.values() if each.stored.stored_bytes and not _COPIES.search(each.name)]


def _files_with_layers(api: HubApi, model: HubModel, config: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the files to look into, with the tensors that the index names in each."""
    names, repository = {file.name for file in model.files}, model.repository
    pattern = r"mtp[\w-]*\.safetensors" if _INDEX in names else r"(?:mtp|model)[\w-]*\.safetensors"
    names_by_file: dict[str, set[str]] = {name: set() for name in names if re.fullmatch(pattern, name, re.ASCII)}
    if _INDEX in names:
        index = api.document(repository, model.commit, _INDEX)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise HubError(f"The index of {repository} is damaged.", OTHER_HINT)
        for tensor, name in weight_map.items():
            if is_mtp(tensor, config):
                names_by_file.setdefault(str(name), set()).add(tensor)
    if len(names_by_file) > _MAX_FILES:
        raise HubError(f"{repository} has its MTP layers in more than {_MAX_FILES} files.", OTHER_HINT)
    return names_by_file


def _read_file(api: HubApi, model: HubModel, file: HubFile) -> Iterator[HubTensor]:
    """Read a file's header, and yield its tensors; the file must have exactly their bytes."""
    repository, size = model.repository, file.size
    where = f"{file.name} in {repository}"
    if size < _LENGTH_BYTES:
        raise HubError(f"{where} is not a safetensors file.", OTHER_HINT)
    raw, etag = _read_part(api, model, FilePart(file.name, 0, min(size, _FIRST_BYTES), size))
    start = _LENGTH_BYTES + int.from_bytes(raw[:_LENGTH_BYTES], "little")
    if start > _LENGTH_BYTES + MAX_HEADER_BYTES:
        text = f"The header of {where} is too long: {size_text(start)}."
        raise HubError(text, f"The limit is {size_text(MAX_HEADER_BYTES)}. {OTHER_HINT}")
    if start > size:
        raise HubError(f"{where} is shorter than its header says.", OTHER_HINT)
    if start > len(raw):
        raw += _read_part(api, model, FilePart(file.name, len(raw), start, size, etag))[0]
    damaged = f"The header of {where} is damaged"
    try:
        tensors, data_bytes = tensors_in(parse_json(raw[_LENGTH_BYTES:start], damaged), damaged)
    except ModelError as error:
        raise HubError(error.message, OTHER_HINT) from error
    if start + data_bytes != size:
        raise HubError(f"{where} has {size:,} bytes, but its header describes {start + data_bytes:,}.", OTHER_HINT)
    for name, stored in tensors.items():
        begin = start + stored.offset
        yield HubTensor(name, stored, FilePart(file.name, begin, begin + stored.stored_bytes, size, etag))


def _read_part(api: HubApi, model: HubModel, part: FilePart) -> tuple[bytes, str]:
    """Return a part's bytes, and its file's ETag."""
    repository = model.repository
    data, info = api.part(repository, model.commit, part.name, part.start, part.stop)
    if info.size not in {None, part.size} or part.etag not in {"", info.etag}:
        raise ChangedFileError(f"{part.name} in {repository} is not the file that the hub lists.", "Try again later.")
    return data, info.etag
