"""The sheet for exports, imports and backups. It shows one page at a time and is as high as that page."""

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QProgressBar, QPushButton, QVBoxLayout, QWidget

from rdchat.chat.transfer.reports import Progress
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import LARGE, MEDIUM, Theme

_WIDTH = 440
_STEPS = 1000
_WAIT_MS = 400  # work that ends sooner shows no progress


class Page(QWidget):
    """A title, a text, widgets, and a row of buttons.

    Args:
        theme: The appearance to follow.
        title: The subject, or a question.
        text: Shown below the title.
        escape: What Escape does.
    """

    def __init__(self, theme: Theme, title: str, text: str = "", *, escape: Callable[[], object]) -> None:
        super().__init__()
        self.title, self.text, self.escape = title, text, escape
        self.setFixedWidth(_WIDTH)
        self._body = column()
        self._buttons = row(None)
        head = [ThemedLabel(theme, title, points_more=2, bold=True, wraps=True)]
        if text:
            head.append(ThemedLabel(theme, text, "muted", wraps=True, selectable=True))
        column(*head, self._body, MEDIUM, self._buttons, within=self)

    def add(self, widget: QWidget, *, gap: int = 0) -> None:
        """Add a widget below the others, with some more space above it."""
        self._body.addSpacing(gap)
        self._body.addWidget(widget)

    def add_button(
        self, text: str, act: Callable[[], object], *, default: bool = False, left: bool = False
    ) -> QPushButton:
        """Add a button to the right of the others, or at the left end of the row."""
        button = QPushButton(text)
        button.setAutoDefault(default)
        button.setDefault(default)
        button.clicked.connect(lambda _checked: act())
        self._buttons.insertWidget(0 if left else self._buttons.count(), button)
        return button


class ProgressPage(Page):
    """Shows the progress of work, which can be cancelled."""

    def __init__(self, theme: Theme, title: str, cancel: Callable[[], object]) -> None:
        super().__init__(theme, title, escape=self._cancel)
        self._cancel_work = cancel
        self.words = ElidedLabel(theme, "Beginning…", "muted")
        self.bar = QProgressBar(textVisible=False, maximum=0)
        self.bar.setAccessibleName(title)
        self.add(self.bar)
        self.add(self.words)
        self._button = self.add_button("Cancel", self._cancel)

    def show_progress(self, progress: Progress) -> None:
        """Show how far the work is."""
        if not self._button.isEnabled():
            return
        self.words.setText(f"{progress.words}…")
        known = progress.fraction is not None
        self.bar.setMaximum(_STEPS if known else 0)
        self.bar.setValue(round((progress.fraction or 0.0) * _STEPS))

    def _cancel(self) -> None:
        self._button.setEnabled(False)
        self.bar.setMaximum(0)
        self.words.setText("Undoing what was done…")
        self._cancel_work()


class Sheet(QDialog):
    """Shows one page.

    Args:
        parent: The window of the sheet.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Sheet)
        self.setObjectName("transfer")
        self.setModal(True)
        self.page: Page | None = None
        self._layout = column(within=self, margins=LARGE)
        self._layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)
        self._later = QTimer(self, singleShot=True, interval=_WAIT_MS)
        self._later.timeout.connect(self.open)

    def show_page(self, page: Page, *, later: bool = False) -> None:
        """Show a page in place of the last one.

        Args:
            page: The page.
            later: Whether a closed sheet waits a moment before it opens, since the work may end sooner.
        """
        self._remove_page()
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
        """Close the sheet, or do not open it at all."""
        self._later.stop()
        self.hide()
        self._remove_page()

    def _remove_page(self) -> None:
        if self.page is not None:
            self._layout.removeWidget(self.page)
            self.page.hide()
            self.page.deleteLater()
            self.page = None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.reject()
        else:
            super().keyPressEvent(event)

    def reject(self) -> None:
        if self.page is not None:
            self.page.escape()
