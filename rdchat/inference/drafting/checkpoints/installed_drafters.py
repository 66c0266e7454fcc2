"""Finds drafters on this machine: by name, the one made for a model, and all of them.

They lie among the person's own, the shipped, beside a model, in the hub's cache and in LM Studio's folders. Only
configurations and headers are read.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files.foreign_files import entries_of, read_json
from rdchat.hub.cache_layout import folders_in, snapshot_of
from rdchat.inference.api.drafter_facts import HeadKind, describes_drafter
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.drafting.checkpoints.drafter_files import CONFIG
from rdchat.inference.drafting.checkpoints.drafter_folder import MOST_CONFIG_BYTES, bound_hash, inspect_drafter
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.models.model_files import cached_snapshot, is_hub_id, shown_name
from rdchat.inference.models.model_places import (
    SHIPPED,
    TRAINED,
    model_places,
    own_drafters,
    place_named,
    shipped_drafters,
)

BESIDE = "Beside the model"
_MOST_BESIDE = 1000  # folders beside a model, which may lie where everything is downloaded to
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of which every model has


@dataclass(frozen=True, slots=True)
class DrafterSearch:
    """The result of a search.

    Attributes:
        folder: The person's own newest drafter for the model, else the shipped one; None without either.
        left_out: A sentence for each of the person's own drafters that is damaged, and may have been for the model.
    """

    folder: Path | None
    left_out: tuple[str, ...] = ()


def resolve_drafter(named: str) -> Path:
    """Return the folder that a name stands for; look inside with `check_drafter`.

    Args:
        named: A folder, or a name that `rdchat models list` gives; nothing is fetched.

    Raises:
        ModelError: If it is a hub id that is not there, or the name of several.
        InvalidSettingError: If it begins with the name of an unknown user.
    """
    place = paths.expanded(named, "The drafter")
    if os.path.lexists(place):
        return place
    if is_hub_id(named):
        return cached_snapshot(named, "drafter")
    listed = next((each for each in own_drafters() if each.name == named), None) or place_named(named)
    return listed.path if listed else place


def drafter_name(named: str | None, folder: Path) -> str:
    """Return what is told of where a drafter comes from: the hub id by which it was asked for, or else its folder."""
    by_hub_id = named is not None and is_hub_id(named) and not os.path.lexists(paths.expanded(named, "The drafter"))
    return str(named) if by_hub_id else str(folder)


def search_drafters(wanted: str | None) -> DrafterSearch:
    """Look for a drafter made for the model of a `target_hash`; None only looks for damaged ones."""
    found: Path | None = None
    left_out = []
    own = sorted((card.path for card in own_drafters()), key=_changed_ns, reverse=True)
    for folder in (*own, *(card.path for card in shipped_drafters())):
        if not os.path.lexists(folder / CONFIG):
            continue
        try:
            if bound_hash(folder) == wanted and wanted is not None:
                inspect_drafter(folder)
                found = found or folder
        except ModelError as error:
            left_out.append(f"The drafter {shown_name(folder)} is left out: {error}")
    return DrafterSearch(found, tuple(left_out))


def installed_drafters(model: Path | None) -> tuple[ModelCard, ...]:
    """Return the drafters on this machine, each once, by place and name.

    Args:
        model: Folder of the loaded model, beside and inside which drafters may lie; None without.
    """
    found: dict[Path, ModelCard] = {}
    for place in _places(model):
        folder = place.path.resolve()
        if folder in found or (model is not None and folder == model.resolve()):
            continue
        surely = place.place in (TRAINED, SHIPPED)
        if (seen := _look(place.path, _changed_ns(place.path), surely)) is not None:
            kind, problem = seen
            known = replace(place, is_drafter=True, kind=kind, family=kind.words if kind else "", problem=problem)
            found[folder] = replace(known, disk_bytes=_disk_bytes(folder))
    return tuple(found.values())


def drafters_made_for(model: str) -> tuple[ModelCard, ...]:
    """Return the drafters on this machine that name a model as theirs; the model need not be loaded.

    Args:
        model: Its folder, or its hub id in the hub's cache; of anything else nothing is known.
    """
    place = Path(model)
    folder = place if place.is_dir() else snapshot_of(model) if is_hub_id(model) else None
    if folder is None:
        return ()
    wanted = target_hash(folder)
    return tuple(each for each in installed_drafters(folder) if not each.problem and _names(each.model, wanted))


def _names(drafter: str, wanted: str) -> bool:
    try:
        return bound_hash(resolve_drafter(drafter)) == wanted
    except RdchatError:
        return False


def _places(model: Path | None) -> Iterator[ModelCard]:
    """Yield where drafters may lie."""
    yield from own_drafters()
    if model is not None and model.is_dir():
        for folder in (*folders_in(model), *folders_in(model.parent)[:_MOST_BESIDE]):
            yield ModelCard(folder.name, str(folder), BESIDE, folder)
    yield from model_places()
    yield from shipped_drafters()


@lru_cache(maxsize=5000)
def _look(folder: Path, changed_ns: int, surely: bool) -> tuple[HeadKind | None, str] | None:  # noqa: ARG001  as of then
    """Return a drafter's kind and what is wrong with it; None for what is no drafter.

    Args:
        folder: What to look at.
        changed_ns: When it was changed.
        surely: Whether it lies where only drafters do.
    """
    known = surely
    try:
        if folder / CONFIG not in entries_of(folder):
            return None
        config = read_json(folder / CONFIG, most=MOST_CONFIG_BYTES)
        known = surely or (isinstance(config, dict) and describes_drafter(config))
        if known or not any((folder / name).exists() for name in _TOKENIZERS):
            return inspect_drafter(folder), ""
    except (RdchatError, OSError) as error:
        words = error.message if isinstance(error, RdchatError) else f"{folder} cannot be read: {error.strerror}."
        return (None, words) if known else None
    return None


def _disk_bytes(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in entries_of(folder) if path.is_file())
    except (RdchatError, OSError):
        return 0


def _changed_ns(folder: Path) -> int:
    """Return when a folder's configuration was changed, or was put there; 0 where there is none."""
    try:
        return (folder / CONFIG).stat().st_mtime_ns
    except OSError:
        return 0
