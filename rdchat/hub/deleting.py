"""Deletes a model from the hub's cache, into the trash: what only this revision uses, and nothing that others do."""

from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download_record import discard, records_of
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.trash import TrashedModel, move_to_trash


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What deleting a revision would take away.

    Attributes:
        repository: Where it lies.
        commit: Which snapshot; empty where there is none, only an unfinished download.
        paths: What goes, in this order: the references first, by which it is found.
        freed_bytes: Of the blobs that go.
        sharing: Names of the other revisions that use some of its blobs, which stay.
        unfinished: Whether an unfinished download goes with it.
    """

    repository: CachedRepository
    commit: str
    paths: tuple[Path, ...]
    freed_bytes: int
    sharing: tuple[str, ...]
    unfinished: bool


def plan_deletion(repository: CachedRepository, revision: str = "main") -> DeletionPlan:
    """Look what deleting would do; nothing is changed.

    Raises:
        ModelError: If there is no such model in the cache.
    """
    plan = _planned(repository, repository.commit_of(revision))
    if not plan.commit and not plan.unfinished:
        raise ModelError(f"{repository.name} is not in the Hugging Face cache.", "`rdchat models list` shows what is.")
    return plan


def _planned(repository: CachedRepository, commit: str) -> DeletionPlan:
    unfinished = bool(records_of(repository))
    if not commit or not (repository.snapshots / commit).is_dir():
        return DeletionPlan(repository, "", (), 0, (), unfinished)
    references = repository.references()
    others = {other: repository.blobs_of(other) for other in repository.commits() if other != commit}
    own = set(repository.blobs_of(commit).values())
    kept = {digest for blobs in others.values() for digest in blobs.values()}
    sharing = tuple(
        ", ".join(references.get(other, [other])) for other, blobs in others.items() if own & set(blobs.values())
    )
    blobs = [repository.blobs / digest for digest in sorted(own - kept)]
    freed = sum(blob.stat().st_size for blob in blobs if blob.exists())
    if not others and not unfinished:  # in one rename
        return DeletionPlan(repository, commit, (repository.folder,), freed, (), unfinished)
    named = [repository.reference(name) for name in references.get(commit, [])]
    paths = (*named, repository.snapshots / commit, *(blob for blob in blobs if blob.is_symlink() or blob.exists()))
    return DeletionPlan(repository, commit, paths, freed, sharing, unfinished)


def delete(plan: DeletionPlan) -> TrashedModel | None:
    """Do as planned; what was in the cache goes to the trash, an unfinished download for good.

    Returns:
        What can be restored; None where there was only an unfinished download.

    Raises:
        ModelError: If something else would go by now, as the model was downloaded or deleted since it was planned.
        StorageLockedError: If the model is being downloaded.
        StorageError: If it cannot be moved.
    """
    with RepositoryLock(plan.repository):
        now = _planned(plan.repository, plan.commit)
        if (now.paths, now.unfinished) != (plan.paths, plan.unfinished):
            raise ModelError(f"{plan.repository.name} has changed since you were asked.", "Delete it again.")
        trashed = move_to_trash(plan.repository.name, plan.repository.folder.parent, plan.paths) if plan.paths else None
        if plan.repository.work.is_dir():
            discard(plan.repository)
    return trashed
