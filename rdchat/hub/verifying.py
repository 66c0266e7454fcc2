"""Compares a model's files with the hub's checksums."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rdchat.errors import ModelError, NetworkError
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.endpoint import HubError
from rdchat.hub.hub_api import HubApi
from rdchat.hub.known_files import checksum, chosen_files, is_document


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison with the hub's checksums.

    Attributes:
        name: The hub id.
        commit: The commit compared with; the newest one for a folder outside the hub's cache.
        intact: Files with the hub's checksum.
        astray: Links that lead out of the repository's own `blobs`.
        unknown: Files for which the hub has no checksum.
        in_cache: Whether the files are in the hub's cache; otherwise another program downloaded them.
    """

    name: str
    commit: str
    intact: tuple[str, ...] = ()
    # Files with another checksum, without documents such as README, which other tools leave out or edit.
    damaged: tuple[str, ...] = ()
    # Missing files that rdchat would download, without documents. Outside the hub's cache only weights count, because
    # other programs download different files.
    missing: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    in_cache: bool = True
    # Why the hub could not be asked; empty if it was. Without it the cache's blobs were compared with their names,
    # which are checksums, and missing files are unknown.
    hub_problem: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether all files are intact."""
        return bool(self.intact) and not (self.damaged or self.missing or self.astray)

    @property
    def version_text(self) -> str:
        """Return a sentence that another program's folder may have an older version; empty for the hub's cache."""
        if self.in_cache or not self.damaged:
            return ""
        return "It was compared with the newest version. An older version differs too."


def verify_cached(repository: CachedRepository, commit: str, api: HubApi, on_bytes: Callable[[int], None]) -> Verdict:
    """Verify a snapshot in the hub's cache by the hub's checksums or, if that cannot be reached, by the blobs' names.

    Args:
        repository: Where the model is.
        commit: The snapshot's commit.
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
    present = _names(snapshot)
    astray = tuple(name for name in present if (snapshot / name).is_symlink() and name not in blobs)
    try:
        digests = {file.name: file.digest for file in api.look_at(repository.name, commit).files}
        expected = {file.name for file in api.files(repository.name, commit).files}
        problem = ""
    except NetworkError as error:
        digests = blobs
        expected = set()
        problem = error.message
    missing = tuple(sorted(name for name in expected - set(present) if not is_document(name)))
    verdict = Verdict(repository.name, commit, missing=missing, astray=astray, hub_problem=problem)
    return _compared(verdict, snapshot, digests, on_bytes)


def verify_folder(name: str, folder: Path, api: HubApi, on_bytes: Callable[[int], None]) -> Verdict:
    """Verify a folder that another program downloaded from the hub, by the names of its files.

    They are compared with the newest version, because other programs do not record the commit.

    Raises:
        NetworkError: If the hub cannot be asked, or refuses.
    """
    newest = api.look_at(name)
    present = _names(folder)
    try:
        expected, _ = chosen_files(newest.files)
        weights = {file.name for file in expected if file.name.endswith(".safetensors")}
    except HubError:
        # The newest version has nothing that rdchat would download.
        weights = set()
    verdict = Verdict(name, newest.commit, missing=tuple(sorted(weights - set(present))), in_cache=False)
    return _compared(verdict, folder, {file.name: file.digest for file in newest.files}, on_bytes)


def _names(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _compared(verdict: Verdict, folder: Path, digests: Mapping[str, str], on_bytes: Callable[[int], None]) -> Verdict:
    """Compare the files on disk with the hub's checksums, by name, and add the result to a verdict."""
    intact = []
    damaged = []
    unknown = []
    for name in _names(folder):
        if name in verdict.astray:
            continue
        if name not in digests:
            unknown.append(name)
        elif checksum(folder / name, len(digests[name]), on_bytes) == digests[name]:
            intact.append(name)
        elif not is_document(name):
            damaged.append(name)
    return replace(verdict, intact=tuple(intact), damaged=tuple(damaged), unknown=tuple(unknown))
