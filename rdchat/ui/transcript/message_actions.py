"""The row of small buttons under a message. Its space is always kept, so nothing jumps when it shows."""

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.requests import Role
from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.theme import Theme, control_font
from rdchat.ui.transcript.reply_details import FactsLine, ReplyDetails
from rdchat.ui.transcript.reply_facts import facts


class MessageActions(QWidget):
    """Copy, edit or regenerate, and the stepper through alternatives; of a reply, its statistics and its tokens too."""

    HEIGHT = 28

    copy_requested = Signal()
    edit_requested = Signal()
    regenerate_requested = Signal()
    step_requested = Signal(int)
    tokens_requested = Signal()
    menu_requested = Signal(QPoint)  # where on the screen

    def __init__(self, role: Role, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._message: Message | None = None
        person = role is Role.USER
        self._copy = CopyButton(self.tr("Copy message") if person else self.tr("Copy reply"), theme, self)
        self._copy.copy_requested.connect(self.copy_requested)
        self._change = (
            IconButton("edit", self.tr("Edit message"), theme, self)
            if person
            else IconButton("regenerate", self.tr("Regenerate reply"), theme, self)
        )
        self._change.clicked.connect(self.edit_requested if person else self.regenerate_requested)
        self._previous = IconButton("previous", self.tr("Previous alternative"), theme, self)
        self._previous.clicked.connect(lambda: self.step_requested.emit(-1))
        self._next = IconButton("next", self.tr("Next alternative"), theme, self)
        self._next.clicked.connect(lambda: self.step_requested.emit(1))
        self._details = IconButton("info", self.tr("Details"), theme, self)
        self._details.clicked.connect(self._show_details)
        self._tokens = IconButton("tokens", self.tr("Show tokens"), theme, self)
        self._tokens.clicked.connect(self.tokens_requested)
        self._answer = IconButton("regenerate", self.tr("Get a reply"), theme, self)
        self._answer.clicked.connect(self.regenerate_requested)
        self._answer.hide()
        self._more = IconButton("more", self.tr("More"), theme, self)
        self._more.clicked.connect(self._open_menu)
        self._facts = FactsLine(theme, self)
        self._place = QLabel(self)
        self._place.setFont(control_font(-1, tabular=True))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        if person:
            row.addStretch()
        self._buttons = (self._copy, self._change, self._answer, self._details, self._tokens, self._more)
        for widget in (self._previous, self._place, self._next, *self._buttons):
            row.addWidget(widget)
        row.addWidget(self._facts, 0 if person else 1)
        for of_reply in (self._details, self._tokens, self._facts):
            of_reply.setVisible(not person)
        for button in (*self._buttons, self._previous, self._next):
            button.focus_changed.connect(self._reveal)
        self._wanted = self._hovered = False
        self.restyle()

    def show_message(self, message: Message) -> None:
        self._message = message
        self._details.setEnabled(bool(facts(message)))
        self._tokens.setEnabled(bool(message.text))
        self._facts.show_message(message)
        several = message.siblings > 1
        busy = message.status is MessageStatus.STREAMING
        for widget in (self._previous, self._next):
            widget.setVisible(several)
        self._place.setVisible(several or message.edited)
        place = self.tr("%d of %d") % (message.sibling + 1, message.siblings) if several else ""
        edited = self.tr("edited") if several else self.tr("Edited")
        self._place.setText(", ".join(part for part in (place, edited if message.edited else "") if part))
        self._place.setToolTip(self.tr("You changed the text of this reply") if message.edited else "")
        self._previous.setEnabled(message.sibling > 0)
        self._next.setEnabled(message.sibling + 1 < message.siblings)
        self._copy.setEnabled(bool(message.text))
        self.setVisible(not busy)
        self._reveal()

    def copy(self, text: str) -> None:
        self._copy.copy(text)

    def say_copied(self) -> None:
        """Say for a moment that the message was copied."""
        self._copy.say_copied()

    def offer_reply(self, offered: bool) -> None:
        """Offer to have a prompt answered that has no reply."""
        self._answer.setVisible(offered)

    def set_revealed(self, revealed: bool, hovered: bool) -> None:
        """Show the buttons, and under the pointer the statistics; or conceal them unless one has the focus."""
        self._wanted, self._hovered = revealed, hovered
        self._reveal()

    def _reveal(self) -> None:
        focused = any(button.hasFocus() for button in (*self._buttons, self._previous, self._next))
        for button in self._buttons:
            button.set_concealed(not self._wanted and not focused)
        self._facts.set_concealed(not self._hovered and not focused)

    def _open_menu(self) -> None:
        self.menu_requested.emit(self._more.mapToGlobal(self._more.rect().bottomLeft()))

    def _show_details(self) -> None:
        if self._message is not None:
            details = ReplyDetails(self._message, self._theme, self)
            details.tokens_requested.connect(self.tokens_requested)
            details.open_above(self._details)

    def restyle(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.WindowText, self._theme.colors.muted)
        self._place.setPalette(palette)
        self._place.setAlignment(Qt.AlignmentFlag.AlignCenter)
        for button in (*self._buttons, self._previous, self._next):
            button.restyle()
