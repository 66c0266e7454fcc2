"""Opens windows, questions and file dialogs, and pages and folders in other programs.

`ConsentPause` keeps a question from being answered before it can have been read.
"""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QPoint, QSignalBlocker, Qt, QTimerEvent, QUrl
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QCloseEvent, QDesktopServices, QKeyEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QCheckBox,
    QDialog,
    QFileDialog,
    QLineEdit,
    QMessageBox,
    QWidget,
)

from rdchat import host
from rdchat.errors import StorageError, file_errors
from rdchat.files import with_persons_umask
from rdchat.ui.style.labels import message_box
from rdchat.ui.style.theme import TIGHT

# The shortest pause before an answer counts; a longer double click of the system prolongs it.
_SHORTEST_S = 0.5
# The events that begin the pause anew.
_APPEARED = (
    QEvent.Type.Show,
    QEvent.Type.Move,
    QEvent.Type.ParentChange,
    QEvent.Type.DevicePixelRatioChange,
    # The window came to the front, or what stood above it went.
    QEvent.Type.WindowActivate,
    QEvent.Type.WindowUnblocked,
    QEvent.Type.Expose,
)
_CLICKS = (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonDblClick)
_KEYS = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space, Qt.Key.Key_Select)
FileMode = QFileDialog.FileMode
SHOW_FOLDER = "Show in Finder" if host.MACOS else "Open Folder"
"""Text of the button that calls `show_folder`."""
_OPENABLE = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)


class ConsentPause(QObject):
    """Swallows presses of buttons that were begun before their question could be read.

    The pause lasts half a second, or as long as a double click if that is longer. It begins when the buttons appear,
    and anew when they move or grow on the screen, and when their window comes to the front or is uncovered: the press
    may be meant for what stood there before.
    A key that repeats never counts. The buttons stay enabled, so the focus and a screen reader's cursor stay on them.
    Escape answers no at any time.

    Args:
        buttons: The answers; in a dialog, the pause also holds for its default button.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, *buttons: QAbstractButton) -> None:
        super().__init__(buttons[0])
        self._begun = self.clock()
        if isinstance(box := buttons[0].window(), QMessageBox):
            # macOS's own dialog would hand on each press.
            box.setOption(QMessageBox.Option.DontUseNativeDialog)
        for button in buttons:
            button.installEventFilter(self)

    @property
    def is_over(self) -> bool:
        """Whether presses count now."""
        return self.clock() - self._begun >= max(_SHORTEST_S, QApplication.doubleClickInterval() / 1000)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Begin the pause anew, or return True for a press to swallow it.

        What moves or appears may be any part around the buttons; what grows must be a button. Presses are swallowed at
        the buttons, and at a dialog, which would hand Return to its default button.
        """
        has_grown = event.type() is QEvent.Type.Resize and isinstance(watched, QAbstractButton)
        if has_grown or event.type() in _APPEARED:
            self._begun = self.clock()
            self._watch(watched)
        elif isinstance(watched, QAbstractButton | QDialog) and _is_press(event):
            return not self.is_over or (isinstance(event, QKeyEvent) and event.isAutoRepeat())
        elif isinstance(watched, QAbstractButton) and isinstance(event, QTimerEvent) and not self.is_over:
            # For a screen reader's press, Qt draws the button as pressed, and emits `clicked` when a timer ends. The
            # timer's event is handled with the signals blocked: the button is released, and nothing is clicked.
            with QSignalBlocker(watched):
                return watched.event(event)
        return False

    def _watch(self, part: QObject | None) -> None:
        """Watch a part and all that it stands in: it moves and appears with them."""
        while isinstance(part, QWidget):
            part.installEventFilter(self)
            # The event of being uncovered goes to a window's handle, not to the widget.
            part = part.windowHandle() if part.isWindow() else part.parentWidget()
        if part is not None:
            part.installEventFilter(self)


def _is_press(event: QEvent) -> bool:
    is_key = isinstance(event, QKeyEvent) and event.key() in _KEYS
    return event.type() in _CLICKS or (is_key and event.type() is QEvent.Type.KeyPress)


# Windows


class SideWindow(QDialog):
    """A window beside the main one. Escape acts like its close button, unless `reject` does something else.

    Args:
        title: Its title.
        size: Its first width and height, in pixels.
        smallest: The smallest width and height, in pixels.
        parent: The window closes with it, and stays above it except on macOS.

    Attributes:
        search: The search field that Find goes to; None if the window has none.
    """

    search: QLineEdit | None = None

    def __init__(self, title: str, size: tuple[int, int], smallest: tuple[int, int], parent: QWidget | None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle(title)
        self.setMinimumSize(*smallest)
        self.resize(*size)

    def event(self, event: QEvent) -> bool:
        """Keep Escape for closing: in the menus it stops a reply.

        The main window watches this one's handle too, since the engine's idle work waits while no window can be seen.
        """
        if event.type() is QEvent.Type.Show and (main := self.parent()) is not None:
            self.windowHandle().installEventFilter(main)
        if event.type() is QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            event.setAccepted(event.key() == Qt.Key.Key_Escape)
            return event.isAccepted()
        return super().event(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        event.accept()  # QDialog's own would call `reject`

    def reject(self) -> None:
        self.close()


def show_in_front(window: QWidget) -> None:
    """Show a window over the others, even if it is minimised, and give it the keyboard."""
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
    window.show()
    window.raise_()
    window.activateWindow()


def open_beside(popup: QWidget, button: QWidget, *, below: bool = False) -> None:
    """Show a popup inside the screen, above a button or below it where there is no room.

    Args:
        popup: The popup.
        button: The button.
        below: Whether to show it below in any case, with the right sides of both in line.
    """
    popup.adjustSize()
    corner = button.mapToGlobal(QPoint(0, -popup.height() - TIGHT))
    room = button.screen().availableGeometry().adjusted(TIGHT, TIGHT, -TIGHT, -TIGHT)
    if below or corner.y() < room.top():
        left = button.width() - popup.width() if below else 0
        corner = button.mapToGlobal(QPoint(left, button.height() + TIGHT))
    corner.setX(max(room.left(), min(corner.x(), room.right() - popup.width())))
    corner.setY(max(room.top(), min(corner.y(), room.bottom() - popup.height())))
    popup.move(corner)
    popup.show()


def announce(widget: QWidget) -> None:
    """Have a screen reader read the widget's accessible description."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, widget.accessibleDescription()))


# Dialogs: they do not block, and delete themselves when closed


def ask(
    parent: QWidget,
    question: str,
    detail: str,
    answer: str,
    then: Callable[[], object],
    *,
    leave: str = "Cancel",
    removes: bool = False,
    option: QCheckBox | None = None,
) -> QMessageBox:
    """Ask whether to do something, after a pause for reading; Return and Escape answer no.

    Args:
        parent: The window of the question.
        question: The question, in one line.
        detail: What the answer leads to.
        answer: The text of the button for yes.
        then: Called after yes.
        leave: The text of the button for no.
        removes: Whether data is lost by it.
        option: Shown above the buttons.
    """
    box = message_box(QMessageBox.Icon.Question, question, detail, parent=parent)
    if option is not None:
        box.setCheckBox(option)
    role = QMessageBox.ButtonRole
    do = box.addButton(answer, role.DestructiveRole if removes else role.AcceptRole)
    keep = box.addButton(leave, role.RejectRole)
    box.setDefaultButton(keep)
    box.setEscapeButton(keep)
    do.clicked.connect(then)
    ConsentPause(do, keep)
    box.open()
    return box


def ask_to_open(
    parent: QWidget,
    title: str,
    mode: FileMode,
    chosen: Callable[[list[str]], object],
    filters: Sequence[str] = (),
    *,
    accept: str = "",
    folder: str = "",
) -> QFileDialog:
    """Ask for files or a folder.

    Args:
        parent: The dialog opens in front of this window.
        title: The dialog's title.
        mode: Whether one file, several or a folder may be chosen.
        chosen: Called with the paths, unless the person cancels.
        filters: Name filters, such as `Text (*.txt)`.
        accept: The text of the button; empty for the system's.
        folder: The folder where the dialog begins; empty for the home folder.
    """
    dialog = _dialog(parent, title, folder or str(Path.home()), filters, accept)
    dialog.setFileMode(mode)
    dialog.filesSelected.connect(chosen)
    dialog.open()
    return dialog


def ask_to_save(
    parent: QWidget,
    title: str,
    name: str,
    filters: Sequence[str],
    chosen: Callable[[str], object],
    *,
    accept: str = "",
) -> QFileDialog:
    """Ask where to save a file.

    Args:
        parent: The dialog opens in front of this window.
        title: The dialog's title.
        name: The suggested name, with the ending of the first filter.
        filters: Name filters, such as `CSV (*.csv)`; the selected one gives names without an ending its ending.
        chosen: Called with the path, unless the person cancels.
        accept: The text of the button; empty for the system's.
    """
    dialog = _dialog(parent, title, str(Path.home() / name), filters, accept)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(Path(name).suffix)
    dialog.filterSelected.connect(lambda kind: dialog.setDefaultSuffix(kind.rpartition("*.")[2].rstrip(")")))
    dialog.fileSelected.connect(chosen)
    dialog.open()
    return dialog


def ask_to_save_content(
    parent: QWidget, title: str, name: str, filters: Sequence[str], content: Callable[[], str | bytes]
) -> QFileDialog:
    """Ask where to save something, and write it there, text in UTF-8; a message box reports an error.

    Args:
        parent: As for `ask_to_save`, like the next three.
        title: The dialog's title.
        name: The suggested name.
        filters: Name filters.
        content: Returns the text or bytes, when the person has chosen the file.
    """

    def write(path: str) -> None:
        try:
            with file_errors(f"{Path(path).name} cannot be written", "Choose another folder or name."):
                written = content()
                Path(path).write_bytes(written.encode() if isinstance(written, str) else written)
        except StorageError as error:
            # Not logged: the person chose the name.
            message_box(QMessageBox.Icon.Warning, error.message, error.hint, title=title, parent=parent).open()

    return ask_to_save(parent, title, name, filters, write)


def _dialog(parent: QWidget, title: str, start: str, filters: Sequence[str], accept: str) -> QFileDialog:
    dialog = QFileDialog(parent, title, start)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setNameFilters(filters)
    if accept:
        dialog.setLabelText(QFileDialog.DialogLabel.Accept, accept)
    return dialog


# Other programs


def show_folder(path: Path) -> None:
    """Open a folder, or the folder of a file, in the system's file manager."""
    folder = path if path.is_dir() else path.parent
    folder.mkdir(parents=True, exist_ok=True)
    open_address(QUrl.fromLocalFile(str(folder)))


def is_openable(address: str) -> bool:
    """Return whether a click may open the address: web and mail addresses only, never `javascript:` or `file:`."""
    return _OPENABLE.match(address) is not None


def open_page(address: str) -> None:
    """Open a web page in the browser, after a click."""
    if is_openable(address):
        open_address(QUrl(address))


def open_address(address: QUrl) -> None:
    """Open an address with the person's umask: the other program writes files of its own."""
    with with_persons_umask():
        QDesktopServices.openUrl(address)
