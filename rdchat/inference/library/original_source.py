"""Plans the download of a part that a copy of a model does not have, and makes the part's folder of the fetched files.

A part is the MTP layers or the vision tower of a model (`ModelPart`). Quantised versions rarely have MTP layers, which
the model's authors trained with it to draft, and those made by mlx-lm have no vision tower. The repository of the
original has them. `plan_part` names its files with the part, `hub.downloads` fetches them, and `make_part` keeps the
part's tensors. These are found by their names, since configurations are silent in some families.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files import atomic_file, read_bytes, readable_entries
from rdchat.hub import (
    AccessRefusedError,
    HubError,
    HubFile,
    HubModel,
    MissingError,
    RepositoryFiles,
    is_repository,
    is_safe_name,
)
from rdchat.hub.hub_api import HubApi
from rdchat.inference.api import ModelCard, ModelPart
from rdchat.inference.models.model_config import BARE, LAYER_KEYS, is_mtp, read_config, text_config, unreadable
from rdchat.inference.models.model_files import BINDING, TargetBinding
from rdchat.inference.models.safetensors_file import (
    StoredTensor,
    header_bytes,
    read_header,
    read_headers,
    target_hash,
    weight_files,
)
from rdchat.inference.vision.families import ANY_TOWER, IMAGE_SETTINGS, states_vision, tower_among

OTHER_HINT = "Name another repository of the original model, as ORG/NAME."
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_MAX_SETTINGS_BYTES = 2**20
# Names of the files that come with the tensors of a part.
_SETTINGS: Mapping[ModelPart, tuple[str, ...]] = {ModelPart.MTP: (), ModelPart.VISION: IMAGE_SETTINGS}
# The front matter of a model's card, which may name the original. Spaces and tabs only: with line ends too, a card with
# many takes time by their square, and `re` holds Python's lock.
_BASE = re.compile(
    r"^base_model:[ \t]*(?:\r?\n[ \t]*-[ \t]*)?[\"']?([\w.-]+/[\w.-]+)[\"']?[ \t]*\r?$", re.MULTILINE | re.ASCII
)
_RELATION = re.compile(r"^base_model_relation:[ \t]*(\w+)", re.MULTILINE | re.ASCII)
_CARD = "README.md"
_MAX_CARD_BYTES = 2**20
# Characters at a card's beginning that are searched.
_MAX_FRONT_MATTER = 2**14
# Sizes in which a model and its original must agree.
_SAME_SIZES = (
    "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "moe_intermediate_size", "num_experts", "n_routed_experts", *LAYER_KEYS,
)  # fmt: skip


def parent_of(part: ModelPart) -> Path:
    """Return the folder that has the folders of all parts of a kind."""
    return paths.drafters_dir() if part is ModelPart.MTP else paths.towers_dir()


def check_lacks(part: ModelPart, name: str, config: Mapping[str, Any], tensors: Iterable[str]) -> None:
    """Check that a part can be added to a model with this name, configuration and tensors.

    Raises:
        ModelError: If it has the part, or rdchat cannot use the part with it.
    """
    if part is ModelPart.MTP and (reason := unreadable(str(config["model_type"]))):
        raise ModelError(f"rdchat cannot use the MTP layers of {name}: {reason}.", "Find or train another drafter.")
    if part is ModelPart.VISION and not states_vision(config):
        raise ModelError(f"{name} is a model for text alone.", "Choose one that was published with vision.")
    if any(_belongs(part, tensor, config) for tensor in tensors):
        raise ModelError(f"{name} has {part} in its own files.", "There is nothing to get.")


def _belongs(part: ModelPart, tensor: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor of this name is the part's."""
    return is_mtp(tensor, config) if part is ModelPart.MTP else ANY_TOWER.search(tensor) is not None


def files_with(api: HubApi, model: HubModel, config: Mapping[str, Any], part: ModelPart) -> tuple[HubFile, ...]:
    """Return the files with a part of a model, by its index; without an index, all of its weights.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, the index is wrong, there are none, or rdchat cannot use
            them.
    """
    files = {file.name: file for file in model.files if is_safe_name(file.name)}
    repository = model.repository
    # Files of the part alone; without an index, also those that may have it among others.
    prefixes = part.name.lower() if _INDEX in files else f"{part.name.lower()}|model"
    pattern = rf"(?:{prefixes})[\w-]*\.safetensors"
    names = {name for name in files if re.fullmatch(pattern, name, re.ASCII)}
    if _INDEX in files:
        index = api.document(repository, model.commit, _INDEX)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict):
            raise HubError(f"The index of {repository} is damaged.", OTHER_HINT)
        names |= {str(name) for tensor, name in weight_map.items() if _belongs(part, tensor, config)}
        # `tower_among` returns as its third value why rdchat cannot use the tower.
        if names and part is ModelPart.VISION and (problem := tower_among(weight_map)[2]):
            raise HubError(problem, OTHER_HINT)
    if wrong := min((name for name in names if name not in files or not name.endswith(".safetensors")), default=""):
        raise HubError(f"The index of {repository} names a file that it does not have: {wrong[:100]}.", OTHER_HINT)
    if not names:
        raise HubError(f"{repository} has no {part}.", OTHER_HINT)
    return tuple(files[name] for name in sorted({*names, *files.keys() & _SETTINGS[part]}))


def make_part(files: RepositoryFiles, folder: Path) -> Path:
    """Make a part's folder from downloaded files, and return it.

    Its configuration is written last, so that only a complete part is found. A part that is here already is not
    touched.

    Args:
        files: The files, and the part's name, configuration and card.
        folder: Has each file under its digest.

    Raises:
        ModelError: If they do not have the part, are damaged, or rdchat cannot use the part.
        StorageError: If it cannot be written.
    """
    part = ModelPart.in_folder(files.drafter)
    config = json.loads(files.config)
    part_folder = parent_of(part) / files.drafter
    if (part_folder / CONFIG).exists():
        return part_folder
    settings = [file for file in files.files if file.name in _SETTINGS[part]]
    weights = [folder / file.digest for file in files.files if file not in settings]
    tensors = _read_tensors(weights, part, config, files.repository)
    if not tensors:
        raise ModelError(f"{files.repository} has no {part}.", OTHER_HINT)
    if part is ModelPart.VISION and (problem := tower_among(tensors)[2]):
        raise ModelError(problem, OTHER_HINT)
    # Tensors with the most bytes per element first, so that each is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].stored_bytes // max(1, item[1][0].elements))
    contents = [(file.name, read_bytes(folder / file.digest, max_size=_MAX_SETTINGS_BYTES)) for file in settings]
    part_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_file(part_folder / "model.safetensors") as temporary, temporary.open("wb") as target:
        target.write(header_bytes({name: stored for name, (stored, _) in ordered}, "pt"))
        for _, (stored, path) in ordered:
            target.write(np.memmap(path, np.uint8, "r", stored.offset, stored.stored_bytes).data)
    contents += [("card.md", files.card.encode(errors="replace")), (CONFIG, files.config.encode(errors="replace"))]
    for name, content in contents:
        with atomic_file(part_folder / name) as temporary:
            temporary.write_bytes(content)
    return part_folder


def _read_tensors(
    weights: Iterable[Path], part: ModelPart, config: Mapping[str, Any], repository: str
) -> dict[str, tuple[StoredTensor, Path]]:
    """Return the tensors of a part by name, each with its file."""
    tensors: dict[str, tuple[StoredTensor, Path]] = {}
    for path in weights:
        for name, stored in sorted(read_header(path).items(), key=lambda item: item[1].offset):
            if not stored.stored_bytes or not _belongs(part, name, config):
                continue
            if name in tensors or not name.isprintable():
                raise ModelError(f"{repository} has a tensor in two files, or with an impossible name.", OTHER_HINT)
            tensors[name] = stored, path
    return tensors


@dataclass(frozen=True, slots=True)
class IncompleteModel:
    """A model on this machine without a part of its original.

    Attributes:
        part: What it lacks.
        binding: Its name, family and hash, by which the part is found to be for it.
        config: Its configuration.
        folder: Its folder.
        hub_id: Hub id of the model; empty if unknown.
    """

    part: ModelPart
    binding: TargetBinding
    config: Mapping[str, Any]
    folder: Path
    hub_id: str

    @classmethod
    def read_model(cls, model: ModelCard, part: ModelPart = ModelPart.MTP) -> "IncompleteModel":
        """Read a model's files.

        Raises:
            ModelError: If they cannot be read, are not MLX's, already have the part, or rdchat does not know theirs.
        """
        folder = model.path
        config = read_config(folder)
        tensors = read_headers(folder, weight_files(folder, readable_entries(folder)))
        check_lacks(part, model.name, config, tensors)
        # The loaded model has no origin, and its name may be a hub id.
        hub_id = model.hub_id or ("" if model.origin else model.name)
        binding = TargetBinding(model.name, str(config["model_type"]), target_hash(folder))
        return cls(part, binding, config, folder, hub_id if is_repository(hub_id) else "")

    @property
    def drafter(self) -> str:
        """Name of the part's folder: records of downloads call it `drafter`, for a vision tower too."""
        name = re.sub(r"[^\w.-]", "-", self.binding.name.rpartition("/")[2], flags=re.ASCII).strip(".-")[:100]
        return f"{name or 'model'}-{self.part.name.lower()}-{self.binding.hash[:6]}"


def find_original(api: HubApi, target: IncompleteModel) -> str:
    """Return the hub id of the model that a target was quantised from; empty if neither hub nor card names it.

    The hub is asked first. The card in the folder counts if it names a base model and says `quantized`; without that
    word, if the model is quantised.

    Raises:
        NetworkError: If the hub cannot be reached.
    """
    if target.hub_id:
        # The name may only look like a hub id, or the repository was deleted.
        with suppress(MissingError, AccessRefusedError):
            if original := api.look_at(target.hub_id).quantized_from:
                return original
    try:
        card = read_bytes(target.folder / _CARD, max_size=_MAX_CARD_BYTES).decode("utf-8", "replace")
    except ModelError:
        return ""
    front_matter = card[3:_MAX_FRONT_MATTER].partition("\n---")[0] if card.startswith("---") else ""
    base = _BASE.search(front_matter)
    relation = _RELATION.search(front_matter)
    is_quantized = relation[1] == "quantized" if relation else "quantization" in target.config
    return base[1] if base and is_quantized and is_repository(base[1]) else ""


def plan_part(api: HubApi, target: IncompleteModel, original: str) -> RepositoryFiles:
    """Return the files with a model's missing part, with the part's configuration and card.

    Args:
        api: The hub.
        target: The model that they are for.
        original: The hub id of the model's original.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, or the repository has none that fit the model.
        ModelError: If they are here already.
    """
    name = target.binding.name
    part = target.part
    folder = parent_of(part) / target.drafter
    if (folder / CONFIG).exists():
        raise ModelError(f"{name} has {part} in {folder}.", "There is nothing to get.")
    model = api.look_at(original)
    if CONFIG not in {file.name for file in model.files}:
        raise HubError(f"{original} has no {CONFIG}.", OTHER_HINT)
    config = api.document(original, model.commit, CONFIG)
    if not isinstance(config, dict):
        raise HubError(f"The configuration of {original} is damaged.", OTHER_HINT)
    _check_same(target, original, config)
    files = files_with(api, model, config, part)
    source = {"repository": original, "commit": model.commit, "files": {file.name: file.digest for file in files}}
    part_config = {**config, BINDING: {"target": asdict(target.binding), "source": source}}
    card = (
        f"# {name}: {part}\n\nThe {part} of {original}, commit {model.commit}, "
        f"which the model's authors trained with it, as published. Copies of the model's token tables are left out.\n\n"
        f"Licence: {model.licence or 'see there'}.\n"
    )
    return RepositoryFiles(
        original,
        model.commit,
        model.commit,
        files,
        is_model=False,
        drafter=target.drafter,
        config=json.dumps(part_config, indent=2),
        card=card,
    )


def _check_same(target: IncompleteModel, original: str, config: Mapping[str, Any]) -> None:
    """Raise HubError if a repository's model is another one than the target, by kind or sizes."""
    ours = _facts(target.config)
    theirs = _facts(config)
    for key in ours.keys() & theirs.keys():
        if ours[key] != theirs[key]:
            text = f"{original} has another {key} than {target.binding.name}: {theirs[key]!r:.30}"
            raise HubError(f"{text} instead of {ours[key]!r:.30}.", OTHER_HINT)


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's kind and sizes, as far as its configuration gives them."""
    text = text_config(config)
    kind = str(text.get("model_type") or config.get("model_type")).removesuffix(BARE).removesuffix("_text")
    return {"model_type": kind, **{key: text[key] for key in _SAME_SIZES if type(text.get(key)) is int}}
