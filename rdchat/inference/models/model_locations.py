"""Lists the models and drafters on this machine, and keeps facts about their files in the cache folder.

Models are in rdchat's own folders, the hub's cache, LM Studio's folders, and the person's own folder; to list them only
names are read (`model_cards`). What takes long to find out about a folder, such as the verdict of a trial, is stored
until its files, rdchat or its libraries change (`cached_fact`); a `Stamp` tells whether files have changed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rdchat
from rdchat import __version__, paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files import MAX_ENTRIES, read_bytes, read_json, read_object, readable_entries, write_cache_file
from rdchat.hub import CachedRepository, cached_repositories, folders_in
from rdchat.inference.api import Capability, DraftKind, ModelCard, describes_drafter, ranked_model, remote_model

# Origins of models.
OWN = "rdchat"
HUB = "Hugging Face"
LM_STUDIO = "LM Studio"
CHOSEN = "Your folder"
# Files that define a tokenizer.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "tekken.json")
_MAX_TOKENIZER_BYTES = 2**28
# Origins of drafters.
TRAINED = "Your own"
SHIPPED = "Comes with rdchat"
# Why the files of an origin cannot be verified, and why they cannot be deleted here.
NOT_VERIFIED = {
    OWN: "It was converted on this computer, so Hugging Face has no checksums for it.",
    TRAINED: "It was trained or put together on this computer, so Hugging Face has no checksums for it.",
    CHOSEN: "rdchat does not know which model on Hugging Face it is.",
}
NOT_DELETED = {
    LM_STUDIO: "It belongs to LM Studio: delete it there, or in its folder.",
    CHOSEN: "It is in your own models folder: delete it there.",
}
# In the home folder; LM Studio had the second one until its version 0.3.
_LM_STUDIO = (".lmstudio/models", ".cache/lm-studio/models")
_MAX_SUBFOLDERS = 300
_MAX_CONFIG_BYTES = 2**20
# Of stored facts: facts of another version are not used.
_FACTS_VERSION = 4
_MAX_FACTS_BYTES = 2**20


def model_cards(chosen: str = "") -> list[ModelCard]:
    """Return folders and files that may be models, each once, by origin and name.

    Args:
        chosen: The person's own models folder, to include; empty for none.
    """
    cards: dict[Path, ModelCard] = {}
    for card in (*_cards_in(paths.models_dir(), OWN), *_in_hub_cache(), *_in_lm_studio(), *_in_chosen(chosen)):
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
    return _cards_in(paths.drafters_dir(), TRAINED)


def own_parts() -> Iterator[ModelCard]:
    """Return the drafters trained on this machine, and the vision towers fetched for models."""
    yield from own_drafters()
    yield from _cards_in(paths.towers_dir(), TRAINED)


def shipped_drafters() -> Iterator[ModelCard]:
    """Return the drafters shipped with the app."""
    return _cards_in(Path(rdchat.__file__).parent / "drafters", SHIPPED)


def listed_name(card: ModelCard) -> str:
    """Return the name of a model in `rdchat models list`, which every command accepts.

    It is the model's name, its path in the person's own folder, or NAME@REVISION.
    """
    if card.origin == CHOSEN:
        return str(card.path)
    return card.name if card.revision == "main" else f"{card.name}@{card.revision}"


def hub_name(card: ModelCard) -> str:
    """Return a model's hub id, or its probable one in LM Studio's folders; empty for others."""
    if card.origin == LM_STUDIO:
        return f"{card.path.parent.name}/{card.path.name}"
    return card.repository


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
        matches = [card for card in cards if names & {listed_name(card), str(card.path)}]
        if len(matches) > 1:
            where = ", ".join(str(card.path) for card in matches)
            raise ModelError(f"There are {len(matches)} models named {name}: {where}.", "Give the path of one of them.")
        if matches:
            return matches[0]
    return None


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
    return is_here or any(listed_name(card) == name for card in (*model_cards(), *other_revisions()))


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
    for card in models_in(repository.snapshots / commit, repository.name, HUB):
        yield replace(card, repository=repository.name, revision=revision)


def _in_lm_studio() -> Iterator[ModelCard]:
    """Yield `PUBLISHER/NAME` in each folder with an MLX model."""
    for models in (Path.home() / folder for folder in _LM_STUDIO):
        for publisher in folders_in(models):
            for folder in folders_in(publisher):
                name = f"{publisher.name}/{folder.name}"
                yield from models_in(folder, name, LM_STUDIO)


def _in_chosen(chosen: str) -> Iterator[ModelCard]:
    """Yield the models in the person's own folder, and up to two levels below it.

    The folder may be any, since dialogs begin in it: the home folder and the root of the disk are skipped.
    """
    folder = Path(chosen)
    if not chosen or not folder.is_absolute() or folder in (Path.home(), *Path.home().parents):
        return
    yield from models_in(folder, folder.name, CHOSEN)
    for inner in folders_in(folder)[:_MAX_SUBFOLDERS]:
        models = list(models_in(inner, inner.name, CHOSEN))
        yield from models
        # A model's own folders have no models.
        if not models:
            for innermost in folders_in(inner)[:_MAX_SUBFOLDERS]:
                yield from models_in(innermost, f"{inner.name}/{innermost.name}", CHOSEN)


def models_in(folder: Path, name: str, origin: str) -> Iterator[ModelCard]:
    """Yield the possible model in one folder; it is loaded by its name from the hub's cache, else by its path."""
    if folder / "config.json" in readable_entries(folder):
        yield ModelCard(name, name if origin == HUB else str(folder), origin, folder)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Changes whenever a folder or a file changes.

    Attributes:
        digest: Hash of names, sizes and times of its files.
        disk_bytes: Sum of their sizes.
        changed: Latest of the times, in seconds since 1970.
    """

    digest: str
    disk_bytes: int
    changed: float


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a folder's files, or of one file, without opening any; links are followed.

    A broken link counts with its name alone. A folder that cannot be read has the stamp of an empty one.
    """
    seen = []
    size = 0
    changed = 0.0
    try:
        entries = [path] if path.is_file() else [Path(entry.path) for entry in os.scandir(path)]
        for entry in sorted(entries)[:MAX_ENTRIES]:
            try:
                status = entry.stat()
            except OSError:
                seen.append([entry.name, -1, 0])
                continue
            seen.append([entry.name, status.st_size, status.st_mtime_ns])
            if not entry.is_dir():
                size = size + status.st_size
                changed = max(changed, status.st_mtime)
    except OSError:
        pass
    return Stamp(hashlib.sha256(json.dumps(seen).encode("utf-8", "replace")).hexdigest()[:32], size, changed)


def cached_fact(kind: str, path: Path, find: Callable[[], Any]) -> Any:
    """Return a fact of a folder or file: the stored one, or else what `find` returns, which is stored then.

    A caller that needs a stamp of its own uses `stored_facts` and `store_facts`.
    """
    stamp = stamp_of(path)
    if (fact := stored_facts(kind, path, stamp)) is None:
        fact = find()
        store_facts(kind, path, stamp, fact)
    return fact


def stored_facts(kind: str, path: Path, stamp: Stamp) -> Any:
    """Return the facts stored by `store_facts`; None where nothing was stored, or something changed."""
    file = _facts_file(kind, path)
    try:
        stored = read_json(file, max_size=_MAX_FACTS_BYTES) if file.exists() else {}
        return stored.get("facts") if stored.get("stamp") == f"{stamp.digest} {_versions()}" else None
    except (ModelError, AttributeError):
        # The file is damaged.
        return None


def store_facts(kind: str, path: Path, stamp: Stamp, facts: Any) -> None:
    """Store facts, as JSON, until the folder or file changes; a failure is logged."""
    write_cache_file(
        _facts_file(kind, path), json.dumps({"stamp": f"{stamp.digest} {_versions()}", "facts": facts}) + "\n"
    )


def store_capability(folder: Path, stamp: Stamp, tried: Capability, setting: str = "") -> None:
    """Store what the model in a folder can verify; a failure is logged.

    Args:
        folder: The model's.
        stamp: Of its files when they were read.
        tried: The result.
        setting: Precision, device and versions with which it was tried.
    """
    store_facts("verification", folder, stamp, {**asdict(tried), "setting": setting})


def stored_capability(folder: Path, stamp: Stamp, setting: str | None = None) -> Capability | None:
    """Return what the model in a folder can verify; None where that was not tried, or the model has changed.

    Args:
        folder: The model's.
        stamp: Of its files.
        setting: The setting that it must have been tried with; None takes any.
    """
    # Without stored facts, reading them is a TypeError.
    try:
        facts = stored_facts("verification", folder, stamp)
        if setting not in {None, facts["setting"]}:
            return None
        return Capability(DraftKind(facts["kind"]), str(facts["reason"]), int(facts["inputs"]), dict(facts["errors"]))
    except (KeyError, TypeError, ValueError):
        return None


def _facts_file(kind: str, path: Path) -> Path:
    """Return the file for facts of a kind about a folder or file."""
    return paths.cache_dir() / "facts" / f"{kind}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"


@cache
def _versions() -> str:
    """Return the versions of the code that found the facts."""
    return f"{_FACTS_VERSION} {__version__} {version('mlx-lm')} {version('transformers')}"


def tokenizer_key(folder: Path) -> str:
    """Return a name for a model's tokenizer: models with the same files have the same; empty without such files."""
    digest = hashlib.sha256()
    files = [folder / name for name in _TOKENIZER_FILES if (folder / name).exists()]
    for file in files:
        digest.update(file.name.encode() + read_bytes(file, "Download the model again.", _MAX_TOKENIZER_BYTES))
    return digest.hexdigest()[:16] if files else ""
