"""Asks whether to delete a model or a drafter, and reports what was deleted."""

from PySide6.QtWidgets import QWidget

from rdchat.chat.settings import Settings
from rdchat.errors import RdchatError
from rdchat.hub.deleting import TrashedFolder
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.model_files import RemovalQuestion
from rdchat.services.models.models import Models
from rdchat.services.models.removal import Removal, Removed
from rdchat.ui.models.page_parts import StatusLine
from rdchat.ui.models.texts import short_name
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.opening import ask
from rdchat.ui.style.theme import Theme

_LOADED_NOW = "It is loaded and will be unloaded first."
_DRAFTS_NOW = "It is in use. Replies are then written without it."


class ResultLine(StatusLine):
    """The result of the last action; it reports deletions, which its link undoes.

    Args:
        removal: Deletes and restores models.
        theme: The appearance to follow.
        drafters_only: Whether deletions of models are not reported.
    """

    def __init__(self, removal: Removal, theme: Theme, *, drafters_only: bool = False) -> None:
        super().__init__(theme)
        self._removal, self._drafters_only = removal, drafters_only
        self._deleted: TrashedFolder | None = None
        removal.removed.connect(self._on_removed)
        removal.restored.connect(self._on_restored)
        removal.failed.connect(self._on_failed)

    def _on_removed(self, removed: Removed) -> None:
        self._deleted = deleted = removed.trashed
        if removed.model.is_drafter or not self._drafters_only:
            undo = "" if deleted is None else "Undo"
            sentences = f"Deleted {short_name(removed.model.name)}."
            self.show_text(sentences, link=undo, act=lambda: self._removal.restore(deleted) if deleted else None)

    def _on_restored(self, trashed: TrashedFolder) -> None:
        if trashed == self._deleted or not self._drafters_only:
            self.show_text(f"{short_name(trashed.name)} is back.", "success")

    def _on_failed(self, error: RdchatError) -> None:
        if self.isVisible() or not self._drafters_only:
            self.show_text(str(error), "danger")


def ask_to_delete(models: Models, window: QWidget, model: ModelCard) -> None:
    """Ask; the model is deleted after a yes.

    Args:
        models: Deletes it.
        window: The question stands in front of it.
        model: The model or drafter.
    """

    def show(question: RemovalQuestion) -> None:
        loaded, name = models.library.is_loaded(model), short_name(model.name)
        drafts_for = targets_of(model, models.settings.values)
        sentences = deletion_text(question, loaded or models.library.is_used(model), drafts_for)
        title = f"Delete {name} for good?" if question.for_good else f"Delete {name}?"
        title = f"Delete the download of {name}?" if model.is_unfinished else title
        answer = "Unload and Delete" if loaded else "Delete"
        ask(window, title, sentences, answer, lambda: models.delete(question, show), removes=True)

    models.removal.ask(model, show)


def deletion_text(question: RemovalQuestion, in_use: bool, drafts_for: list[str]) -> str:
    """Return what deleting a model or a drafter would do, in sentences."""
    model, size = question.model, file_size(question.freed_bytes)
    if model.is_unfinished:
        return f"This deletes the {size} downloaded so far. It cannot be undone."
    sentences = [f"It takes {size} of disk space."]
    if in_use:
        sentences.append(_DRAFTS_NOW if model.is_drafter else _LOADED_NOW)
    sentences.append(_destination_text(question))
    if question.sharing:
        sentences.append(f"Files shared with version {', '.join(question.sharing)} are kept.")
    if drafts_for:
        sentences.append(f"It drafts for {', '.join(drafts_for)}.")
    if question.with_unfinished:
        sentences.append("Its unfinished download is deleted too.")
    sentences.append(_trash_text(question))
    return " ".join(sentences)


def _trash_text(question: RemovalQuestion) -> str:
    """Return whether a deletion can be undone."""
    if not question.has_trash:
        return "It cannot be moved to the Trash, so this cannot be undone."
    if question.for_good:
        return "It shares its folder with other versions, so it does not go to the Trash. This cannot be undone."
    return "It goes to the Trash."


def _destination_text(question: RemovalQuestion) -> str:
    """Return who else may use a model, or how to get it again."""
    model = question.model
    if model.repository:
        return "It is in the Hugging Face cache, which other programs may use."
    if model.is_drafter:
        return "It was trained or put together on this machine."
    if not model.model:
        return "It is the default model. rdchat gets it again when you choose it."
    return "rdchat converted it. It can convert the original again."


def targets_of(model: ModelCard, settings: Settings) -> list[str]:
    """Return the names of the models that a model or a drafter was chosen to draft for."""
    own = {model.model, str(model.path)} - {""}
    chosen = (
        (item.model, item.draft.drafter if model.is_drafter else item.draft.draft_model) for item in settings.drafts
    )
    return [target.rpartition("/")[2] for target, drafts in chosen if drafts in own]
