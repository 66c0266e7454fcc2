"""Lists the models and drafters on this machine; only names are read (`model_cards`).

Models are in rdchat's own folders, the hub's cache, LM Studio's folders, and the person's own folder.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import rdchat
from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files import read_object, readable_entries
from rdchat.hub import CachedRepository, cached_repositories, folders_in
from rdchat.inference.api import ModelCard, Origin, describes_drafter

# In the home folder; LM Studio had the second one until its version 0.3.
_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")
_MAX_SUBFOLDERS = 300
_MAX_CONFIG_BYTES = 2**20


def model_cards(chosen: str = "") -> list[ModelCard]:
    """Return folders and files that may be models, each once, by origin and name.

    Args:
        chosen: The person's own models folder, to include; empty for none.
    """
    cards: dict[Path, ModelCard] = {}
    for card in (*_cards_in(paths.models_dir(), Origin.OWN), *_in_hub_cache(), *_in_lm_studio(), *_in_chosen(chosen)):
        cards.setdefault(card.path.resolve(), card)
    return list(cards.values())


def other_revisions() -> Iterator[ModelCard]:
    """Yield the revisions in the hub's cache other than main; old ones stay until they are deleted."""
    for repository in cached_repositories():
        main = repository.commit_of("main")
        names = repository.references()
        for commit in repository.commits():
            if commit != main:
                revision = next((name for name in names.get(commit, ()) if name != "main"), commit)
                for card in _in_repository(repository, commit, revision):
                    # The name alone means the main revision.
                    yield replace(card, model=str(card.path))


def own_drafters() -> Iterator[ModelCard]:
    """Return the drafters trained on this machine."""
    return _cards_in(paths.drafters_dir(), Origin.TRAINED)


def own_parts() -> Iterator[ModelCard]:
    """Return the drafters trained on this machine, and the vision towers fetched for models."""
    yield from own_drafters()
    yield from _cards_in(paths.towers_dir(), Origin.TRAINED)


def shipped_drafters() -> Iterator[ModelCard]:
    """Return the drafters shipped with the app."""
    return _cards_in(Path(rdchat.__file__).parent / "drafters", Origin.SHIPPED)


def find_card(name: str, chosen: str = "") -> ModelCard | None:
    """Return the card of a model by its name in `rdchat models list` or its path; None where there is none.

    A drafter may have the same name as the model it was trained for; then the model is returned.

    Args:
        name: The name or the path.
        chosen: See `model_cards`.

    Raises:
        ModelError: If several models have this name.
    """
    # pathlib keeps `..`, and raises for unknown users
    names = {name, os.path.abspath(os.path.expanduser(name))}  # noqa: PTH100, PTH111
    for cards in ((*model_cards(chosen), *other_revisions()), own_parts()):
        matches = [card for card in cards if names & {card.listed_name, str(card.path)}]
        if len(matches) > 1:
            where = ", ".join(str(card.path) for card in matches)
            raise ModelError(f"There are {len(matches)} models named {name}: {where}.", "Give the path of one of them.")
        if matches:
            return matches[0]
    return None


def is_drafter(folder: Path) -> bool:
    """Return whether a folder has a drafter head, by its configuration; False where that cannot be read."""
    try:
        config = folder / "config.json"
        return folder.is_dir() and describes_drafter(read_object(config, max_size=_MAX_CONFIG_BYTES))
    except (RdchatError, OSError):
        return False


def _cards_in(parent: Path, origin: str) -> Iterator[ModelCard]:
    return (ModelCard(folder.name, str(folder), origin, folder) for folder in folders_in(parent))


def _in_hub_cache() -> Iterator[ModelCard]:
    """Yield the main revisions: `models--ORG--NAME/refs/main` names a commit, `snapshots` holds its files."""
    for repository in cached_repositories():
        if commit := repository.commit_of("main"):
            yield from _in_repository(repository, commit, "main")


def _in_repository(repository: CachedRepository, commit: str, revision: str) -> Iterator[ModelCard]:
    for card in models_in(repository.snapshots / commit, repository.name, Origin.HUB):
        yield replace(card, repository=repository.name, revision=revision)


def _in_lm_studio() -> Iterator[ModelCard]:
    """Yield `PUBLISHER/NAME` in each folder with an MLX model."""
    for models in (Path.home() / folder for folder in _LM_STUDIO):
        for publisher in folders_in(models):
            for folder in folders_in(publisher):
                name = f"{publisher.name}/{folder.name}"
                yield from models_in(folder, name, Origin.LM_STUDIO)


def _in_chosen(chosen: str) -> Iterator[ModelCard]:
    """Yield the models in the person's own folder, and up to two levels below it.

    The folder may be any, since dialogs begin in it: the home folder and the root of the disk are skipped.
    """
    folder = Path(chosen)
    if not chosen or not folder.is_absolute() or folder in (Path.home(), *Path.home().parents):
        return
    yield from models_in(folder, folder.name, Origin.CHOSEN)
    for inner in folders_in(folder)[:_MAX_SUBFOLDERS]:
        models = list(models_in(inner, inner.name, Origin.CHOSEN))
        yield from models
        # A model's own folders have no models.
        if not models:
            for innermost in folders_in(inner)[:_MAX_SUBFOLDERS]:
                yield from models_in(innermost, f"{inner.name}/{innermost.name}", Origin.CHOSEN)


def models_in(folder: Path, name: str, origin: str) -> Iterator[ModelCard]:
    """Yield the possible model in one folder; it is loaded by its name from the hub's cache, else by its path."""
    if folder / "config.json" in readable_entries(folder):
        yield ModelCard(name, name if origin == Origin.HUB else str(folder), origin, folder)
