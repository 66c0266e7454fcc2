"""Compares a model's files with the hub's checksums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from rdchat.errors import ModelError, NetworkError
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.checksums import checksum
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import HubError, MissingError
from rdchat.hub.known_files import HubFile, chosen_files, is_document


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison with the hub's checksums.

    Attributes:
        name: The hub id.
        commit: That the files were held against; of a folder that is not the hub's cache, the one that fits it best.
        intact: Files that have the hub's checksum.
        damaged: Files that do not; documents, such as README, are left out: other tools leave or edit them.
        missing: Files that the hub has, rdchat would fetch, and are not here; without documents. Of a folder that is
            not the hub's cache the weights alone, as other programs fetch other files.
        astray: Links that lead out of the repository's own `blobs`.
        unknown: Files that the hub has no checksum for.
        day: Of that commit, where it was found among older ones; None where it is the newest, or was asked for.
        in_cache: Whether the files lie in the hub's cache; else another program filled their folder.
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
    day: date | None = None
    in_cache: bool = True
    hub_problem: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all files are intact."""
        return bool(self.intact) and not (self.damaged or self.missing or self.astray)

    @property
    def version_words(self) -> str:
        """Say which version a folder holds, a sentence; empty where it is the newest, or the one that was asked for."""
        if self.day is None:
            return ""
        day = f"{self.day.day} {self.day:%B %Y}"
        return f"The files are those of commit {self.commit[:12]} of {day}, not the newest."


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
    files = _FolderFiles(snapshot, on_bytes)
    present = files.names
    astray = tuple(name for name in present if (snapshot / name).is_symlink() and name not in blobs)
    try:
        listed = _by_name(api.all_files(repository.name, commit)[0])
        wanted = {file.name for file in api.files(repository.name, commit, _gguf_of(present)).files}
        problem = ""
    except NetworkError as error:
        listed = {name: HubFile(name, _size(snapshot / name), digest) for name, digest in blobs.items()}
        wanted, problem = set(), error.message
    missing = tuple(sorted(name for name in wanted - set(present) if not is_document(name)))
    verdict = Verdict(repository.name, commit, missing=missing, astray=astray, hub_problem=problem)
    return _compared(verdict, files, listed)


def verify_folder(
    name: str, folder: Path, api: HubApi, on_bytes: Callable[[int], None] = lambda _count: None
) -> Verdict:
    """Verify a folder that some other program filled from a model of the hub, by the names of its files.

    Where they differ from the newest version, older ones are tried, and they are held against the one that fits best.

    Raises:
        NetworkError: If the hub cannot be asked, or refuses, and an older version may be what is here.
    """
    files = _FolderFiles(folder, on_bytes)
    listed, newest = api.all_files(name)
    best = _held_against(Verdict(name, newest, in_cache=False), files, listed)
    if _explains_all(best):
        return best
    try:
        for version in api.commits(name):
            if version.commit != newest and not _explains_all(best):
                try:
                    listed, _ = api.all_files(name, version.commit)
                except MissingError:  # the hub has this one no longer
                    continue
                older = Verdict(name, version.commit, day=version.day, in_cache=False)
                best = max(best, _held_against(older, files, listed), key=_fit)
    except NetworkError:
        if best.damaged:
            raise
    return best


def _held_against(verdict: Verdict, files: "_FolderFiles", listed: Sequence[HubFile]) -> Verdict:
    """Compare another program's folder with a version."""
    try:
        wanted, _ = chosen_files(listed, _gguf_of(files.names))
        weights = {file.name for file in wanted if file.name.endswith(".safetensors")}
    except HubError:  # of a GGUF file that this version has not, or has not alone
        weights = set()
    return _compared(replace(verdict, missing=tuple(sorted(weights - set(files.names)))), files, _by_name(listed))


def _explains_all(verdict: Verdict) -> bool:
    """Tell whether a version has all files of a folder; the system's hidden ones do not count."""
    return not verdict.damaged and all(Path(name).name.startswith(".") for name in verdict.unknown)


def _fit(verdict: Verdict) -> tuple[int, int]:
    """Return how many files a version has that a model needs, and how many documents."""
    documents = sum(map(is_document, verdict.intact))
    return len(verdict.intact) - documents, documents


class _FolderFiles:
    """The files of a folder, each read once, however many versions it is held against."""

    def __init__(self, folder: Path, on_bytes: Callable[[int], None]) -> None:
        self._folder, self._on_bytes = folder, on_bytes
        self._checksums: dict[tuple[str, int], str] = {}
        self.names = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()
        )

    def has(self, file: HubFile) -> bool:
        """Tell whether it is here just as the hub has it."""
        path, key = self._folder / file.name, (file.name, len(file.digest))
        if _size(path) != file.size:
            return False
        if key not in self._checksums:
            self._checksums[key] = checksum(path, len(file.digest), self._on_bytes)
        return self._checksums[key] == file.digest


def _compared(verdict: Verdict, files: _FolderFiles, listed: dict[str, HubFile]) -> Verdict:
    """Add to a verdict how the files that are here compare with those that the hub lists."""
    intact, damaged, unknown = [], [], []
    for name in files.names:
        if name in verdict.astray:
            continue
        if name not in listed:
            unknown.append(name)
        elif files.has(listed[name]):
            intact.append(name)
        elif not is_document(name):
            damaged.append(name)
    return replace(verdict, intact=tuple(intact), damaged=tuple(damaged), unknown=tuple(unknown))


def _gguf_of(present: Sequence[str]) -> str:
    """Return the GGUF file that a snapshot holds instead of safetensors; empty where it holds none."""
    if any(name.endswith(".safetensors") for name in present):
        return ""
    return next((name for name in present if name.lower().endswith(".gguf")), "")


def _by_name(files: Sequence[HubFile]) -> dict[str, HubFile]:
    return {file.name: file for file in files}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
