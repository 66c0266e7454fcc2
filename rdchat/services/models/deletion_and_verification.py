"""Deletes a model or compares its files with the hub's checksums; for the window and the terminal.

Only models in the hub's cache and in rdchat's own folders are deleted; other programs' folders are left alone.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.hub import CachedRepository, Tokens, drafter_for, find_endpoint, is_repository, repository_of, snapshot_of
from rdchat.hub.verifying_and_deleting import (
    DeletionPlan,
    MoveToTrash,
    TrashedFolder,
    Verdict,
    delete,
    plan_deletion,
    verify_cached,
    verify_folder,
)
from rdchat.inference.api import ModelCard, Origin
from rdchat.inference.library.local_models import fetched_vision
from rdchat.wording import size_text

# Why the files of an origin cannot be verified, and why they cannot be deleted here.
_NOT_VERIFIED: Mapping[str, str] = {
    Origin.OWN: "It was converted on this computer, so Hugging Face has no checksums for it.",
    Origin.TRAINED: "It was trained or put together on this computer, so Hugging Face has no checksums for it.",
    Origin.CHOSEN: "rdchat does not know which model on Hugging Face it is.",
}
_NOT_DELETED: Mapping[str, str] = {
    Origin.LM_STUDIO: "It belongs to LM Studio: delete it there, or in its folder.",
    Origin.CHOSEN: "It is in your own models folder: delete it there.",
}
_LOADED = "It is loaded and will be unloaded first."


@dataclass(frozen=True, slots=True)
class RemovalQuestion:
    """The effects of deleting a model, for the question before it.

    Attributes:
        has_trash: False once the system refused to move it to the Trash.
        tower: The deletion of the vision tower that was fetched for it, which follows; None if there is none to delete.
    """

    model: ModelCard
    plan: DeletionPlan
    has_trash: bool = True
    tower: "RemovalQuestion | None" = None

    @classmethod
    def for_model(cls, model: ModelCard) -> "RemovalQuestion":
        """Return what deleting a model would do; reads the disk.

        There are three kinds: an unfinished download, of which nothing is a model yet; a revision in the hub's cache;
        and a folder of rdchat's own.

        Raises:
            ModelError: If rdchat does not delete it.
        """
        if reason := reason_not_to_delete(model):
            raise ModelError(reason)
        if model.is_unfinished:
            plan = DeletionPlan(repository_of(model.repository), "", (), model.disk_bytes, (), unfinished=True)
        elif model.repository:
            plan = plan_deletion(repository_of(model.repository), model.revision)
        else:
            repository = CachedRepository(model.name, model.path)
            plan = DeletionPlan(repository, "", (model.path,), model.disk_bytes, (), unfinished=False)
        # The tower goes with the whole model only: other revisions, which stay, may have the same weights and need it.
        has_tower = plan.is_complete and not model.is_drafter and not model.is_unfinished
        return cls(model, plan, tower=cls._for_tower(model) if has_tower else None)

    @classmethod
    def _for_tower(cls, model: ModelCard) -> "RemovalQuestion | None":
        """Return the question of the vision tower that was fetched for a model; None without one."""
        card = fetched_vision(model)
        # What cannot be deleted stays.
        with suppress(RdchatError, OSError):
            return cls.for_model(card) if card is not None else None
        return None

    @property
    def for_good(self) -> bool:
        """Whether it is deleted for good; otherwise it goes to the Trash, which takes whole repositories or folders."""
        return not (self.plan.is_complete and self.has_trash)

    def delete_model(self, move_to_trash: MoveToTrash) -> TrashedFolder | None:
        """Delete the model; return its folder in the Trash, None if that is unknown or it was deleted for good.

        A tower that cannot be deleted stays, and is still listed.

        Raises:
            NoTrashError: If it cannot be moved to the Trash. Ask again, with `has_trash` false.
            RdchatError: If it cannot be deleted.
        """
        trash_path = delete(self.plan, None if self.for_good else move_to_trash)
        tower = None
        if self.tower is not None:
            with suppress(RdchatError):
                tower = replace(self.tower, has_trash=self.has_trash).delete_model(move_to_trash)
        if trash_path is None:
            return None
        return TrashedFolder(self.model.name, self.plan.repository.folder, trash_path, tower)

    def question_text(self, in_use: bool = False, drafts_for: Sequence[str] = ()) -> str:
        """Return what deleting a model or a drafter would do, in sentences."""
        model = self.model
        plan = self.plan
        size = size_text(plan.freed_bytes)
        # There is only an unfinished download.
        if not plan.paths:
            downloaded = f"the {size}" if plan.freed_bytes else "what was"
            return f"This deletes {downloaded} downloaded so far. It cannot be undone."
        sentences = [f"It takes {size} of disk space."] if plan.freed_bytes else []
        if in_use:
            sentences.append("It is in use. Replies are then written without it." if model.is_drafter else _LOADED)
        sentences.append(_destination_text(model))
        if plan.sharing:
            sentences.append(f"Files shared with version {', '.join(plan.sharing)} are kept.")
        if (drafter := drafter_for(model.repository)) is not None and snapshot_of(drafter.repository) is not None:
            sentences.append(f"Its drafter, {drafter.repository}, stays.")
        if drafts_for:
            sentences.append(f"It drafts for {', '.join(drafts_for)}.")
        if plan.unfinished:
            sentences.append("Its unfinished download is deleted too.")
        if not self.has_trash:
            sentences.append("It cannot be moved to the Trash, so this cannot be undone.")
        elif self.for_good:
            sentences.append(
                "It shares its folder with other versions, so it does not go to the Trash. This cannot be undone."
            )
        else:
            sentences.append("It goes to the Trash.")
        return " ".join(sentences)


def _destination_text(model: ModelCard) -> str:
    """Return who else may use a model, or how to get it again."""
    if model.repository:
        return "It is in the Hugging Face cache, which other programs may use."
    if model.is_drafter:
        return "It was trained or put together on this machine."
    if not model.model:
        return "It is the default model. rdchat gets it again when you choose it."
    return "rdchat converted it. It can convert the original again."


def reason_not_to_delete(model: ModelCard) -> str:
    """Say why rdchat does not delete a model, a sentence; empty where it does."""
    if model.repository or model.path.parent in (paths.models_dir(), paths.drafters_dir(), paths.towers_dir()):
        return ""
    return _NOT_DELETED.get(model.origin, _NOT_DELETED[Origin.CHOSEN])


def reason_not_to_verify(model: ModelCard) -> str:
    """Say why the hub has no checksums of a model, a sentence; empty where it may have."""
    if model.is_unfinished:
        return "Finish the download first. rdchat then checks the files."
    if model.repository or is_repository(model.hub_id):
        return ""
    return _NOT_VERIFIED.get(model.origin, _NOT_VERIFIED[Origin.CHOSEN])


def verdict_of(model: ModelCard, tokens: Tokens, on_bytes: Callable[[int], None]) -> Verdict:
    """Compare a model's files with the hub's checksums.

    Args:
        model: The model.
        tokens: Where the person's tokens are found.
        on_bytes: Called with the number of bytes read since the last call; may raise to stop.

    Raises:
        ModelError: If the hub has no checksums of it.
        NetworkError: If the hub cannot be asked, and the files cannot be checked without it.
    """
    from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  slow to import

    if reason := reason_not_to_verify(model):
        raise ModelError(reason)
    api = HubApi(tokens.access(find_endpoint()))
    if model.repository:
        repository = repository_of(model.repository)
        return verify_cached(repository, repository.commit_of(model.revision), api, on_bytes)
    return verify_folder(model.hub_id, model.path, api, on_bytes)
