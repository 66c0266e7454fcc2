"""Finds the files of a repository that hold MTP layers, and makes a drafter from them.

The tensors are found by their names: configurations are silent in some families.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import atomic_file
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import HubError
from rdchat.hub.hub_model import HubModel
from rdchat.hub.known_files import HubFile, RepositoryFiles
from rdchat.hub.names import is_safe_name
from rdchat.inference.models.model_config import LAYER_KEYS, text_config
from rdchat.inference.models.safetensors_file import StoredTensor, header_bytes, read_header

# Repositories that have nothing else end their model type so.
BARE = "_mtp"
OTHER_HINT = "Name another repository of the original model, as ORG/NAME."
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_ANY_MTP = re.compile(r"(?:^|\.)mtp\w*\.", re.ASCII)
_LAYER = re.compile(r"(?:(?:model|language_model)\.)*layers\.(\d{1,5})\.", re.ASCII)
# Copies of the model's own tables.
_COPIES = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head|shared_head\.head)\.")


def is_mtp(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor is of an MTP layer: by its name, or by its number where they follow the other layers.

    Copies of the model's token tables are not.
    """
    if _COPIES.search(name):
        return False
    if _ANY_MTP.search(name) or str(config.get("model_type")).endswith(BARE):
        return True
    counted = _LAYER.match(name)
    counts = (text_config(config).get(key) for key in LAYER_KEYS)
    layers = next((count for count in counts if type(count) is int), None)
    return counted is not None and layers is not None and int(counted[1]) >= layers


def files_with_layers(api: HubApi, model: HubModel, config: Mapping[str, Any]) -> tuple[HubFile, ...]:
    """Return the files with a model's MTP layers, by its index; without an index, all of its weights.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, the index is wrong, or there are none.
    """
    files, repository = {file.name: file for file in model.files if is_safe_name(file.name)}, model.repository
    pattern = r"mtp[\w-]*\.safetensors" if _INDEX in files else r"(?:mtp|model)[\w-]*\.safetensors"
    names = {name for name in files if re.fullmatch(pattern, name, re.ASCII)}
    if _INDEX in files:
        index = api.document(repository, model.commit, _INDEX)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise HubError(f"The index of {repository} is damaged.", OTHER_HINT)
        names |= {str(name) for tensor, name in weight_map.items() if is_mtp(tensor, config)}
    if wrong := min((name for name in names if name not in files or not name.endswith(".safetensors")), default=""):
        raise HubError(f"The index of {repository} names a file that it does not have: {wrong[:100]}.", OTHER_HINT)
    if not names:
        raise HubError(f"{repository} has no MTP layers.", OTHER_HINT)
    return tuple(files[name] for name in sorted(names))


def make_drafter(files: RepositoryFiles, folder: Path) -> Path:
    """Make a drafter from the MTP layers in downloaded files, and return its folder.

    Its configuration is the last file, so that only a whole drafter is found. One that is here already is not touched.

    Args:
        files: The files, and the drafter's name, configuration and card.
        folder: Has each file under its digest.

    Raises:
        ModelError: If they hold no MTP layers, or are damaged.
        StorageError: If the drafter cannot be written.
    """
    drafter, config = paths.drafters_dir() / files.drafter, json.loads(files.config)
    if (drafter / CONFIG).exists():
        return drafter
    tensors: dict[str, tuple[StoredTensor, Path, int]] = {}
    for path in (folder / file.digest for file in files.files):
        header = read_header(path)
        start = path.stat().st_size - sum(each.stored_bytes for each in header.values())
        for name, stored in sorted(header.items(), key=lambda item: item[1].offset):
            if not stored.stored_bytes or not is_mtp(name, config):
                continue
            if name in tensors or not name.isprintable():
                text = f"{files.repository} has an MTP tensor in two files, or with an impossible name."
                raise ModelError(text, OTHER_HINT)
            tensors[name] = stored, path, start + stored.offset
    if not tensors:
        raise ModelError(f"{files.repository} has no MTP layers.", OTHER_HINT)
    # Wide types first, so that each tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].stored_bytes // max(1, item[1][0].elements))
    drafter.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_file(drafter / "model.safetensors") as temporary, temporary.open("wb") as target:
        target.write(header_bytes({name: stored for name, (stored, _, _) in ordered}, "pt"))
        for _, (stored, path, start) in ordered:
            target.write(np.memmap(path, np.uint8, "r", start, stored.stored_bytes).data)
    for name, text in (("card.md", files.card), (CONFIG, files.config)):
        with atomic_file(drafter / name) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="replace")
    return drafter
