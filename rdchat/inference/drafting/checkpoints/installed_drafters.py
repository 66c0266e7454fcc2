"""Finds the drafters on this machine: the person's own, the shipped, those beside a model, in the hub's cache and in LM
Studio's folders. Folders are looked at by their configurations and headers alone.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import rdchat
from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of, read_json
from rdchat.hub.cache_layout import folders_in, snapshot_of
from rdchat.inference.api.drafter_facts import HeadKind, describes_drafter
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.drafting.checkpoints.drafter_files import CONFIG
from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash, inspect_drafter
from rdchat.inference.drafting.checkpoints.drafter_search import resolve_drafter
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.models.model_files import is_hub_id
from rdchat.inference.models.model_places import TRAINED, model_places, own_drafters

SHIPPED, BESIDE = "Shipped", "Beside the model"
_MOST_CONFIG_BYTES = 2**20
_MOST_BESIDE = 1000  # folders beside a model, which may lie where everything is downloaded to
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of which every model has


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
    for folder in folders_in(Path(rdchat.__file__).parent / "drafters"):
        yield ModelCard(folder.name, str(folder), SHIPPED, folder)


@lru_cache(maxsize=5000)
def _look(folder: Path, changed_ns: int, surely: bool) -> tuple[HeadKind | None, str] | None:  # noqa: ARG001  as of then
    """Return a drafter's kind and what is wrong with it; None for what is no drafter.

    Args:
        folder: What to look at.
        changed_ns: When it was changed.
        surely: Whether it lies where only drafters do.
    """
    told = surely
    try:
        if folder / CONFIG not in entries_of(folder):
            return None
        config = read_json(folder / CONFIG, most=_MOST_CONFIG_BYTES)
        told = surely or (isinstance(config, dict) and describes_drafter(config))
        if told or not any((folder / name).exists() for name in _TOKENIZERS):
            return inspect_drafter(folder), ""
    except (RdchatError, OSError) as error:
        words = error.message if isinstance(error, RdchatError) else f"{folder} cannot be read: {error.strerror}."
        return (None, words) if told else None
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
