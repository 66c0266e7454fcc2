"""Asks whether to delete a model or a drafter, and deletes it."""

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import RemovalQuestion
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.opening import ask
from rdchat.ui.models.installed.words import deletion_words, short_name, targets_of


class ModelDeletion(QObject):
    """A model that answers is unloaded first, a drafter that drafts is let go.

    Args:
        desk: Does it.
        window: What the question stands in front of.
    """

    def __init__(self, desk: ModelsDesk, window: QWidget) -> None:
        super().__init__(window)
        self._desk, self._window = desk, window
        self._asked: ModelCard | None = None
        self._next: RemovalQuestion | None = None  # once the model is unloaded
        desk.removal.asked.connect(self._ask)
        desk.slot.unloaded.connect(self._on_unloaded)
        desk.slot.failed.connect(self._forget)

    def ask(self, model: ModelCard) -> None:
        """Ask; nothing is deleted before the answer."""
        self._asked = model
        self._desk.removal.ask(model)

    def _ask(self, question: RemovalQuestion) -> None:
        model, desk = question.model, self._desk
        if model != self._asked:
            return  # another page asked
        self._asked = None
        loaded = desk.library.is_loaded(model)
        drafts_for = targets_of(model, desk.preferences.settings)
        words = deletion_words(question, loaded or desk.shelf.is_used(model), drafts_for)
        name = short_name(model)
        title = f"Delete the download of {name}?" if model.is_unfinished else f"Delete {name}?"
        answer = "Unload and delete" if loaded else "Delete"
        ask(self._window, title, words, answer, lambda: self._remove(question), removes=True)

    def _remove(self, question: RemovalQuestion) -> None:
        model, library = question.model, self._desk.library
        if library.is_loaded(model) or library.is_loading(model):
            self._next = question
            self._desk.slot.unload()
            return
        if model.is_drafter:
            self._desk.shelf.let_go(model)
        self._desk.removal.remove(question)

    def _on_unloaded(self) -> None:
        question, self._next = self._next, None
        if question is not None:
            self._desk.removal.remove(question)

    def _forget(self) -> None:
        self._next = None
