"""The Drafters page: drafters on this machine and on the hub for one model, and training."""

from pathlib import Path

from PySide6.QtCore import QSignalBlocker
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from rdchat.services.models.models_desk import ModelsDesk
from rdchat.services.models.training.training_control import TrainingState
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme
from rdchat.ui.models.drafters.installed_section import InstalledSection
from rdchat.ui.models.drafters.published_section import PublishedSection
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
        desk: What the window works with.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._hub, self._training = desk.shelf, desk.hub_drafters, desk.training
        self._theme = theme
        self.installed = InstalledSection(desk, theme)
        self.published = PublishedSection(desk.hub_drafters, desk.shelf, theme)
        self.training = TrainingPage(desk.training, desk.shelf, theme)
        self.model = CalmComboBox()
        self.model.setAccessibleName("Model")
        self.model.setPlaceholderText("Choose a model")
        self.model.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.model.setMaximumWidth(400)
        self.load, self.train = push_button("Load", ""), push_button("Train a drafter…", "")
        self.note = ThemedLabel(theme, "", "success", wraps=True)
        self._stack = QStackedWidget()
        self._list = self._build_list()
        self._stack.addWidget(self._list)
        self._stack.addWidget(self.training)
        column(self._stack, within=self, spacing=-1)
        self._connect()
        self._fill_models()
        self._show_state()

    def _build_list(self) -> QWidget:
        bar = row(
            PlainLabel("Drafters for"),
            (self.model, 3),
            self.load,
            None,
            self.train,
            margins=(LARGE, SMALL, LARGE, SMALL),
        )
        inner = QWidget()
        inner.setMaximumWidth(_WIDEST)
        column(
            self.note,
            self.installed,
            self.published,
            None,
            within=inner,
            spacing=MEDIUM,
            margins=(LARGE, MEDIUM, LARGE, LARGE),
        )
        area = scrolled(inner)
        page = QWidget()
        column(bar, Separator(self._theme), (area, 1), within=page, spacing=0)
        return page

    def _connect(self) -> None:
        shelf, training = self._shelf, self._training
        self.model.activated.connect(self._choose)
        self.load.clicked.connect(shelf.load_chosen)
        self.train.clicked.connect(self.show_training)
        self.training.left.connect(self.show_drafters)
        self.training.race_requested.connect(shelf.race_requested)
        shelf.models_changed.connect(self._fill_models)
        shelf.changed.connect(self._show_state)
        training.changed.connect(self._show_state)
        training.taken.connect(self._on_taken)

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

    def _fill_models(self) -> None:
        shelf, chosen = self._shelf, self._shelf.chosen
        with QSignalBlocker(self.model):
            self.model.clear()
            if loaded := shelf.loaded:
                self.model.addItem(f"{loaded.name} (loaded)", None)
            for each in shelf.others:
                self.model.addItem(each.name, each)
                if chosen is not None and not chosen.is_loaded and each.model == chosen.model:
                    self.model.setCurrentIndex(self.model.count() - 1)
            if chosen is None or chosen.is_loaded:
                self.model.setCurrentIndex(-1 if chosen is None else 0)

    def _choose(self) -> None:
        self._hub.forget()
        self.installed.say_outcome("")
        self.note.setText("")
        self._shelf.choose(self.model.currentData())

    def _show_state(self) -> None:
        chosen, state, order = self._shelf.chosen, self._training.state, self._training.order
        self.model.setEnabled(self.model.count() > 0)
        self.load.setVisible(chosen is not None and not chosen.is_loaded)
        going = order is not None and state in _STATES
        self.train.setText("Show training…" if going else "Train a drafter…")
        self.train.setEnabled(going or (chosen is not None and state is TrainingState.NOTHING))
        if going and order is not None:
            self.note.set_color("muted")
            self.note.setText(f"The training of a drafter for {order.name} {_STATES[state]}.")
        elif self.note.text().startswith("The training"):
            self.note.setText("")
        self.note.setVisible(bool(self.note.text()))

    def _on_taken(self, drafter: str, model: str) -> None:
        """Make the model use the drafter that was trained for it."""
        loaded = self._shelf.loaded
        if loaded is not None and str(loaded.path) == model:
            self._shelf.use(drafter)
        else:
            self._shelf.prefer(drafter, model)
        self.show_drafters()
        self.note.set_color("success")
        self.note.setText(f"{Path(drafter).name} drafts from the next reply on.")
        self.note.setVisible(True)
