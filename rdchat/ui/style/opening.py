"""Opens windows, questions and file dialogs, and pages and folders in other programs."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QPoint, Qt, QUrl
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QCloseEvent,
    QDesktopServices,
    QKeyEvent,
    QKeySequence,
    QShortcut,
)
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QFileDialog,
    QLineEdit,
    QMessageBox,
    QTabBar,
    QWidget,
)

from rdchat import host
from rdchat.errors import StorageError, file_errors
from rdchat.files import with_persons_umask
from rdchat.ui.style.consent_pause import ConsentPause
from rdchat.ui.style.labels import message_box
from rdchat.ui.style.theme import TIGHT

FileMode = QFileDialog.FileMode
# Qt's name of the Control key, which turns pages on a Mac too.
_CONTROL = "Meta" if host.MACOS else "Ctrl"
SHOW_FOLDER = "Show in Finder" if host.MACOS else "Open Folder"
"""Text of the button that calls `show_folder`."""
_OPENABLE = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)


# Windows


class SideWindow(QDialog):
    """A window beside the main one.

    Escape acts like its close button, unless `reject` does something else. Ctrl-Tab turns its pages, if it has some.

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
        for keys, step in (("Tab", 1), ("Shift+Tab", -1)):
            QShortcut(QKeySequence(f"{_CONTROL}+{keys}"), self, partial(self._turn_page, step))

    def _turn_page(self, step: int) -> None:
        """Go to the next page, or to the one before; after the last comes the first."""
        tabs = next(filter(QWidget.isVisible, self.findChildren(QTabBar)), None)
        if tabs is not None:
            tabs.setCurrentIndex((tabs.currentIndex() + step) % tabs.count())

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
    ConsentPause(dialog)
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
