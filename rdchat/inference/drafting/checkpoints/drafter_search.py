"""Finds the drafter that was made for a model, and leaves out damaged ones with the reason."""

import os
from dataclasses import dataclass
from pathlib import Path

import rdchat
from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.drafting.checkpoints.drafter_files import CONFIG
from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash, inspect_drafter
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import cached_snapshot, is_hub_id, shown_name
from rdchat.inference.models.model_places import own_drafters, place_named
from rdchat.inference.target.target import LoadedModel


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


def find_drafter(model: LoadedModel) -> Path | None:
    """Return the folder of a drafter made for a model; see `DrafterSearch`."""
    return search_drafters(TargetBinding.of(model.info).hash).folder


def search_drafters(wanted: str | None) -> DrafterSearch:
    """Look for a drafter made for the model of a `target_hash`; None only looks for damaged ones."""
    found: Path | None = None
    left_out = []
    try:
        own = sorted(_drafters_in(paths.drafters_dir()), key=_newest_first)
    except ModelError as error:
        own, left_out = [], [str(error)]
    for folder in [*own, *_drafters_in(Path(rdchat.__file__).parent / "drafters")]:
        try:
            if bound_hash(folder) == wanted and wanted is not None:
                inspect_drafter(folder)
                found = found or folder
        except ModelError as error:
            left_out.append(f"The drafter {shown_name(folder)} is left out: {error}")
    return DrafterSearch(found, tuple(left_out))


def _drafters_in(folder: Path) -> list[Path]:
    """Return the folders in a folder that hold a drafter's configuration, whatever that is.

    Raises:
        ModelError: If the folder cannot be read.
    """
    try:
        return [place for place in entries_of(folder) if (place / CONFIG).is_symlink() or (place / CONFIG).exists()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}.", "Check its permissions.") from error


def _newest_first(folder: Path) -> float:
    try:
        return -(folder / CONFIG).stat().st_mtime
    except OSError:  # a link that leads nowhere: reading it says so
        return 0.0
