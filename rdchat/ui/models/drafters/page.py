"""The Drafters page: drafters on this machine and on the hub for one model, and training."""

from pathlib import Path

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.services.models.training.training_control import TrainingState
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme
from rdchat.ui.models.drafters.sections import InstalledSection, PublishedSection
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.training.page import TrainingPage
from rdchat.ui.speed.fields import CalmComboBox

_WIDEST = 820
_STATES = {
    TrainingState.STARTING: "is starting",
    TrainingState.TRAINING: "goes on",
    TrainingState.PAUSING: "is pausing",
    TrainingState.PAUSED: "is paused",
    TrainingState.FAILED: "has stopped",
    TrainingState.FINISHED: "is done: use the drafter, or discard it",
}


class DraftersPage(QWidget):
    """The drafters of one model, and the training page behind a button.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._hub, self._training = desk.shelf, desk.hub_drafters, desk.training
        self._models: list[ModelCard] = []
        self._taken = ""  # says that a trained drafter is used now
        self.installed = InstalledSection(desk, theme)
        self.published = PublishedSection(desk, links, theme)
        self.training = TrainingPage(desk.training, desk.shelf, theme)
        self.model = CalmComboBox()
        self.model.setAccessibleName("Model")
        self.model.setPlaceholderText("Choose a model")
        self.model.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.model.setMaximumWidth(400)
        self.load = push_button("Load", "", desk.shelf.load_chosen)
        self.train = push_button("Train a drafter…", "", self.show_training)
        self.note = ThemedLabel(theme, "", "success", wraps=True)
        margins = (LARGE, SMALL, LARGE, SMALL)
        bar = row(PlainLabel("Drafters for"), (self.model, 3), self.load, None, self.train, margins=margins)
        inner, self._list, self._stack = QWidget(), QWidget(), QStackedWidget()
        inner.setMaximumWidth(_WIDEST)
        margins = (LARGE, MEDIUM, LARGE, LARGE)
        column(self.note, self.installed, self.published, None, within=inner, spacing=MEDIUM, margins=margins)
        column(bar, Separator(theme), (scrolled(inner), 1), within=self._list, spacing=0)
        for page in (self._list, self.training):
            self._stack.addWidget(page)
        column(self._stack, within=self)
        self.model.activated.connect(self._choose)
        self.training.left.connect(self.show_drafters)
        for changed in (desk.shelf.changed, desk.training.changed):
            changed.connect(self._show_state)
        desk.training.taken.connect(self._on_taken)
        self._show_state()

    def showEvent(self, event: QShowEvent) -> None:
        """Search this machine again: something may have been downloaded."""
        super().showEvent(event)
        self._shelf.look()

    def show_training(self) -> None:
        """Show the training, or the form to start one."""
        self._stack.setCurrentWidget(self.training)
        self.training.back.setFocus()

    def show_drafters(self) -> None:
        """Show the list."""
        self._shelf.look()
        self._stack.setCurrentWidget(self._list)
        self.train.setFocus()

    def _choose(self) -> None:
        self._hub.forget()
        self.installed.show_outcome("")
        self._taken = ""
        self._shelf.choose(self.model.currentData())

    def _show_models(self) -> None:
        """List the loaded model and the others."""
        shelf, chosen = self._shelf, self._shelf.chosen
        models = [*([shelf.loaded] if shelf.loaded else []), *shelf.others]
        if models != self._models:
            self._models = models
            self.model.clear()
            for each in models:
                self.model.addItem(f"{each.name} (loaded)" if each.is_loaded else each.name, each)
        places = (place for place, each in enumerate(models) if chosen is not None and each.model == chosen.model)
        self.model.setCurrentIndex(next(places, -1))
        self.model.setEnabled(bool(models))

    def _show_state(self) -> None:
        self._show_models()
        chosen, state, order = self._shelf.chosen, self._training.state, self._training.order
        self.load.setVisible(chosen is not None and not chosen.is_loaded)
        going = order is not None and state in _STATES
        self.train.setText("Show training…" if going else "Train a drafter…")
        self.train.setEnabled(going or (chosen is not None and state is TrainingState.NOTHING))
        training = f"The training of a drafter for {order.name} {_STATES[state]}." if order and going else ""
        self.note.set_color("muted" if training else "success")
        self.note.say(training or self._taken)

    def _on_taken(self, drafter: str, model: str) -> None:
        """Make the model use the drafter that was trained for it."""
        self._taken = f"{Path(drafter).name} drafts from the next reply on."
        loaded = self._shelf.loaded
        if loaded is not None and str(loaded.path) == model:
            self._shelf.use(drafter)
        else:
            self._shelf.prefer(drafter, model)
        self.show_drafters()
        self._show_state()
