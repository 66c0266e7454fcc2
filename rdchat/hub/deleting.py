"""Deletes a model from the hub's cache into the trash, except files that other revisions use."""

import os
from dataclasses import dataclass
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of
from rdchat.hub.cache_layout import CachedRepository, hub_cache
from rdchat.hub.downloads.download_record import discard, records_of, remove_unused_files, unused_files
from rdchat.hub.trash import SystemTrash, TrashedModel, move_to_trash, trashed_models


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """The effects of deleting a revision."""

    repository: CachedRepository  # where the model is
    commit: str  # commit of the snapshot; empty for an unfinished download only
    # Files and folders to remove in this order, first the references by which the model is found.
    paths: tuple[Path, ...]
    freed_bytes: int  # size of the removed blobs
    sharing: tuple[str, ...]  # names of other revisions that share some blobs, which stay
    unfinished: bool  # whether files of an unfinished download are removed too
    gguf: str = ""  # the only file of the snapshot to remove; empty to remove the whole snapshot

    @property
    def name(self) -> str:
        """Its name in messages."""
        return Path(self.gguf).stem if self.gguf else self.repository.name


def plan_deletion(repository: CachedRepository, revision: str = "main", gguf: str = "") -> DeletionPlan:
    """Return what deleting a revision would remove; changes nothing.

    Args:
        repository: Where the model is.
        revision: A branch, tag or commit.
        gguf: The GGUF file to delete; while there are others, only it is removed.

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
        return DeletionPlan(repository, "", (), 0, (), unfinished or bool(unused_files(repository)))
    references = repository.references()
    others = {other: repository.blobs_of(other) for other in repository.commits() if other != commit}
    snapshot, blobs_here = repository.snapshots / commit, repository.blobs_of(commit)
    alone = bool(gguf) and any(path.suffix.lower() == ".gguf" and path.name != gguf for path in entries_of(snapshot))
    own = {digest for name, digest in blobs_here.items() if not alone or name == gguf}
    kept = {digest for blobs in others.values() for digest in blobs.values()}
    sharing = tuple(
        ", ".join(references.get(other, [other])) for other, blobs in others.items() if own & set(blobs.values())
    )
    if alone:
        kept |= {digest for name, digest in blobs_here.items() if name != gguf}
    blobs = [repository.blobs / digest for digest in sorted(own - kept)]
    freed = sum(blob.stat().st_size for blob in blobs if blob.exists())
    here = tuple(blob for blob in blobs if os.path.lexists(blob))
    if alone:
        paths = (snapshot / gguf, *here) if os.path.lexists(snapshot / gguf) else ()
        return DeletionPlan(repository, commit, paths, freed, sharing, False, gguf)
    if not others and not unfinished:  # as a single rename
        return DeletionPlan(repository, commit, (repository.folder,), freed, (), unfinished)
    named = [repository.reference(name) for name in references.get(commit, [])]
    return DeletionPlan(repository, commit, (*named, snapshot, *here), freed, sharing, unfinished)


def delete(plan: DeletionPlan, system_trash: SystemTrash | None = None) -> TrashedModel | None:
    """Delete as planned: a model goes to the trash, an unfinished download is deleted for good.

    Args:
        plan: From `plan_deletion`.
        system_trash: Takes whole repositories; parts go to rdchat's own trash, which can put them back.

    Returns:
        What can be restored; None where there was only an unfinished download.

    Raises:
        ModelError: If the plan is outdated, because the model was downloaded or deleted meanwhile.
        StorageLockedError: If the model is being downloaded.
        StorageError: If it cannot be moved.
    """
    with plan.repository.locked():
        now = _planned(plan.repository, plan.commit, plan.gguf)
        if (now.paths, now.unfinished) != (plan.paths, plan.unfinished):
            raise ModelError(f"{plan.name} has changed since you were asked.", "Delete it again.")
        remove_unused_files(plan.repository)
        folder = plan.repository.folder
        whole = system_trash if plan.paths == (folder,) else None
        trashed = move_to_trash(plan.name, folder.parent, plan.paths, whole) if plan.paths else None
        if plan.unfinished and plan.repository.work.is_dir():
            discard(plan.repository)
    return trashed


def trash_places() -> tuple[Path, ...]:
    """Return the folders from which rdchat deletes models and drafters, each with its own trash."""
    return hub_cache(), paths.models_dir(), paths.drafters_dir()


def all_trashed() -> tuple[TrashedModel, ...]:
    """Return the trash of all these folders, the newest first."""
    found = [model for place in trash_places() for model in trashed_models(place)]
    return tuple(sorted(found, key=lambda model: model.deleted, reverse=True))
