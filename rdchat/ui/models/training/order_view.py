"""Choosing what to train, and what it takes, before anything begins."""

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from rdchat.inference.api.training import TrainingOrder
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.training.estimator import Estimator
from rdchat.services.models.training.training_control import TrainingControl, TrainingState
from rdchat.ui.look.formatting import percent
from rdchat.ui.look.labels import Separator, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.scrolling import scrolled
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.training.order_form import OrderForm
from rdchat.ui.models.training.words import LITTLE, LITTLE_TOKENS, estimate_line, estimate_rows

_WIDEST = 620
_HINT = "First see what it takes: rdchat loads the model a second time and measures, for up to a few minutes."
_NO_MODEL = "Load a model first, or choose one that is installed."


class OrderView(QWidget):
    """The form, the estimate below it, and the button that does the next thing.

    Args:
        training: Begins what is chosen.
        estimator: Tells what it takes.
        shelf: Knows for which model.
        theme: The appearance to follow.
    """

    def __init__(self, training: TrainingControl, estimator: Estimator, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._training, self._estimator, self._shelf, self._theme = training, estimator, shelf, theme
        self.form = OrderForm(theme)
        self.status = ThemedLabel(theme, "", "muted")
        self.status.setWordWrap(True)
        self.busy = QProgressBar(textVisible=False, maximum=0)
        self.busy.setFixedHeight(6)
        self.busy.setAccessibleName("Measuring what a training takes")
        self.estimate = QPushButton("Estimate")
        self.start = QPushButton("Start training")
        for button in (self.estimate, self.start):
            button.setAutoDefault(False)
        self._figures = QWidget()
        self._grid = QGridLayout(self._figures)
        self._lay_out()
        self.estimate.clicked.connect(self._press_estimate)
        self.start.clicked.connect(self._press_start)
        self.form.changed.connect(self._on_edited)
        estimator.changed.connect(self.show_state)
        training.changed.connect(self.show_state)
        shelf.changed.connect(self.show_state)
        self.show_state()

    def _lay_out(self) -> None:
        inner = QWidget()
        inner.setMaximumWidth(_WIDEST)
        column = QVBoxLayout(inner)
        column.setContentsMargins(LARGE, MEDIUM, LARGE, LARGE)
        column.setSpacing(MEDIUM)
        column.addWidget(self.form)
        self._heading = ThemedLabel(self._theme, "What it takes", bold=True)
        column.addSpacing(TIGHT)
        column.addWidget(self._heading)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(LARGE)
        self._grid.setVerticalSpacing(TIGHT)
        self._grid.setColumnStretch(2, 1)
        column.addWidget(self._figures)
        self.little = ThemedLabel(self._theme, LITTLE, "warning")
        self.little.setWordWrap(True)
        column.addWidget(self.little)
        column.addStretch(1)
        self._area = area = scrolled(inner)
        words = QVBoxLayout()
        words.setSpacing(TIGHT)
        words.addWidget(self.status)
        words.addWidget(self.busy)
        bar = QHBoxLayout()
        bar.setContentsMargins(LARGE, SMALL, LARGE, MEDIUM)
        bar.setSpacing(SMALL)
        bar.addLayout(words, 1)
        bar.addWidget(self.estimate)
        bar.addWidget(self.start)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(area, 1)
        layout.addWidget(Separator(self._theme))
        layout.addLayout(bar)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_state()

    def order(self) -> TrainingOrder | None:
        """Return what is chosen; None where there is no model to train for."""
        chosen = self._shelf.chosen
        if chosen is None:
            return None
        dtype = self._shelf.dtype if chosen.is_loaded else "auto"
        return self.form.order(
            chosen.model or None, chosen.name, dtype, self._shelf.settings.drafter if chosen.is_loaded else None
        )

    def show_state(self) -> None:
        """Show what can be done now, and what was measured."""
        order, estimator = self.order(), self._estimator
        measuring, estimated = estimator.measuring is not None, estimator.estimated
        known = estimated is not None and estimated[0] == order
        free = self._training.state is TrainingState.NOTHING and order is not None
        self.form.setEnabled(free and not measuring)
        self.estimate.setText("Stop" if measuring else "Estimate")
        self.estimate.setEnabled(free)
        self.start.setEnabled(free and known)
        set_tip(self.start, "" if known else "See what it takes first.")
        if self.isVisible():
            (self.start if known else self.estimate).setDefault(True)
        self.busy.setVisible(measuring)
        self._show_figures()
        problem = estimator.problem or self._training.problem
        if order is None:
            self._say(_NO_MODEL)
        elif measuring:
            self._say(self._measuring_words())
        elif problem:
            self._say(f"{problem} {estimator.hint or self._training.hint}".strip(), "danger")
        else:
            self._say(estimate_line(estimated[1]) if known and estimated is not None else _HINT)

    def _measuring_words(self) -> str:
        news = self._estimator.news
        if news is None:
            return "Starting…"
        return f"{news.words}… {percent(news.fraction)}" if news.fraction is not None else f"{news.words}…"

    def _show_figures(self) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if widget := item.widget():
                widget.deleteLater()
        told = self._estimator.estimated
        known = told is not None and told[0] == self.order()
        for part in (self._heading, self._figures):
            part.setVisible(known)
        self.little.setVisible(known and told is not None and told[1].tokens < LITTLE_TOKENS)
        if told is None or not known:
            return
        QTimer.singleShot(0, self, lambda: self._area.ensureWidgetVisible(self._figures))  # once it has its size
        for row, (name, figure, words) in enumerate(estimate_rows(*told)):
            self._grid.addWidget(ThemedLabel(self._theme, name, "muted"), row, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(
                ThemedLabel(self._theme, figure, bold=True, tabular=True), row, 1, Qt.AlignmentFlag.AlignTop
            )
            explanation = ThemedLabel(self._theme, words, "muted", -1)
            explanation.setWordWrap(True)
            self._grid.addWidget(explanation, row, 2)

    def _press_estimate(self) -> None:
        order = self.order()
        if self._estimator.measuring is not None:
            self._estimator.cancel()
        elif order is not None:
            self._estimator.measure(order)

    def _press_start(self) -> None:
        if (order := self.order()) is not None:
            self._estimator.forget()
            self._training.start(order)

    def _on_edited(self) -> None:
        self._estimator.forget()
        self.show_state()

    def _say(self, words: str, color: str = "muted") -> None:
        self.status.set_color(color)
        self.status.setText(words)
