"""Where models may lie on this machine: rdchat's own, the hub's cache and LM Studio's folders.

A Mac's open panel hides `~/.cache`, where two of these lie. Folders are looked at by their names alone.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import rdchat
from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files.foreign_files import entries_of, read_json
from rdchat.hub.cache_layout import CachedRepository, cached_repositories, folders_in
from rdchat.inference.api.drafter_facts import describes_drafter
from rdchat.inference.api.model_card import ModelCard

OWN, HUB, LM_STUDIO, CHOSEN = "rdchat", "Hugging Face", "LM Studio", "Your folder"
TRAINED, SHIPPED = "Your own", "Shipped"  # drafters
NOT_VERIFIED = {
    OWN: "It was converted on this machine, so the hub has no checksums of it.",
    TRAINED: "It was trained on this machine, so the hub has no checksums of it.",
    CHOSEN: "It is not known which of the hub's models it is.",
}
NOT_DELETED = {
    LM_STUDIO: "It is LM Studio's: delete it there, or in its folder.",
    CHOSEN: "It lies in a folder of your own: delete it there.",
}
_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")  # below the home folder; the latter until version 0.3
_MOST_CHOSEN = 300  # folders that are looked into, of each that the person named
_MOST_CONFIG_BYTES = 2**20  # of a drafter's configuration
_NO_MODEL = ("mmproj", "-of-")  # in a GGUF file's name: what sees for another model, and a part of several


def model_places(chosen: str = "") -> list[ModelCard]:
    """Return folders and files that may be models, each once, by place and name.

    Args:
        chosen: A folder of the person's own, to look into as well; empty for none.
    """
    found: dict[Path, ModelCard] = {}
    for place in (*_own(), *_in_hub_cache(), *_in_lm_studio(), *_in_chosen(chosen)):
        found.setdefault(place.path.resolve(), place)
    return list(found.values())


def other_revisions() -> Iterator[ModelCard]:
    """Yield the revisions in the hub's cache that are not main; old ones stay until they are deleted."""
    for repository in cached_repositories():
        main, names = repository.commit_of("main"), repository.references()
        for commit in repository.commits():
            if commit != main:
                for place in _in_repository(repository, commit, names.get(commit, [commit])[0]):
                    yield replace(place, model=str(place.path))  # by its name the main one is found


def own_drafters() -> Iterator[ModelCard]:
    """Yield the drafters that were trained on this machine."""
    for folder in folders_in(paths.drafters_dir()):
        yield ModelCard(folder.name, str(folder), TRAINED, folder)


def shipped_drafters() -> Iterator[ModelCard]:
    """Yield the drafters that come with the app."""
    for folder in folders_in(Path(rdchat.__file__).parent / "drafters"):
        yield ModelCard(folder.name, str(folder), SHIPPED, folder)


def listed_name(card: ModelCard) -> str:
    """Return the name of a model in `rdchat models list`, which every command takes.

    That is its name, its path in a folder of the person's own, or NAME@REVISION.
    """
    if card.place == CHOSEN:
        return str(card.path)
    return card.name if card.revision == "main" else f"{card.name}@{card.revision}"


def hub_name(card: ModelCard) -> str:
    """Return the hub id that a model has, or may have as LM Studio keeps it; empty for others."""
    if card.place == LM_STUDIO:
        return f"{card.folder.parent.name}/{card.folder.name}"
    return card.repository


def place_named(name: str, chosen: str = "") -> ModelCard | None:
    """Return where the model of a name that `rdchat models list` prints, or of a path, lies; None where there is none.

    A drafter may have the name of the model that it was trained for: the model is meant.

    Args:
        name: The name or the path.
        chosen: See `model_places`.

    Raises:
        ModelError: If several models have this name.
    """
    # pathlib leaves `..` in, and raises for unknown users
    names = {name, os.path.abspath(os.path.expanduser(name))}  # noqa: PTH100, PTH111
    every = (*model_places(chosen), *other_revisions())
    found = [place for place in every if not names.isdisjoint({listed_name(place), str(place.path)})]
    found = found or [place for place in own_drafters() if not names.isdisjoint({listed_name(place), str(place.path)})]
    if len(found) > 1:
        where = ", ".join(str(place.path) for place in found)
        raise ModelError(f"There are {len(found)} models {name}: {where}.", "Give the path of one.")
    return found[0] if found else None


def is_drafter(folder: Path) -> bool:
    """Tell by its configuration whether a folder holds a drafter head; no where that cannot be read."""
    try:
        config = read_json(folder / "config.json", most=_MOST_CONFIG_BYTES) if folder.is_dir() else None
    except (RdchatError, OSError):
        return False
    return isinstance(config, dict) and describes_drafter(config)


def _own() -> Iterator[ModelCard]:
    for folder in folders_in(paths.models_dir()):
        yield ModelCard(folder.name, str(folder), OWN, folder)


def _in_hub_cache() -> Iterator[ModelCard]:
    """Yield the main revisions: `models--ORG--NAME/refs/main` names a commit, `snapshots` holds its files."""
    for repository in cached_repositories():
        if commit := repository.commit_of("main"):
            yield from _in_repository(repository, commit, "main")


def _in_repository(repository: CachedRepository, commit: str, revision: str) -> Iterator[ModelCard]:
    for place in models_in(repository.snapshots / commit, repository.name, HUB):
        yield replace(place, repository=repository.name, revision=revision)


def _in_lm_studio() -> Iterator[ModelCard]:
    """Yield `PUBLISHER/NAME` of either folder; each holds an MLX model or GGUF files."""
    for models in (Path.home() / place for place in _LM_STUDIO):
        for publisher in folders_in(models):
            for folder in folders_in(publisher):
                name = f"{publisher.name}/{folder.name}"
                yield from models_in(folder, name, LM_STUDIO)


def _in_chosen(chosen: str) -> Iterator[ModelCard]:
    """Yield the models in a folder of the person's own, or one level further down.

    Dialogs begin in that folder, so it may be any: the home folder and the disk itself are not looked into.
    """
    folder = Path(chosen)
    if not chosen or not folder.is_absolute() or folder in (Path.home(), *Path.home().parents):
        return
    yield from models_in(folder, folder.name, CHOSEN)
    for inner in folders_in(folder)[:_MOST_CHOSEN]:
        here = list(models_in(inner, inner.name, CHOSEN))
        yield from here
        if not here:
            for innermost in folders_in(inner)[:_MOST_CHOSEN]:
                yield from models_in(innermost, f"{inner.name}/{innermost.name}", CHOSEN)


def models_in(folder: Path, name: str, place: str) -> Iterator[ModelCard]:
    """Yield the possible models in one folder: an MLX model, or else its GGUF files."""
    try:
        entries = entries_of(folder)
    except (RdchatError, OSError):
        return
    if folder / "config.json" in entries:
        yield ModelCard(name, name if place == HUB else str(folder), place, folder)
        return
    for path in entries:
        if path.suffix.lower() == ".gguf" and path.is_file() and not any(word in path.name for word in _NO_MODEL):
            yield ModelCard(path.stem, str(path), place, path)
