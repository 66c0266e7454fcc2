"""Asks whether to delete a model or a drafter."""

from PySide6.QtWidgets import QWidget

from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import RemovalQuestion
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.opening import ask
from rdchat.ui.models.installed.words import deletion_words, short_name, targets_of


def ask_to_delete(desk: ModelsDesk, window: QWidget, model: ModelCard) -> None:
    """Ask; the model is deleted after a yes.

    Args:
        desk: Deletes it.
        window: The question stands in front of it.
        model: The model or drafter.
    """

    def show(question: RemovalQuestion) -> None:
        loaded, name = desk.library.is_loaded(model), short_name(model)
        drafts_for = targets_of(model, desk.preferences.settings)
        words = deletion_words(question, loaded or desk.shelf.is_used(model), drafts_for)
        title = f"Delete the download of {name}?" if model.is_unfinished else f"Delete {name}?"
        answer = "Unload and delete" if loaded else "Delete"
        ask(window, title, words, answer, lambda: desk.delete(question), removes=True)

    desk.removal.ask(model, show)
