"""Finds a drafter on this machine: by its name, or the one made for a model. Only headers are read.

A head trained by rdchat names its model's hash. All others are in `library.model_library`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.inference.api import HeadKind
from rdchat.inference.drafting.checkpoints.checkpoint import CONFIG, Checkpoint
from rdchat.inference.drafting.checkpoints.drafter_folder import (
    bound_hash,
    inspect_drafter,
)
from rdchat.inference.drafting.checkpoints.mtp_layout import open_mtp
from rdchat.inference.models.model_config import read_config, unreadable
from rdchat.inference.models.model_files import (
    cached_snapshot,
    folder_label,
    is_hub_id,
    paired_drafter,
)
from rdchat.inference.models.model_locations import (
    find_card,
    own_drafters,
    shipped_drafters,
)


@dataclass(frozen=True, slots=True)
class DrafterSearch:
    """The result of a search.

    Attributes:
        folder: The person's newest drafter for the model, else the shipped one, else the one that rdchat suggests for
            it, else the model's MTP layers; None without any.
        left_out: A sentence for each of these that is damaged and might have been for the model.
    """

    folder: Path | None
    left_out: tuple[str, ...] = ()


def resolve_drafter(named: str) -> Path:
    """Return the folder for a drafter's name; check it with `check_drafter`.

    Args:
        named: A folder, or a name from `rdchat models list`; nothing is downloaded.

    Raises:
        ModelError: If it is a hub id that is not on this machine, or the name of several.
        InvalidSettingError: If it begins with `~` and an unknown user.
    """
    folder = paths.expanded(named, "The drafter")
    if os.path.lexists(folder):
        return folder
    if is_hub_id(named):
        return cached_snapshot(named, "drafter")
    listed = next((each for each in own_drafters() if each.name == named), None) or find_card(named)
    return listed.path if listed else folder


def drafter_name(named: str | None, folder: Path) -> str:
    """Return a drafter's name for people: the hub id by which it was requested, or else its folder."""
    by_hub_id = named is not None and is_hub_id(named) and not os.path.lexists(paths.expanded(named, "The drafter"))
    return str(named) if by_hub_id else str(folder)


def search_drafters(model_hash: str | None, model: Path | None = None) -> DrafterSearch:
    """Look for a drafter made for the model with a `target_hash`; with None only look for damaged ones.

    The first that fits is taken, in the order of `DrafterSearch.folder`. The others are read too, to find damaged ones.

    Args:
        model_hash: The hash.
        model: The model's folder, to look for MTP layers in it, and for the drafter that rdchat suggests.
    """
    match: Path | None = None
    left_out = []
    paired = None if model is None else paired_drafter(model)
    for folder in filter(None, (*_own_folders(), *(card.path for card in shipped_drafters()), paired)):
        if not os.path.lexists(folder / CONFIG):
            continue
        try:
            # `bound_hash` is read also without a hash to compare it with, since it finds damaged ones.
            if folder == paired or (bound_hash(folder) == model_hash and model_hash is not None):
                inspect_drafter(folder)
                match = match or folder
        except ModelError as error:
            left_out.append(f"The drafter {folder_label(folder)} is not used: {error}")
    if match is None and model is not None and own_layers(model):
        match = model
    return DrafterSearch(match, tuple(left_out))


def own_layers(model: Path) -> Checkpoint | None:
    """Return the MTP layers in a model's folder; None where there are none that rdchat can use."""
    try:
        config = read_config(model)
        return None if unreadable(str(config["model_type"])) else open_mtp(model, config)
    except ModelError:
        # What is wrong with the model is reported elsewhere.
        return None


def mtp_folder(model_hash: str, model: Path) -> Path | None:
    """Return the newest folder of MTP layers that were fetched for a model, else the model's own, if it has them.

    Args:
        model_hash: The model's `target_hash`.
        model: Its folder.
    """
    for folder in _own_folders():
        try:
            if bound_hash(folder) == model_hash and inspect_drafter(folder) is HeadKind.MTP:
                return folder
        except ModelError:
            continue
    return model if own_layers(model) else None


def _own_folders() -> list[Path]:
    """Return the folders of the person's drafters, the newest first."""
    return sorted((card.path for card in own_drafters()), key=changed_ns, reverse=True)


def changed_ns(folder: Path) -> int:
    """Return when a folder's configuration was changed or put there, in nanoseconds; 0 where there is none."""
    try:
        return (folder / CONFIG).stat().st_mtime_ns
    except OSError:
        return 0
