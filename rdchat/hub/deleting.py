"""Deletes a model from the hub's cache into the trash, except files that other revisions use."""

from dataclasses import dataclass
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of
from rdchat.hub.cache_layout import CachedRepository, hub_cache
from rdchat.hub.downloads.download_record import discard, records_of, remove_strays, strays_of
from rdchat.hub.downloads.repository_lock import RepositoryLock
from rdchat.hub.trash import SystemTrash, TrashedModel, move_to_trash, trashed_models


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What deleting a revision removes.

    Attributes:
        repository: Where it lies.
        commit: Which snapshot; empty where there is none, only an unfinished download.
        paths: What goes, in this order: the references first, by which it is found.
        freed_bytes: Of the blobs that go.
        sharing: Names of the other revisions that use some of its blobs, which stay.
        unfinished: Whether an unfinished download goes with it, or what an earlier one left.
        gguf: The file of which it is, where others of the snapshot stay; empty where all of it goes.
    """

    repository: CachedRepository
    commit: str
    paths: tuple[Path, ...]
    freed_bytes: int
    sharing: tuple[str, ...]
    unfinished: bool
    gguf: str = ""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return Path(self.gguf).stem if self.gguf else self.repository.name


def plan_deletion(repository: CachedRepository, revision: str = "main", gguf: str = "") -> DeletionPlan:
    """Return what deleting a revision would remove; changes nothing.

    Args:
        repository: Where it lies.
        revision: A branch, tag or commit.
        gguf: The GGUF file that is the model, each being one; while there are others, it goes alone.

    Raises:
        ModelError: If there is no such model in the cache.
    """
    plan = _planned(repository, repository.commit_of(revision), gguf)
    if not plan.paths and not plan.unfinished:
        raise ModelError(f"{repository.name} is not in the Hugging Face cache.", "`rdchat models list` shows what is.")
    return plan


def _planned(repository: CachedRepository, commit: str, gguf: str) -> DeletionPlan:
    unfinished = bool(records_of(repository))
    if not commit or not (repository.snapshots / commit).is_dir():
        return DeletionPlan(repository, "", (), 0, (), unfinished or bool(strays_of(repository)))
    references = repository.references()
    others = {other: repository.blobs_of(other) for other in repository.commits() if other != commit}
    snapshot, blobs_here = repository.snapshots / commit, repository.blobs_of(commit)
    alone = bool(gguf) and any(_is_gguf(path) and path.name != gguf for path in entries_of(snapshot))
    own = {digest for name, digest in blobs_here.items() if not alone or name == gguf}
    kept = {digest for blobs in others.values() for digest in blobs.values()}
    sharing = tuple(
        ", ".join(references.get(other, [other])) for other, blobs in others.items() if own & set(blobs.values())
    )
    if alone:
        kept |= {digest for name, digest in blobs_here.items() if name != gguf}
    blobs = [repository.blobs / digest for digest in sorted(own - kept)]
    freed = sum(blob.stat().st_size for blob in blobs if blob.exists())
    here = tuple(blob for blob in blobs if _is_there(blob))
    if alone:
        paths = (snapshot / gguf, *here) if _is_there(snapshot / gguf) else ()
        return DeletionPlan(repository, commit, paths, freed, sharing, False, gguf)
    if not others and not unfinished:  # in one rename
        return DeletionPlan(repository, commit, (repository.folder,), freed, (), unfinished)
    named = [repository.reference(name) for name in references.get(commit, [])]
    return DeletionPlan(repository, commit, (*named, snapshot, *here), freed, sharing, unfinished)


def delete(plan: DeletionPlan, system_trash: SystemTrash | None = None) -> TrashedModel | None:
    """Delete as planned: a model goes to the trash, an unfinished download is deleted for good.

    Args:
        plan: Of `plan_deletion`.
        system_trash: Takes whole repositories; parts of one go to rdchat's own trash, as nobody could put them back.

    Returns:
        What can be restored; None where there was only an unfinished download.

    Raises:
        ModelError: If something else would go by now, as the model was downloaded or deleted since it was planned.
        StorageLockedError: If the model is being downloaded.
        StorageError: If it cannot be moved.
    """
    with RepositoryLock(plan.repository):
        now = _planned(plan.repository, plan.commit, plan.gguf)
        if (now.paths, now.unfinished) != (plan.paths, plan.unfinished):
            raise ModelError(f"{plan.name} has changed since you were asked.", "Delete it again.")
        remove_strays(plan.repository)
        folder = plan.repository.folder
        whole = system_trash if plan.paths == (folder,) else None
        trashed = move_to_trash(plan.name, folder.parent, plan.paths, whole) if plan.paths else None
        if plan.unfinished and plan.repository.work.is_dir():
            discard(plan.repository)
    return trashed


def trash_places() -> tuple[Path, ...]:
    """Return the folders whose models and drafters rdchat deletes, each with a trash of its own."""
    return hub_cache(), paths.models_dir(), paths.drafters_dir()


def all_trashed() -> tuple[TrashedModel, ...]:
    """Return the trash of all these folders, the newest first."""
    found = [model for place in trash_places() for model in trashed_models(place)]
    return tuple(sorted(found, key=lambda model: model.deleted, reverse=True))


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()
