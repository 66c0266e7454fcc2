"""Compares models with the hub's checksums, and deletes models.

A whole folder goes to the system's Trash, a part of a repository is deleted for good. Files that other revisions or
downloads use stay. A deletion is planned first, for the question to the person; `delete` refuses an outdated plan.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rdchat.errors import ModelError, NetworkError, StorageError, file_error, file_errors
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download_record import discard, records_of, remove_unused_files, unused_files
from rdchat.hub.endpoint import HubError
from rdchat.hub.known_files import checksum, chosen_files, is_document

if TYPE_CHECKING:
    from rdchat.hub.hub_api import HubApi

MoveToTrash = Callable[[Path], Path | None]
"""Moves a folder to the system's Trash; returns its path there, None if unknown; raises OSError if it cannot."""
_HINT = "Check the permissions of the folder."
# A download that was paused releases its files within this time.
_LOCK_WAIT_S = 3.0


class NoTrashError(StorageError):
    """A folder cannot be moved to the system's Trash; it is still in its place."""


@dataclass(frozen=True, slots=True)
class TrashedFolder:
    """A folder in the system's Trash that `put_back` can restore.

    Attributes:
        name: Name of the model.
        folder: The folder's former path.
        trash_path: Its path in the Trash.
        tower: The vision tower that was deleted with it, and comes back with it.
    """

    name: str
    folder: Path
    trash_path: Path
    tower: "TrashedFolder | None" = None


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """The effects of deleting a revision, or a folder outside the hub's cache.

    Attributes:
        repository: Where the model is.
        commit: Commit of the snapshot; empty for an unfinished download only, and for a folder outside the cache.
        paths: Files and folders to remove, in this order: a deletion that is cut short leaves a model that can be
            deleted again. Empty for an unfinished download only, whose files `delete` finds by their record.
        freed_bytes: Size of the removed blobs.
        sharing: Names of other revisions that share some blobs, which stay.
        unfinished: Whether files of an unfinished download are removed too.
    """

    repository: CachedRepository
    commit: str
    paths: tuple[Path, ...]
    freed_bytes: int
    sharing: tuple[str, ...]
    unfinished: bool

    @property
    def is_complete(self) -> bool:
        """Whether the whole repository is deleted; only that goes to the Trash."""
        return self.paths == (self.repository.folder,)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.repository.name


def plan_deletion(repository: CachedRepository, revision: str = "main") -> DeletionPlan:
    """Return what deleting a revision would remove; changes nothing.

    Args:
        repository: Where the model is.
        revision: A branch, tag or commit.

    Raises:
        ModelError: If there is no such model in the cache.
    """
    plan = _planned(repository, repository.commit_of(revision))
    if not plan.paths and not plan.unfinished:
        raise ModelError(f"{repository.name} is not in the Hugging Face cache.", "`rdchat models list` shows what is.")
    return plan


def _planned(repository: CachedRepository, commit: str) -> DeletionPlan:
    """Return the plan for a commit, by what is on disk now.

    Without a snapshot only unfinished downloads are removed. The only snapshot goes with the repository's folder. One
    of several goes with its own blobs and references.
    """
    unfinished = bool(records_of(repository))
    snapshot = repository.snapshots / commit
    # `delete` removes unused files with everything else, so they matter only where there is nothing else.
    if not commit or not snapshot.is_dir():
        return DeletionPlan(repository, "", (), 0, (), unfinished or bool(unused_files(repository)))
    references = repository.references()
    others = {other: repository.blobs_of(other) for other in repository.commits() if other != commit}
    own = set(repository.blobs_of(commit).values())
    # Blobs that stay, as other snapshots have them too.
    needed = {digest for blobs in others.values() for digest in blobs.values()}
    sharing = tuple(
        ", ".join(references.get(other, [other])) for other, blobs in others.items() if own & set(blobs.values())
    )
    blobs = [repository.blobs / digest for digest in sorted(own - needed)]
    freed = sum(blob.stat().st_size for blob in blobs if blob.exists())
    if not others:
        return DeletionPlan(repository, commit, (repository.folder,), freed, (), unfinished)
    named = [repository.reference(name) for name in references.get(commit, [])]
    return DeletionPlan(repository, commit, (*blobs, snapshot, *named), freed, sharing, unfinished)


def delete(plan: DeletionPlan, move_to_trash: MoveToTrash | None) -> Path | None:
    """Delete as planned.

    A plan without commit and without unfinished download is that of a folder outside the hub's cache.

    Args:
        plan: From `plan_deletion`.
        move_to_trash: Takes a whole repository; None to delete that for good too.

    Returns:
        The path in the Trash; None where that is unknown, or the files were deleted for good.

    Raises:
        ModelError: If the plan is outdated, because the model was downloaded or deleted meanwhile.
        StorageLockedError: If the model is being downloaded, and not just being paused.
        NoTrashError: If the repository cannot be moved to the Trash.
        StorageError: If a file cannot be deleted.
    """
    if not (plan.commit or plan.unfinished):
        # No other program writes to a folder outside the hub's cache.
        return remove_folder(plan.name, plan.repository.folder, move_to_trash)
    with plan.repository.locked(_LOCK_WAIT_S):
        now = _planned(plan.repository, plan.commit)
        if (now.paths, now.unfinished) != (plan.paths, plan.unfinished):
            raise ModelError(f"{plan.name} has changed since you were asked.", "Delete it again.")
        # What earlier downloads left behind goes in any case; `discard` removes what a record still names.
        remove_unused_files(plan.repository)
        if plan.is_complete:
            return remove_folder(plan.name, plan.repository.folder, move_to_trash)
        for path in plan.paths:
            _delete_for_good(plan.name, path)
        if plan.unfinished and plan.repository.work.is_dir():
            discard(plan.repository)
    return None


def remove_folder(name: str, folder: Path, move_to_trash: MoveToTrash | None) -> Path | None:
    """Move a model's folder to the Trash, or delete it for good.

    Args:
        name: The model's name for people.
        folder: The folder; if it is a link, only the link is deleted.
        move_to_trash: Takes the folder; None to delete it for good.

    Returns:
        The path in the Trash; None where that is unknown, or the folder was deleted for good.

    Raises:
        NoTrashError: If it cannot be moved to the Trash; it is left alone then.
        ModelError: If it is gone.
        StorageError: If it cannot be deleted.
    """
    if not os.path.lexists(folder):
        raise ModelError(f"{name} cannot be deleted: {folder} no longer exists.")
    if move_to_trash is None:
        _delete_for_good(name, folder)
        return None
    try:
        if folder.is_symlink():
            # Systems disagree whether the link or its target is moved.
            raise OSError("a link")
        return move_to_trash(folder)
    except OSError as error:
        raise NoTrashError(f"{name} cannot be moved to the Trash.") from error


def put_back(trashed: TrashedFolder) -> None:
    """Move a folder from the Trash to its former path.

    Raises:
        ModelError: If another folder has that path, or it is no longer in the Trash.
        StorageError: If it cannot be moved.
    """
    name = trashed.name
    folder = trashed.folder
    source = trashed.trash_path
    if os.path.lexists(folder):
        raise ModelError(f"{name} cannot be restored: {folder} already exists.", "Delete it first.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        source.rename(folder)
        # The freedesktop Trash describes each entry in a file beside it.
        (source.parent.parent / "info" / f"{source.name}.trashinfo").unlink(missing_ok=True)
    except FileNotFoundError as error:
        raise ModelError(f"{name} is no longer in the Trash.", "It may have been deleted for good.") from error
    except OSError as error:
        raise file_error(error, f"{name} cannot be restored", "Put it back from the Trash.") from error
    if trashed.tower is not None:
        put_back(trashed.tower)


def _delete_for_good(name: str, path: Path) -> None:
    with file_errors(f"{name} cannot be deleted", _HINT):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison with the hub's checksums.

    Attributes:
        name: The hub id.
        commit: The commit compared with; the newest one for a folder outside the hub's cache.
        intact: Files with the hub's checksum.
        damaged: Files with another checksum, without documents such as README, which other tools leave out or edit.
        missing: Missing files that rdchat would download, without documents. Outside the hub's cache only weights
            count, because other programs download different files.
        astray: Links that lead out of the repository's own `blobs`.
        unknown: Files for which the hub has no checksum.
        in_cache: Whether the files are in the hub's cache; otherwise another program downloaded them.
        hub_problem: Why the hub could not be asked; empty if it was. Without it the cache's blobs were compared with
            their names, which are checksums, and missing files are unknown.
    """

    name: str
    commit: str
    intact: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    in_cache: bool = True
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


def verify_cached(repository: CachedRepository, commit: str, api: "HubApi", on_bytes: Callable[[int], None]) -> Verdict:
    """Verify a snapshot in the hub's cache by the hub's checksums or, if that cannot be reached, by the blobs' names.

    All files of the repository are compared (`look_at`); only those that rdchat would download can be missing
    (`files`).

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
            f"{repository.name} is not in the Hugging Face cache.",
            f"`rdchat models download {repository.name}` gets it.",
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


def verify_folder(name: str, folder: Path, api: "HubApi", on_bytes: Callable[[int], None]) -> Verdict:
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
    """Return the names of the files and links in a folder and below it, as paths from it."""
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
