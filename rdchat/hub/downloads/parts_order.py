"""A drafter whose weights are parts of a repository's files: the order for its download, kept beside the drafter."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.files.atomic_file import atomic_file, make_folder, write_json
from rdchat.files.foreign_files import read_json
from rdchat.hub.cache_layout import CachedRepository, folders_in
from rdchat.hub.known_files import (
    MOST_FILE_BYTES,
    FilePart,
    HubFile,
    RepositoryFiles,
    is_commit,
    is_repository,
    is_safe_name,
)

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"
PRIVATE = 0o600  # rdchat's own folder, where the child that downloads has the person's umask
_ORDER = "parts.json"
_MOST_BYTES = 2**26  # a head of 32 MB, with JSON's escapes


@dataclass(frozen=True, slots=True)
class PartsOrder:
    """What to put together, and where from."""

    repository: str  # the hub id
    commit: str  # of all parts
    head: str  # the first bytes of the weights, in Latin-1
    parts: tuple[FilePart, ...]  # what follows, in this order
    config: str  # the drafter's configuration
    card: str  # Markdown

    @property
    def weights(self) -> HubFile:
        """The file to make; its digest stands for the order, since the hub has no checksum for parts of files."""
        ordered = repr((self.repository, self.commit, self.head, self.parts))
        size = len(self.head) + sum(part.bytes for part in self.parts)
        return HubFile(WEIGHTS, size, hashlib.sha256(ordered.encode()).hexdigest())

    @property
    def files(self) -> RepositoryFiles:
        return RepositoryFiles(self.repository, self.commit, self.commit, (self.weights,))

    def write(self, place: CachedRepository) -> None:
        """Keep the order in the drafter's folder; what was fetched for another one is removed.

        Raises:
            StorageError: If it cannot be written.
        """
        make_folder(place.work)
        parts = (path for path in place.work.glob("*.part") if path.stem != self.weights.digest)
        for path in (place.folder / WEIGHTS, *parts):
            path.unlink(missing_ok=True)
        write_json(place.work / _ORDER, asdict(self))

    def complete(self, place: CachedRepository, weights: Path) -> None:
        """Make the drafter from its weights. The configuration comes last: only a whole drafter is found.

        Raises:
            OSError, StorageError: If it cannot be written.
        """
        if weights.exists():
            weights.chmod(PRIVATE)  # a version that gave others access may have begun it
            weights.replace(place.folder / WEIGHTS)
        for name, text in ((CARD, self.card), (CONFIG, self.config)):
            with atomic_file(place.folder / name) as temporary:
                temporary.touch(PRIVATE)
                temporary.write_bytes(text.encode("utf-8", "replace"))  # a licence may have half a letter
        shutil.rmtree(place.work)


def drafter_place(repository: str, drafter: str) -> CachedRepository:
    """Return the place of a drafter, in rdchat's own folder, that is made from a repository's files.

    Raises:
        ValueError: If its name cannot be a folder's.
    """
    if not is_safe_name(drafter):
        raise ValueError("no name of a drafter")
    return CachedRepository(repository, paths.drafters_dir() / drafter)


def order_in(place: CachedRepository) -> PartsOrder | None:
    """Return the order of an unfinished drafter; None if there is none, it is damaged, or the drafter is complete."""
    try:
        order = _parsed(read_json(place.work / _ORDER, most=_MOST_BYTES))
    except (RdchatError, OSError, KeyError, TypeError, ValueError):
        return None
    return order if place.name in {order.repository, ""} and not is_complete(place) else None


def orders_here() -> Iterator[tuple[str, CachedRepository, PartsOrder]]:
    """Yield the unfinished drafters: the folder's name, its place, and the order."""
    for folder in folders_in(paths.drafters_dir()):
        if (order := order_in(CachedRepository("", folder))) is not None:
            yield folder.name, CachedRepository(order.repository, folder), order


def discard_order(place: CachedRepository) -> None:
    """Remove an unfinished drafter. The caller holds the lock."""
    if not is_complete(place):
        (place.folder / WEIGHTS).unlink(missing_ok=True)
    shutil.rmtree(place.work, ignore_errors=True)
    with suppress(OSError):  # it is not empty
        place.folder.rmdir()


def is_complete(place: CachedRepository) -> bool:
    return (place.folder / CONFIG).exists()


def _parsed(fields: Any) -> PartsOrder:
    parts = tuple(FilePart(**part) for part in fields["parts"])
    texts = {name: fields[name] for name in ("repository", "commit", "head", "config", "card")}
    strings = [*texts.values(), *(text for part in parts for text in (part.name, part.etag))]
    if not all(isinstance(text, str) for text in strings):
        raise ValueError("no text")
    texts["head"].encode("latin-1")
    if not is_repository(texts["repository"]) or not is_commit(texts["commit"]):
        raise ValueError("no repository")
    for part in parts:
        numbers = all(type(number) is int for number in (part.start, part.stop, part.size))
        placed = numbers and 0 <= part.start < part.stop <= part.size <= MOST_FILE_BYTES
        if not placed or not is_safe_name(part.name):
            raise ValueError("no part")
    return PartsOrder(**texts, parts=parts)
