"""The models on this machine by their names, and how they see. Neither MLX nor the network is needed."""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rdchat.errors import ModelError, RdchatError
from rdchat.hub import is_repository, repository_of
from rdchat.hub.downloads.download_record import records_of
from rdchat.inference.api import ImageCap, ModelCard, Origin, ranked_model, remote_model
from rdchat.inference.models.model_locations import find_card, model_cards, other_revisions


def is_known(model: str, servers: Collection[str]) -> bool:
    """Return whether a model's address names a server, a folder or a model that is here; nothing of it is read.

    Args:
        model: As it is loaded: a folder, a name of `rdchat models list`, `remote:SERVER/MODEL`, `ranks:HOSTS:MODEL`.
        servers: The names of the remote servers.
    """
    if remote := remote_model(model):
        return remote[0] in servers
    _, name = ranked_model(model) or ((), model)
    # pathlib raises for unknown users
    is_here = name is None or os.path.isdir(os.path.expanduser(name))  # noqa: PTH111, PTH112
    return is_here or any(card.listed_name == name for card in (*model_cards(), *other_revisions()))


def named_card(name: str, revision: str = "main", chosen: str = "") -> ModelCard:
    """Return a model by a hub id, a name in the list, or a path.

    A hub id means the model in the hub's cache, complete or not, before any other. If nothing of it is there, a model
    of the list with that name counts, else a card of the id without any files.

    Args:
        name: The name.
        revision: A branch, tag or commit in the hub's cache.
        chosen: The person's own models folder, to include; empty for none.

    Raises:
        ModelError: If there is none, or several have this name.
    """
    card = None
    if is_repository(name):
        repository = repository_of(name)
        snapshot = repository.snapshots / repository.commit_of(revision)
        card = ModelCard(name, name, Origin.HUB, snapshot, name, revision)
        if repository.commits() or records_of(repository):
            return card
    card = find_card(name if revision == "main" else f"{name}@{revision}", chosen) or card
    if card is None:
        raise ModelError(f"There is no model {name}.", "`rdchat models list` shows all models.")
    return card


def seen_size(folder: Path | None, width: int, height: int, cap: ImageCap) -> tuple[int, int] | None:
    """Return the size at which the model of a folder sees an image; None if it sees none. Not for the main thread."""
    from rdchat.inference.vision.families import vision_of  # noqa: PLC0415  NumPy
    from rdchat.inference.vision.processors import PROCESSORS  # noqa: PLC0415

    with suppress(RdchatError):
        if folder and min(width, height) > 0 and (vision := vision_of(folder)).family is not None:
            settings = vision.family.image_settings(vision.folder)
            return PROCESSORS[vision.family.processor].layout(width, height, settings, cap.tokens).size
    return None


def fetched_vision(model: ModelCard) -> ModelCard | None:
    """Return the card of the vision tower that was fetched for a model; None without one, and for a damaged model."""
    from rdchat.inference.vision.families import fetched_tower  # noqa: PLC0415  slow to import

    with suppress(RdchatError, OSError):
        if (folder := fetched_tower(model.path)) is not None:
            size = sum(path.stat().st_size for path in folder.iterdir())
            return replace(model, name=folder.name, path=folder, repository="", is_drafter=True, disk_bytes=size)
    return None
