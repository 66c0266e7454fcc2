"""The row of small buttons under a message. Its space is always kept, so nothing jumps when it shows."""

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.requests import Role
from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.plain_text import PlainLabel, set_tip
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
        # most messages have neither: each would take a long chat that opens some tenths of a millisecond
        self._stepper: _Stepper | None = None
        self._answer: IconButton | None = None
        self._details = IconButton("info", self.tr("Details"), theme, self)
        self._details.clicked.connect(self._show_details)
        self._tokens = IconButton("tokens", self.tr("Show tokens"), theme, self)
        self._tokens.clicked.connect(self.tokens_requested)
        self._more = IconButton("more", self.tr("More"), theme, self)
        self._more.clicked.connect(self._open_menu)
        self._facts = FactsLine(theme, self)
        row = self._row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        if person:
            row.addStretch()
        self._buttons = [self._copy, self._change, self._details, self._tokens, self._more]
        for widget in self._buttons:
            row.addWidget(widget)
        row.addWidget(self._facts, 0 if person else 1)
        for of_reply in (self._details, self._tokens, self._facts):
            of_reply.setVisible(not person)
        for button in self._buttons:
            button.focus_changed.connect(self._reveal)
        self._wanted = self._hovered = False

    def show_message(self, message: Message) -> None:
        self._message = message
        self._details.setEnabled(bool(facts(message)))
        self._tokens.setEnabled(bool(message.text))
        self._facts.show_message(message)
        busy = message.status is MessageStatus.STREAMING
        if self._stepper is None and (message.siblings > 1 or message.edited):
            self._stepper = self._make_stepper()
        if self._stepper is not None:
            self._stepper.show_message(message)
        self._copy.setEnabled(bool(message.text))
        self.setVisible(not busy)
        self._reveal()

    def _make_stepper(self) -> "_Stepper":
        stepper = _Stepper(self._theme, self)
        stepper.step_requested.connect(self.step_requested)
        for place, widget in enumerate(
            (stepper.previous, stepper.place, stepper.next), start=self._row.indexOf(self._copy)
        ):
            self._row.insertWidget(place, widget)
        QWidget.setTabOrder(self._change, stepper.previous)
        QWidget.setTabOrder(stepper.previous, stepper.next)
        for button in (stepper.previous, stepper.next):
            button.focus_changed.connect(self._reveal)
        return stepper

    def copy(self, text: str) -> None:
        self._copy.copy(text)

    def say_copied(self) -> None:
        """Say for a moment that the message was copied."""
        self._copy.say_copied()

    def offer_reply(self, offered: bool) -> None:
        """Offer to have a prompt answered that has no reply."""
        if offered and self._answer is None:
            self._answer = IconButton("regenerate", self.tr("Get a reply"), self._theme, self)
            self._answer.clicked.connect(self.regenerate_requested)
            self._answer.focus_changed.connect(self._reveal)
            self._row.insertWidget(self._row.indexOf(self._change) + 1, self._answer)
            QWidget.setTabOrder(self._tokens, self._answer)
            self._buttons.append(self._answer)
            self._reveal()
        if self._answer is not None:
            self._answer.setVisible(offered)

    def set_revealed(self, revealed: bool, hovered: bool) -> None:
        """Show the buttons, and under the pointer the statistics; or conceal them unless one has the focus."""
        self._wanted, self._hovered = revealed, hovered
        self._reveal()

    def _reveal(self) -> None:
        stepper = (self._stepper.previous, self._stepper.next) if self._stepper else ()
        focused = any(button.hasFocus() for button in (*self._buttons, *stepper))
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
        for button in self._buttons:
            button.restyle()
        if self._stepper is not None:
            self._stepper.restyle()


class _Stepper(QObject):
    """Goes through the alternatives of a message, and says whether its text is the person's."""

    step_requested = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.previous = IconButton("previous", self.tr("Previous alternative"), theme, parent)
        self.previous.clicked.connect(lambda: self.step_requested.emit(-1))
        self.next = IconButton("next", self.tr("Next alternative"), theme, parent)
        self.next.clicked.connect(lambda: self.step_requested.emit(1))
        self.place = PlainLabel(parent=parent)
        self.place.setFont(control_font(-1, tabular=True))
        self.place.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.restyle()

    def show_message(self, message: Message) -> None:
        several = message.siblings > 1
        for button in (self.previous, self.next):
            button.setVisible(several)
        self.place.setVisible(several or message.edited)
        place = self.tr("%d of %d") % (message.sibling + 1, message.siblings) if several else ""
        edited = self.tr("edited") if several else self.tr("Edited")
        self.place.setText(", ".join(part for part in (place, edited if message.edited else "") if part))
        set_tip(self.place, self.tr("You changed the text of this reply") if message.edited else "")
        self.previous.setEnabled(message.sibling > 0)
        self.next.setEnabled(message.sibling + 1 < message.siblings)

    def restyle(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.WindowText, self._theme.colors.muted)
        self.place.setPalette(palette)
        for button in (self.previous, self.next):
            button.restyle()
