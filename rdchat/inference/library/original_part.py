"""Finds the files of a repository that hold a part of a model, such as MTP layers, and keeps that part of them.

The tensors are found by their names: configurations are silent in some families.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.foreign_files import read_bytes
from rdchat.hub.endpoint import HubError
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_model import HubModel
from rdchat.hub.known_files import HubFile, RepositoryFiles, is_safe_name
from rdchat.inference.api.model_facts import Part
from rdchat.inference.models.mtp_families import is_mtp, unreadable
from rdchat.inference.models.safetensors_file import StoredTensor, header_bytes, read_header
from rdchat.inference.vision.families import ANY_TOWER, IMAGE_SETTINGS, states_vision, tower_among

OTHER_HINT = "Name another repository of the original model, as ORG/NAME."
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_MAX_SETTINGS_BYTES = 2**20
# Files that come with the tensors of a part.
_SETTINGS: Mapping[Part, tuple[str, ...]] = {Part.MTP: (), Part.VISION: IMAGE_SETTINGS}


def parent_of(part: Part) -> Path:
    """Return where the folders of a part are."""
    return paths.drafters_dir() if part is Part.MTP else paths.towers_dir()


def check_lacks(part: Part, name: str, config: Mapping[str, Any], tensors: Iterable[str]) -> None:
    """Check that a part can be added to a model with this name, configuration and tensors.

    Raises:
        ModelError: If it has the part, or rdchat cannot use the part with it.
    """
    if part is Part.MTP and (reason := unreadable(str(config["model_type"]))):
        raise ModelError(f"rdchat cannot use the MTP layers of {name}: {reason}.", "Find or train another drafter.")
    if part is Part.VISION and not states_vision(config):
        raise ModelError(f"{name} is a model for text alone.", "Choose one that was published with vision.")
    if any(_belongs(part, tensor, config) for tensor in tensors):
        raise ModelError(f"{name} has {part} in its own files.", "There is nothing to get.")


def _belongs(part: Part, tensor: str, config: Mapping[str, Any]) -> bool:
    return is_mtp(tensor, config) if part is Part.MTP else ANY_TOWER.search(tensor) is not None


def files_with(api: HubApi, model: HubModel, config: Mapping[str, Any], part: Part) -> tuple[HubFile, ...]:
    """Return the files with a part of a model, by its index; without an index, all of its weights.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, the index is wrong, there are none, or rdchat cannot use
            them.
    """
    files = {file.name: file for file in model.files if is_safe_name(file.name)}
    repository = model.repository
    pattern = rf"(?:{part.name.lower()}{'' if _INDEX in files else '|model'})[\w-]*\.safetensors"
    names = {name for name in files if re.fullmatch(pattern, name, re.ASCII)}
    if _INDEX in files:
        index = api.document(repository, model.commit, _INDEX)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise HubError(f"The index of {repository} is damaged.", OTHER_HINT)
        names |= {str(name) for tensor, name in weight_map.items() if _belongs(part, tensor, config)}
        if names and part is Part.VISION and (problem := tower_among(weight_map)[2]):
            raise HubError(problem, OTHER_HINT)
    if wrong := min((name for name in names if name not in files or not name.endswith(".safetensors")), default=""):
        raise HubError(f"The index of {repository} names a file that it does not have: {wrong[:100]}.", OTHER_HINT)
    if not names:
        raise HubError(f"{repository} has no {part}.", OTHER_HINT)
    return tuple(files[name] for name in sorted({*names, *files.keys() & _SETTINGS[part]}))


def make_part(files: RepositoryFiles, folder: Path) -> Path:
    """Make a part's folder from downloaded files, and return it.

    Its configuration is the last file, so that only a whole part is found. One that is here already is not touched.

    Args:
        files: The files, and the part's name, configuration and card.
        folder: Has each file under its digest.

    Raises:
        ModelError: If they do not hold it, or are damaged.
        StorageError: If it cannot be written.
    """
    part = Part.of(files.drafter)
    config = json.loads(files.config)
    made = parent_of(part) / files.drafter
    if (made / CONFIG).exists():
        return made
    settings = [file for file in files.files if file.name in _SETTINGS[part]]
    tensors: dict[str, tuple[StoredTensor, Path, int]] = {}
    for path in (folder / file.digest for file in files.files if file not in settings):
        header = read_header(path)
        start = path.stat().st_size - sum(each.stored_bytes for each in header.values())
        for name, stored in sorted(header.items(), key=lambda item: item[1].offset):
            if not stored.stored_bytes or not _belongs(part, name, config):
                continue
            if name in tensors or not name.isprintable():
                text = f"{files.repository} has a tensor in two files, or with an impossible name."
                raise ModelError(text, OTHER_HINT)
            tensors[name] = stored, path, start + stored.offset
    if not tensors:
        raise ModelError(f"{files.repository} has no {part}.", OTHER_HINT)
    if part is Part.VISION and (problem := tower_among(tensors)[2]):
        raise ModelError(problem, OTHER_HINT)
    # Wide types first, so that each tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].stored_bytes // max(1, item[1][0].elements))
    contents = [(file.name, read_bytes(folder / file.digest, max_size=_MAX_SETTINGS_BYTES)) for file in settings]
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_file(made / "model.safetensors") as temporary, temporary.open("wb") as target:
        target.write(header_bytes({name: stored for name, (stored, _, _) in ordered}, "pt"))
        for _, (stored, path, start) in ordered:
            target.write(np.memmap(path, np.uint8, "r", start, stored.stored_bytes).data)
    contents += [("card.md", files.card.encode(errors="replace")), (CONFIG, files.config.encode(errors="replace"))]
    for name, content in contents:
        with atomic_file(made / name) as temporary:
            temporary.write_bytes(content)
    return made
