"""Finds the drafter heads on this machine that fit a model that is not loaded, from their files alone.

A head trained by rdchat names its model's hash. Others give the sizes they were made for. These are compared with the
model's configuration here, and with the network once the model is loaded.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import read_json
from rdchat.inference.api.model_facts import HeadKind, ModelCard, TargetMatch
from rdchat.inference.auto.cost_model import calls_by_rows
from rdchat.inference.drafting.checkpoints.checkpoint import CONFIG
from rdchat.inference.drafting.checkpoints.drafter_folder import MAX_CONFIG_BYTES, bound_hash, drafter_config
from rdchat.inference.drafting.checkpoints.installed_drafters import installed_drafters, own_layers, resolve_drafter
from rdchat.inference.models.model_config import LAYER_KEYS, read_config, text_config
from rdchat.inference.models.model_files import target_hash

OWN_LAYERS = "In the model"  # place of the MTP layers in a model's folder
_SURE = TargetMatch(True)


def measured_calls(folder: Path) -> Mapping[int, float]:
    """Return the time of a model's calls by rows, in plain steps; empty where this machine has not measured it."""
    try:
        return calls_by_rows(target_hash(folder)) if folder.is_dir() else {}
    except RdchatError:
        return {}


def fitting_drafters(folder: Path) -> tuple[ModelCard, ...]:
    """Return the drafter heads that fit the model in a folder, the certain ones first.

    Args:
        folder: The model's folder. A GGUF file has none before it is converted.
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
        own = ModelCard("MTP layers", str(folder), OWN_LAYERS, folder, kind=HeadKind.MTP, match=_SURE)
        drafters.append(replace(own, is_drafter=True, family=HeadKind.MTP.label, weights_bytes=size, disk_bytes=size))
    for drafter in installed_drafters(folder):
        if drafter.problem or drafter.kind is None:
            continue
        try:
            folder_of_drafter = resolve_drafter(drafter.model)
            if (match := _match(drafter, folder_of_drafter, config, own_hash)) is not None:
                weights = sum(path.stat().st_size for path in folder_of_drafter.glob("*.safetensors"))
                drafters.append(replace(drafter, match=match, weights_bytes=weights))
        except (RdchatError, OSError):
            continue
    return tuple(sorted(drafters, key=lambda fitting: not fitting.fits_surely))


def _match(drafter: ModelCard, folder_of_drafter: Path, config: Mapping[str, Any], own_hash: str) -> TargetMatch | None:
    bound = bound_hash(folder_of_drafter)
    if bound is not None:
        return _SURE if bound == own_hash else None
    if drafter.kind is HeadKind.RECURRENT:  # Apple's, which gives neither model nor depth
        return _sizes_match(read_json(folder_of_drafter / CONFIG, max_size=MAX_CONFIG_BYTES), config)
    _, needs = drafter_config(folder_of_drafter)
    sizes = {
        "hidden_size": needs.target_width,
        "vocab_size": needs.vocabulary_size,
        "layers": needs.target_depth,
        "deepest": max(needs.target_layers, default=0),
    }
    return _sizes_match(sizes, config)


def _sizes_match(sizes: Mapping[str, Any], config: Mapping[str, Any]) -> TargetMatch | None:
    """Compare the sizes that a drafter needs with a model's configuration; missing ones pass."""
    depth = next((config[key] for key in LAYER_KEYS if isinstance(config.get(key), int)), None)
    pairs = [
        (sizes.get("hidden_size"), config.get("hidden_size")),
        (sizes.get("vocab_size"), config.get("vocab_size")),
        (sizes.get("layers"), depth),
    ]
    if any(theirs is not None and ours is not None and theirs != ours for theirs, ours in pairs):
        return None
    if pairs[0][0] is None or pairs[0][1] is None or (depth is not None and sizes.get("deepest", 0) >= depth):
        return None
    return TargetMatch(False, "Its sizes fit; rdchat checks the rest when the model is loaded.")
