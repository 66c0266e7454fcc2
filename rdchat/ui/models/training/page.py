"""The training page: the form, the progress or the result of the app's one training."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QStackedWidget, QWidget

from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.api.training import DRAFTER
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.labels import ElidedLabel, Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import ask
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.training.order_view import OrderView
from rdchat.ui.models.training.progress_view import ProgressView
from rdchat.ui.models.training.result_view import ResultView


class TrainingPage(QWidget):
    """One of three views, by the state of the training.

    Args:
        training: The app's one training.
        shelf: Knows for which model.
        theme: The appearance to follow.
    """

    left = Signal()  # back to the drafters
    race_requested = Signal(DraftSettings)

    def __init__(self, training: TrainingControl, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._training, self._shelf = training, shelf
        self.order = OrderView(training, shelf, theme)
        self.progress = ProgressView(training, theme)
        self.result = ResultView(training, theme)
        self.back = IconButton("previous", "Back to the drafters", theme)
        self.heading = ElidedLabel(theme, "", bold=True)
        self._views = QStackedWidget()
        self._first: dict[QWidget, QWidget] = {
            self.order: self.order.start,
            self.progress: self.progress.pause,
            self.result: self.result.use,
        }
        for view in (self.order, self.progress, self.result):
            self._views.addWidget(view)
        bar = row(self.back, (self.heading, 1), margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(bar, Separator(theme), (self._views, 1), within=self, spacing=0)
        self.back.clicked.connect(self.left)
        self.progress.discard_requested.connect(self.ask_to_discard)
        self.result.discard_requested.connect(self.ask_to_discard)
        self.result.race_requested.connect(self._race)
        QShortcut(QKeySequence.StandardKey.Back, self, self.left.emit)
        training.changed.connect(self._show_state)
        shelf.changed.connect(self._show_state)
        self._show_state()

    def ask_to_discard(self) -> None:
        """Ask whether to end the training and remove its files."""
        words = "The drafter and the data that was made for it are removed. This cannot be undone."
        ask(self, "Discard this training?", words, "Discard", self._training.discard, leave="Keep", removes=True)

    def _show_state(self) -> None:
        state, order, chosen = self._training.state, self._training.order, self._shelf.chosen
        if state is TrainingState.NOTHING or order is None:
            view: QWidget = self.order
            name = chosen.name if chosen else ""
        else:
            finished = self._training.comparison is not None
            view, name = self.result if finished else self.progress, order.name
        self.heading.setText(f"Train a drafter for {name}" if name else "Train a drafter")
        self._turn_to(view)
        self.result.offer_race(self._is_loaded())

    def _turn_to(self, view: QWidget) -> None:
        """Show a view; the keyboard focus moves with it."""
        before, focused = self._views.currentWidget(), QApplication.focusWidget()
        self._views.setCurrentWidget(view)
        if before and focused and view is not before and before.isAncestorOf(focused):
            self._first[view].setFocus()

    def _is_loaded(self) -> bool:
        record, loaded = self._training.record, self._shelf.loaded
        return record is not None and loaded is not None and str(loaded.path) == record.model_folder

    def _race(self) -> None:
        drafter = str(self._training.folder / DRAFTER)
        self.race_requested.emit(replace(self._shelf.settings, mode=Mode.DRAFTER, drafter=drafter))
