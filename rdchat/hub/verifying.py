"""Holds a model's files against the hub's checksums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdchat.errors import ModelError, NetworkError
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.checksums import is_intact
from rdchat.hub.hub_api import HubApi
from rdchat.hub.known_files import HubFile, is_document


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of a model's files.

    Attributes:
        name: The hub id.
        commit: Of the files that were looked at; empty for a folder that is not the hub's cache.
        intact: Files that have the hub's checksum.
        damaged: Files that do not; documents, such as README, are left out: other tools leave or edit them.
        missing: Files that the hub has, rdchat would fetch, and are not here; without documents.
        astray: Links that lead out of the repository's own `blobs`.
        unknown: Files that the hub has no checksum for.
        hub_problem: Why the hub was not asked; then the names of the cache's blobs, which are checksums, were held
            against their bytes, and what is missing is not known. Empty where it was.
    """

    name: str
    commit: str
    intact: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    hub_problem: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing stands against it."""
        return bool(self.intact) and not (self.damaged or self.missing or self.astray)


def verify_cached(
    repository: CachedRepository, commit: str, api: HubApi, on_bytes: Callable[[int], None] = lambda _count: None
) -> Verdict:
    """Verify a snapshot of the hub's cache, by the hub's checksums or, where it cannot be asked, by its blobs' names.

    Args:
        repository: Where it lies.
        commit: Which snapshot.
        api: The hub.
        on_bytes: Called with the number of bytes read since the last call; may raise to give up.

    Raises:
        ModelError: If there is no such snapshot.
    """
    snapshot = repository.snapshots / commit
    if not commit or not snapshot.is_dir():
        raise ModelError(
            f"{repository.name} is not in the Hugging Face cache.", f"`rdchat models download {repository.name}` does."
        )
    blobs = repository.blobs_of(commit)
    present = _files_of(snapshot)
    astray = tuple(name for name in present if (snapshot / name).is_symlink() and name not in blobs)
    try:
        listed = {file.name: file for file in api.all_files(repository.name, commit)[0]}
        wanted = {file.name for file in api.files(repository.name, commit, _gguf_of(present)).files}
        problem = ""
    except NetworkError as error:
        listed = {name: HubFile(name, _size(snapshot / name), digest) for name, digest in blobs.items()}
        wanted, problem = set(), error.message
    missing = tuple(sorted(name for name in wanted - set(present) if not is_document(name)))
    verdict = Verdict(repository.name, commit, missing=missing, astray=astray, hub_problem=problem)
    return _compared(verdict, snapshot, listed, on_bytes)


def verify_folder(
    name: str, folder: Path, api: HubApi, on_bytes: Callable[[int], None] = lambda _count: None
) -> Verdict:
    """Verify a folder that some other program filled from a model of the hub, by the names of its files.

    Raises:
        NetworkError: If the hub cannot be asked, or refuses.
    """
    listed = {file.name: file for file in api.all_files(name)[0]}
    return _compared(Verdict(name, ""), folder, listed, on_bytes)


def _compared(verdict: Verdict, folder: Path, listed: dict[str, HubFile], on_bytes: Callable[[int], None]) -> Verdict:
    """Add to a verdict how the files that are here compare with those that the hub lists."""
    intact, damaged, unknown = [], [], []
    for name in _files_of(folder):
        if name in verdict.astray:
            continue
        if name not in listed:
            unknown.append(name)
        elif is_intact(folder / name, listed[name].size, listed[name].digest, on_bytes):
            intact.append(name)
        elif not is_document(name):
            damaged.append(name)
    return replace(verdict, intact=tuple(intact), damaged=tuple(damaged), unknown=tuple(unknown))


def _gguf_of(present: Sequence[str]) -> str:
    """Return the GGUF file that a snapshot holds instead of safetensors; empty where it holds none."""
    if any(name.endswith(".safetensors") for name in present):
        return ""
    return next((name for name in present if name.lower().endswith(".gguf")), "")


def _files_of(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
