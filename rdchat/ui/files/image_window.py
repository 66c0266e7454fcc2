"""A window that shows the images of a chat, one at a time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QRect, QSize, Qt
from PySide6.QtGui import QGuiApplication, QImage, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.errors import RdchatError, file_errors
from rdchat.services.background.background_work import MainThread
from rdchat.ui.files.chips import NO_LIMIT, PICTURES, Picture, ask, drawn, size_text
from rdchat.ui.style.buttons import IconButton
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import SideWindow, announce, ask_to_save
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.work.job import Job

_SMALLEST = QSize(420, 320)
_UNKNOWN = QSize(800, 600)
# The share of the screen that the window takes at most when it opens.
_SHARE = 0.8
_BAR = 60
_Key = QKeySequence.StandardKey


class PictureView(QWidget):
    """An image in the middle of its room, never larger than it is, or a line in its place.

    Args:
        theme: The appearance to follow.
        copy: Called by the menu's Copy while it has the keyboard.
    """

    def __init__(self, theme: Theme, copy: Callable[[], object]) -> None:
        super().__init__()
        self._theme = theme
        self.copy = copy
        self.image = QImage()
        self._size = QSize()
        self._text = ""
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_image(self, image: QImage, size: QSize, text: str = "") -> None:
        """Show an image as if it had a size in pixels; without one, show a text."""
        self.image = image
        self._size = size
        self._text = text
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self.image.isNull():
            painter.setPen(self._theme.colors.muted)
            area = self.rect().adjusted(LARGE, LARGE, -LARGE, -LARGE)
            painter.drawText(area, Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, self._text)
            return
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        position = QRect()
        position.setSize(self._size.scaled(self.size(), Qt.AspectRatioMode.KeepAspectRatio).boundedTo(self._size))
        position.moveCenter(self.rect().center())
        painter.drawImage(position, self.image)
        painter.setPen(self._theme.colors.border)
        painter.drawRect(position.adjusted(0, 0, -1, -1))


class ImageWindow(SideWindow):
    """Shows an image, and goes to the others of its chat by the arrow keys; copies and saves it without metadata.

    Args:
        picture: The image.
        find: Returns all images of the chat; called on a thread.
        seen_size: Returns the size at which the model sees an image, None if it does not; called on a thread.
        theme: The appearance to follow.
        parent: The window closes with it.
    """

    def __init__(
        self,
        picture: Picture,
        find: Callable[[], Sequence[Picture]],
        seen_size: Callable[[Picture], tuple[int, int] | None],
        theme: Theme,
        parent: QWidget,
    ) -> None:
        screen = parent.screen()
        self._largest = screen.availableSize()
        known = _UNKNOWN if picture.size.isEmpty() else picture.size
        fitting = known.scaled(self._largest * _SHARE, Qt.AspectRatioMode.KeepAspectRatio)
        size = (fitting.boundedTo(known) + QSize(2 * LARGE, _BAR + LARGE)).expandedTo(_SMALLEST)
        super().__init__(picture.name, size.toTuple(), _SMALLEST.toTuple(), parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._main = MainThread(self)
        self._pictures = [picture]
        self._index = 0
        self._seen_size = seen_size
        self._seen = ""
        self.view = PictureView(theme, self.copy)
        self.name = ElidedLabel(theme, bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.detail = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
        self.previous = IconButton("previous", "Previous image", theme, act=lambda: self.show_other(-1))
        self.next = IconButton("next", "Next image", theme, act=lambda: self.show_other(1))
        self.copy_button = IconButton("copy", "Copy the image", theme, act=self.copy)
        self.save_button = IconButton("save", "Save the image…", theme, act=self.save_image)
        texts = column(self.name, self.detail, spacing=1)
        buttons = row(self.copy_button, self.save_button, spacing=TIGHT)
        bar = row(self.previous, self.next, SMALL, (texts, 1), buttons, spacing=TIGHT, margins=(SMALL, 0, SMALL, SMALL))
        column((self.view, 1), bar, within=self, spacing=SMALL, margins=(MEDIUM, MEDIUM, MEDIUM, 0))
        QShortcut(QKeySequence.StandardKey.MoveToPreviousChar, self, lambda: self.show_other(-1))
        QShortcut(QKeySequence.StandardKey.MoveToNextChar, self, lambda: self.show_other(1))
        self.view.setFocus()
        self._show()
        PICTURES.do(lambda _job: find(), self._main.bring(self._show_among, once=True))

    @property
    def picture(self) -> Picture:
        """The image that is shown."""
        return self._pictures[self._index]

    def show_other(self, steps: int) -> None:
        """Go to another image; nothing happens at the ends."""
        if 0 <= (index := self._index + steps) < len(self._pictures):
            self._index = index
            self._show()

    def copy(self) -> None:
        """Copy the image as pixels."""
        ask(self.picture, NO_LIMIT, self._main.bring(self._put_on_clipboard, once=True))

    def save_image(self) -> None:
        """Ask where to save the image, as PNG."""
        name = f"{Path(self.picture.name).stem}.png"
        ask_to_save(self, "Save Image", name, ("PNG (*.png)",), self._save)

    def _save(self, path: str) -> None:
        picture = self.picture

        def write(job: Job[Any]) -> str:
            data = drawn(picture, NO_LIMIT, job)
            with file_errors(f"{Path(path).name} cannot be written", "Choose another folder or name."):
                Path(path).write_bytes(data)
            return f"Saved as {Path(path).name}"

        PICTURES.do(write, self._main.bring(self._report, once=True))

    def _put_on_clipboard(self, outcome: QImage | RdchatError) -> None:
        if isinstance(outcome, QImage):
            QGuiApplication.clipboard().setImage(outcome)
        self._report("Copied" if isinstance(outcome, QImage) else outcome)

    def _report(self, outcome: str | RdchatError) -> None:
        self.detail.show_text(str(outcome), "danger" if isinstance(outcome, RdchatError) else "success")
        self.view.setAccessibleDescription(str(outcome))
        announce(self.view)

    def _show_among(self, pictures: Sequence[Picture] | RdchatError) -> None:
        if not isinstance(pictures, RdchatError) and self.picture in pictures:
            self._index = pictures.index(self.picture)
            self._pictures = list(pictures)
            self._show_place()

    def _show(self) -> None:
        picture = self.picture
        self.setWindowTitle(picture.name)
        self.name.setText(picture.name)
        self.view.setAccessibleName(f"Image {picture.name}, {picture.size_text}")
        self.view.show_image(QImage(), picture.size, "Reading…")
        self._seen = ""
        seen_size = self._seen_size
        self._show_place()
        PICTURES.do(lambda _job: (picture, seen_size(picture)), self._main.bring(self._show_seen, once=True))
        take = self._main.bring(lambda outcome: self._take(picture, outcome), once=True)
        ask(picture, self._largest * self.devicePixelRatioF(), take)

    def _show_seen(self, seen: tuple[Picture, tuple[int, int] | None] | RdchatError) -> None:
        if isinstance(seen, tuple) and seen[0] is self.picture and seen[1] is not None:
            self._seen = f"  ·  The model sees {size_text(*seen[1])}"
            self._show_place()

    def _show_place(self) -> None:
        count = len(self._pictures)
        position = f"{self._index + 1} of {count}  ·  " if count > 1 else ""
        self.detail.show_text(f"{position}{self.picture.size_text}{self._seen}", "muted")
        for button, is_there in ((self.previous, self._index > 0), (self.next, self._index < count - 1)):
            button.setVisible(count > 1)
            button.setEnabled(is_there)

    def _take(self, picture: Picture, outcome: QImage | RdchatError) -> None:
        if picture is self.picture:
            image, problem = (QImage(), str(outcome)) if isinstance(outcome, RdchatError) else (outcome, "")
            self.view.show_image(image, image.size() if picture.size.isEmpty() else picture.size, problem)
            self.view.setAccessibleDescription(problem)

    def event(self, event: QEvent) -> bool:
        """Keep Copy and Save from the menus: there they belong to the main window."""
        if (
            isinstance(event, QKeyEvent)
            and event.type() is QEvent.Type.ShortcutOverride
            and any(map(event.matches, (_Key.Copy, _Key.Save)))
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(_Key.Copy):
            self.copy()
        elif event.matches(_Key.Save):
            self.save_image()
        else:
            super().keyPressEvent(event)
