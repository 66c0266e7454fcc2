"""Finds drafters on this machine: one by name, the one made for a model, those that fit it, or all.

It looks in the person's own folder, among those shipped with rdchat, around the model, in the hub's cache, and in
LM Studio's folders. Only configurations and headers are read.

A head trained by rdchat names its model's hash. Others give the sizes they were made for. These are compared with the
model's configuration here, and with the network once the model is loaded.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files import entries_of, read_json
from rdchat.hub import folders_in
from rdchat.inference.api import HeadKind, ModelCard, TargetMatch, describes_drafter
from rdchat.inference.drafting.checkpoints.checkpoint import CONFIG, Checkpoint
from rdchat.inference.drafting.checkpoints.drafter_folder import (
    MAX_CONFIG_BYTES,
    bound_hash,
    drafter_config,
    inspect_drafter,
)
from rdchat.inference.drafting.checkpoints.mtp_layout import open_mtp
from rdchat.inference.models.model_config import LAYER_KEYS, first_int, read_config, text_config, unreadable
from rdchat.inference.models.model_files import (
    cached_snapshot,
    folder_label,
    is_hub_id,
    paired_drafter,
)
from rdchat.inference.models.model_locations import (
    SHIPPED,
    TRAINED,
    find_card,
    model_cards,
    own_drafters,
    shipped_drafters,
    stamp_of,
)
from rdchat.inference.models.safetensors_file import target_hash

# Origins of drafters.
NEAR_MODEL = "Beside the model"
OWN_LAYERS = "In the model"
# The folder around a model may hold all downloads.
_MAX_NEIGHBOURS = 1000
# Every model has one of them, and no drafter needs one.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_SURE = TargetMatch(True)


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


def installed_drafters(model: Path | None) -> tuple[ModelCard, ...]:
    """Return the drafters on this machine, each once, by origin and name.

    Args:
        model: Folder of the loaded model, to look beside and inside it; None without a model.
    """
    cards: dict[Path, ModelCard] = {}
    for card in _candidates(model):
        folder = card.path.resolve()
        if folder in cards or (model is not None and folder == model.resolve()):
            continue
        has_only_drafters = card.origin in (TRAINED, SHIPPED)
        if (seen := _inspect(card.path, _changed_ns(card.path), has_only_drafters)) is not None:
            kind, problem = seen
            cards[folder] = replace(
                card,
                is_drafter=True,
                kind=kind,
                family=kind.label if kind else "",
                problem=problem,
                disk_bytes=stamp_of(folder).disk_bytes,
            )
    return tuple(cards.values())


def _candidates(model: Path | None) -> Iterator[ModelCard]:
    """Yield the folders that may hold a drafter, those of the person first."""
    yield from own_drafters()
    if model is not None and model.is_dir():
        for folder in (*folders_in(model), *folders_in(model.parent)[:_MAX_NEIGHBOURS]):
            yield ModelCard(folder.name, str(folder), NEAR_MODEL, folder)
    yield from model_cards()
    yield from shipped_drafters()


@lru_cache(maxsize=5000)
def _inspect(folder: Path, changed_ns: int, surely: bool) -> tuple[HeadKind | None, str] | None:  # noqa: ARG001  as of then
    """Return a drafter's kind and its problem; None where the folder holds no drafter.

    A folder whose configuration does not say what it is counts as a drafter if it has no tokenizer and reads as one.

    Args:
        folder: The folder.
        changed_ns: When it was changed; part of the cache's key.
        surely: Whether it is known to hold a drafter, perhaps a damaged one.
    """
    known = surely
    try:
        if folder / CONFIG not in entries_of(folder):
            return None
        config = read_json(folder / CONFIG, max_size=MAX_CONFIG_BYTES)
        known = surely or (isinstance(config, dict) and describes_drafter(config))
        if known or not any((folder / name).exists() for name in _TOKENIZERS):
            return inspect_drafter(folder), ""
    except (RdchatError, OSError) as error:
        problem = error.message if isinstance(error, RdchatError) else f"{folder} cannot be read: {error.strerror}."
        return (None, problem) if known else None
    return None


def _own_folders() -> list[Path]:
    """Return the folders of the person's drafters, the newest first."""
    return sorted((card.path for card in own_drafters()), key=_changed_ns, reverse=True)


def _changed_ns(folder: Path) -> int:
    """Return when a folder's configuration was changed or put there, in nanoseconds; 0 where there is none."""
    try:
        return (folder / CONFIG).stat().st_mtime_ns
    except OSError:
        return 0


def fitting_drafters(folder: Path) -> tuple[ModelCard, ...]:
    """Return the drafter heads that fit the model in a folder, the certain ones first.

    Args:
        folder: The model's folder.
    """
    if not folder.is_dir():
        return ()
    try:
        config = text_config(read_config(folder))
        own_hash = target_hash(folder)
    except (RdchatError, OSError):
        return ()
    drafters = []
    if (layers := own_layers(folder)) is not None:
        size = sum(tensor.stored_bytes for tensor in layers.tensors.values())
        drafters.append(
            ModelCard(
                "MTP layers",
                str(folder),
                OWN_LAYERS,
                folder,
                kind=HeadKind.MTP,
                match=_SURE,
                is_drafter=True,
                family=HeadKind.MTP.label,
                weights_bytes=size,
                disk_bytes=size,
            )
        )
    paired = paired_drafter(folder)
    for drafter in installed_drafters(folder):
        if drafter.problem or drafter.kind is None:
            continue
        try:
            folder_of_drafter = resolve_drafter(drafter.model)
            if (match := _match(folder_of_drafter, config, own_hash)) is not None:
                match = _SURE if paired == folder_of_drafter else match
                weights = sum(path.stat().st_size for path in folder_of_drafter.glob("*.safetensors"))
                drafters.append(replace(drafter, match=match, weights_bytes=weights))
        except (RdchatError, OSError):
            continue
    return tuple(sorted(drafters, key=lambda fitting: not fitting.fits_surely))


def _match(folder_of_drafter: Path, config: Mapping[str, Any], own_hash: str) -> TargetMatch | None:
    """Compare a drafter's hash, or else the sizes that it needs, with a model's.

    A size that one of the two does not give passes, but a model that does not give its width has no match.
    """
    bound = bound_hash(folder_of_drafter)
    if bound is not None:
        return _SURE if bound == own_hash else None
    kind, needs = drafter_config(folder_of_drafter)
    depth = first_int(config, *LAYER_KEYS) or None
    width = config.get("hidden_size")
    if kind is HeadKind.RECURRENT:
        # Apple's, which gives neither model nor depth.
        pairs = [(needs.hidden_size, width), (needs.draft_vocabulary_size, config.get("vocab_size"))]
    else:
        pairs = [
            (needs.target_width, width),
            (needs.vocabulary_size, config.get("vocab_size")),
            (needs.target_depth, depth),
        ]
    if any(needed is not None and actual is not None and needed != actual for needed, actual in pairs):
        return None
    if width is None or (depth is not None and max(needs.target_layers, default=0) >= depth):
        return None
    return TargetMatch(False, "Its sizes fit; rdchat checks the rest when the model is loaded.")
