"""The quick window: a small window over other programs, for a question and its answer, which are not stored.

`QuickChat` (in `services`) has the exchange; Open as Chat makes it a chat of the main window.
"""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCursor, QGuiApplication, QKeySequence, QMouseEvent, QPaintEvent, QShortcut
from PySide6.QtWidgets import QVBoxLayout, QWidget

from rdchat import mac_desktop
from rdchat.chat.attachments.kinds import is_image
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.conversation.model_offers import SightLine
from rdchat.ui.files.attaching import FileAttacher
from rdchat.ui.style import (
    LARGE,
    SMALL,
    ElidedLabel,
    SideWindow,
    TextButton,
    Theme,
    column,
    formatting,
    paint_card,
    row,
    set_tip,
    show_in_front,
)
from rdchat.ui.transcript.view import TranscriptView

_WIDTH = 600
_HEIGHT = 340
_NEW, _OPEN, _STOP = map(QKeySequence, ("Ctrl+N", "Ctrl+Return", "Ctrl+."))
_NATIVE = QKeySequence.SequenceFormat.NativeText


class QuickWindow(SideWindow):
    """The window. Return asks, Ctrl-Return (on a Mac, Command-Return) opens the exchange as a chat, Esc hides it.

    Args:
        controller: The conversations.
        theme: The appearance to follow.
        parent: The main window.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget) -> None:
        super().__init__("Quick Window", (_WIDTH, 0), (0, 0), parent)
        self.setWindowFlags(Qt.WindowType.Tool | Qt.WindowType.FramelessWindowHint | Qt.WindowType.WindowStaysOnTopHint)
        self.setAttribute(Qt.WidgetAttribute.WA_MacAlwaysShowToolWindow)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self._replies = controller.replies
        self._status = controller.status
        self._quick = controller.quick
        self._theme = theme
        self._main = parent
        self.composer = Composer(theme, _STOP.toString(_NATIVE))
        self.transcript = TranscriptView(theme)
        self.composer.setFixedWidth(_WIDTH - 2)
        self.composer.attach.show_as("clipboard", "Insert the clipboard's text or image")
        files = self._quick.files
        self.images = FileAttacher(
            controller, files, self.composer.files, theme, self, question=lambda: self.composer.text
        )
        self.images.share_undo(self.composer.field)
        self.composer.field.pasted.connect(controller.chat.unsent.note_origin)
        self.composer.add_line(SightLine(controller.model_slot, files, theme))
        # A question during a reply is refused, not queued as in a chat.
        self.composer.sends_later = False
        self.transcript.setFixedSize(_WIDTH - 2, _HEIGHT)
        self.transcript.has_actions = False
        self.new = TextButton("New", theme, self._quick.forget_exchange)
        self.open_chat = TextButton("Open as Chat", theme, self._open_as_chat)
        for button, keys in ((self.new, _NEW), (self.open_chat, _OPEN)):
            set_tip(button, f"{button.text()} ({keys.toString(_NATIVE)})")
        self.remote = ElidedLabel(theme, "", "muted", -1)
        buttons = row((self.remote, 1), self.new, self.open_chat, margins=(LARGE, 0, LARGE, 0))
        layout = column(self.composer, self.transcript, buttons, within=self, spacing=0, margins=(1, SMALL, 1, SMALL))
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)
        QShortcut(_OPEN, self, self._open_as_chat)
        self._connect(controller.model_slot)
        self._show_messages()

    def _connect(self, model: ModelSlot) -> None:
        quick = self._quick
        composer = self.composer
        transcript = self.transcript
        composer.submitted.connect(self._ask)
        composer.stop_requested.connect(quick.stop_reply)
        composer.attach.clicked.connect(composer.field.paste)
        composer.field.files_pasted.connect(self._take_files)
        composer.field.image_pasted.connect(self.images.add_image)
        quick.files.changed.connect(composer.refresh_button)
        self.images.noted.connect(composer.show_note)
        transcript.file_text = quick.file_text
        transcript.file_requested.connect(lambda file: self.images.view(file, quick.path, quick.file_text))
        composer.field.textChanged.connect(model.engine.wake)
        transcript.quote_requested.connect(composer.quote)
        quick.path_changed.connect(self._show_messages)
        quick.changed.connect(transcript.update_message)
        quick.grew.connect(transcript.append_text)
        for changed in (quick.changed, self._replies.state_changed, self._status.changed):
            changed.connect(self._show_state)

    def open_here(self) -> None:
        """Show it in the upper half of the screen with the pointer; hide it if it has the keyboard."""
        if self.isActiveWindow():
            self.close()
            return
        if self.isHidden():
            area = (QGuiApplication.screenAt(QCursor.pos()) or self.screen()).availableGeometry()
            self.move(area.center().x() - _WIDTH // 2, area.top() + area.height() // 6)
        if not mac_desktop.show_over_programs(int(self.winId()), self.show):
            show_in_front(self)
        self.composer.setFocus()

    def _take_files(self, paths: list[str]) -> None:
        if all(is_image(Path(path)) for path in paths):
            self.images.attach_files(paths)
        else:
            self.composer.show_note("Only images can be attached here. Other files can be attached in a chat.")

    def _ask(self, text: str) -> None:
        quick = self._quick
        reason = "Wait until this reply is finished, or stop it." if quick.busy else quick.files.reason_to_wait()
        if reason:
            self.composer.give_back(text, reason)
        else:
            quick.ask_question(text)

    def _open_as_chat(self) -> None:
        """Ask what is typed, if anything, and go on in the main window.

        Without an exchange there is nothing to open: an empty field is submitted all the same, so that it says so.
        """
        if self.composer.text.strip() or self.composer.files.has_images or not self._quick.path:
            self.composer.field.submit_requested.emit()
        if self._quick.path:
            self._quick.open_as_chat()
            self.close()
            show_in_front(self._main)

    def _show_messages(self) -> None:
        self._show_state()  # First: the transcript gets its width.
        self.transcript.set_messages(self._quick.path)
        self.transcript.scroll_to_end()
        # Again: the reply that it tells about has its widget now.
        self._show_state()

    def _show_state(self) -> None:
        """Show what a reply waits for or does, and the parts that need an exchange once there is one."""
        quick = self._quick
        status = self._status.value
        self.composer.set_state(writing=quick.busy, sent_when=status.sent_when)
        for part in (self.new, self.open_chat, self.transcript):
            part.setVisible(bool(quick.path))
        model = self._replies.model.info
        self.remote.show_text(formatting.remote_label(model.server, model.name) if model and model.server else "")
        if quick.busy:
            text = f"Sent when {status.sent_when}" if quick.waiting else status.text
            self.transcript.set_waiting(quick.path.ids[-1], text)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.windowHandle().startSystemMove()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        paint_card(self, self.rect().adjusted(0, 0, -1, -1), colors.surface, colors.border, radius=12)
