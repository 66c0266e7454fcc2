"""The sheet that exports, imports and backups are done in: one page at a time, as high as that page."""

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from rdchat.chat.transfer.reports import Progress
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme

_WIDTH = 440
_STEPS = 1000
_WAIT_MS = 400  # what is done sooner shows no progress


class Page(QWidget):
    """A title, words below it, widgets, and a row of buttons.

    Args:
        theme: The appearance to follow.
        title: What it is about, or a question.
        text: Words below.
    """

    def __init__(self, theme: Theme, title: str, text: str = "") -> None:
        super().__init__()
        self.title, self.text = title, text
        self.setFixedWidth(_WIDTH)
        head = ThemedLabel(theme, title, points_more=2, bold=True)
        head.setWordWrap(True)
        self._body = QVBoxLayout()
        self._body.setSpacing(SMALL)
        self._row = QHBoxLayout()
        self._row.setSpacing(SMALL)
        self._row.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SMALL)
        layout.addWidget(head)
        if text:
            words = ThemedLabel(theme, text, "muted")
            words.setWordWrap(True)
            words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            layout.addWidget(words)
        layout.addLayout(self._body)
        layout.addSpacing(MEDIUM)
        layout.addLayout(self._row)

    def add(self, widget: QWidget) -> None:
        """Add a widget below those that are there."""
        self._body.addWidget(widget)

    def add_gap(self) -> None:
        self._body.addSpacing(SMALL)

    def add_button(
        self, text: str, act: Callable[[], object], *, default: bool = False, left: bool = False
    ) -> QPushButton:
        """Add a button, at the right of those that are there or at the left end of the row."""
        button = QPushButton(text)
        button.setAutoDefault(default)
        button.setDefault(default)
        button.clicked.connect(lambda _checked: act())
        if left:
            self._row.insertWidget(0, button)
        else:
            self._row.addWidget(button)
        return button


class ProgressPage(Page):
    """Where long work stands, and a way to stop it."""

    def __init__(self, theme: Theme, title: str, cancel: Callable[[], object]) -> None:
        super().__init__(theme, title)
        self.words = ElidedLabel(theme, "Beginning…", "muted")
        self.bar = QProgressBar(textVisible=False, maximum=0)
        self.bar.setAccessibleName(title)
        self.add(self.bar)
        self.add(self.words)
        self._cancel = self.add_button("Cancel", cancel)

    def show_cancelling(self) -> None:
        """Show that it is being stopped."""
        self._cancel.setEnabled(False)
        self.bar.setMaximum(0)
        self.words.setText("Taking back what was done…")

    def show_progress(self, progress: Progress) -> None:
        """Show how far it is."""
        if not self._cancel.isEnabled():
            return
        self.words.setText(f"{progress.words}…")
        known = progress.fraction is not None
        self.bar.setMaximum(_STEPS if known else 0)
        self.bar.setValue(round((progress.fraction or 0.0) * _STEPS))


class Sheet(QDialog):
    """Shows one page; Escape does what its Cancel would.

    Args:
        parent: The window that it belongs to.
    """

    escaped = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Sheet)
        self.setObjectName("transfer")
        self.setModal(True)
        self.page: Page | None = None
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        self._layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)
        self._later = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._later.timeout.connect(self.open)

    def show_page(self, page: Page, *, later: bool = False) -> None:
        """Show a page in the place of the last one.

        Args:
            page: The page.
            later: Whether a sheet that is not open waits a moment, as the page may not be needed.
        """
        if self.page is not None:
            self._layout.removeWidget(self.page)
            self.page.hide()
            self.page.deleteLater()
        self.page = page
        self._layout.addWidget(page)
        page.show()
        self.setWindowTitle(page.title)
        self.setAccessibleName(page.title)
        self.setAccessibleDescription(page.text)
        if later and not self.isVisible():
            self._later.start()
        else:
            self._later.stop()
            self.open()

    def finish(self) -> None:
        """Close the sheet, or never open it."""
        self._later.stop()
        self.hide()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        else:
            super().keyPressEvent(event)

    def reject(self) -> None:
        self.escaped.emit()
