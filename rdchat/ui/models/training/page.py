"""The training page: the form, the progress or the result of the app's one training."""

from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QStackedWidget, QWidget

from rdchat.inference.api.requests import Mode
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
    """Shows one of three views, by the state of the training.

    Args:
        training: The app's one training.
        shelf: The chosen model, which a training is for.
        theme: The appearance to follow.
    """

    left = Signal()  # back to the drafters

    def __init__(self, training: TrainingControl, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._training, self._shelf = training, shelf
        self.order = OrderView(training, shelf, theme)
        self.progress = ProgressView(training, self._ask_to_discard, theme)
        self.result = ResultView(training, self._ask_to_discard, self._race, theme)
        self.back = IconButton("previous", "Back to the drafters", theme)
        self.back.clicked.connect(self.left)
        self.heading = ElidedLabel(theme, "", bold=True)
        self._views = QStackedWidget()
        for view in (self.order, self.progress, self.result):
            self._views.addWidget(view)
        bar = row(self.back, (self.heading, 1), margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(bar, Separator(theme), (self._views, 1), within=self, spacing=0)
        QShortcut(QKeySequence.StandardKey.Back, self, self.left.emit)
        for changed in (training.changed, shelf.changed):
            changed.connect(self._show_state)
        self._show_state()

    def _show_state(self) -> None:
        order, chosen, record = self._training.order, self._shelf.chosen, self._training.record
        if self._training.state is TrainingState.NOTHING or order is None:
            self._turn_to(self.order, self.order.start)
        elif self._training.comparison is None:
            self._turn_to(self.progress, self.progress.pause)
        else:
            self._turn_to(self.result, self.result.use)
        model = order or chosen
        self.heading.setText(f"Train a drafter for {model.name}" if model else "Train a drafter")
        loaded = self._shelf.loaded
        same = record is not None and loaded is not None and str(loaded.path) == record.model_folder
        self.result.offer_race(same)

    def _turn_to(self, view: QWidget, focused: QWidget) -> None:
        """Show a view; its `focused` widget gets the keyboard focus if the view before it had it."""
        before, focus = self._views.currentWidget(), QApplication.focusWidget()
        self._views.setCurrentWidget(view)
        if before and focus and view is not before and before.isAncestorOf(focus):
            focused.setFocus()

    def _ask_to_discard(self) -> None:
        words = "The drafter and the data that was made for it are removed. This cannot be undone."
        ask(self, "Discard this training?", words, "Discard", self._training.discard, leave="Keep", removes=True)

    def _race(self) -> None:
        drafter = str(self._training.folder / DRAFTER)
        self._shelf.race_requested.emit(replace(self._shelf.settings, mode=Mode.DRAFTER, drafter=drafter))
