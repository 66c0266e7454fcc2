"""The row of small buttons under a message. It always keeps its space, so that nothing moves when it shows."""

from itertools import pairwise

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import Role
from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.transcript.message_area import MessageArea
from rdchat.ui.transcript.reply_details import FactsLine, ReplyDetails, facts


class MessageActions(QWidget):
    """Copy, edit or regenerate, and the step to other alternatives; for a reply also its statistics and tokens."""

    HEIGHT = 28

    copy_requested = Signal()
    edit_requested = Signal()
    menu_requested = Signal(QPoint)  # where on the screen

    def __init__(self, message: Message, area: MessageArea, parent: QWidget) -> None:
        super().__init__(parent)
        self._message, self._area = message, area
        self._last = self._hovered = False
        self._buttons: list[IconButton] = []
        person = message.role is Role.USER
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(0)
        if person:
            self._row.addStretch()
        # most messages have neither: making them takes time while a long chat opens
        self._stepper: tuple[IconButton, ThemedLabel, IconButton] | None = None
        self._answer: IconButton | None = None
        self._copy = CopyButton(self.tr("Copy message") if person else self.tr("Copy reply"), area.theme, self)
        self._copy.copy_requested.connect(self.copy_requested)
        self._insert(self._copy)
        if person:
            self._add("edit", self.tr("Edit message")).clicked.connect(self.edit_requested)
        else:
            self._add("regenerate", self.tr("Regenerate reply")).clicked.connect(self._regenerate)
            self._details = self._add("info", self.tr("Details"))
            self._details.clicked.connect(self._show_details)
            self._tokens = self._add("tokens", self.tr("Show tokens"))
            self._tokens.clicked.connect(lambda: area.tokens_requested.emit(self._message.id))
        self._more = self._add("more", self.tr("More"))
        self._more.clicked.connect(self._open_menu)
        self._facts: FactsLine | None = None
        if not person:
            self._facts = FactsLine(area.theme, self)
            self._row.addWidget(self._facts, 1)

    def _add(self, icon: str, name: str, before: QWidget | None = None) -> IconButton:
        button = IconButton(icon, name, self._area.theme, self)
        self._insert(button, before)
        return button

    def _insert(self, button: IconButton, before: QWidget | None = None) -> None:
        self._row.insertWidget(self._row.indexOf(before) if before else self._row.count(), button)
        button.focus_changed.connect(self._reveal)
        self._buttons.append(button)

    def show_message(self, message: Message) -> None:
        self._message = message
        self._copy.setEnabled(bool(message.text))
        if self._facts:
            self._facts.show_message(message)
            self._details.setEnabled(bool(facts(message)))
            self._tokens.setEnabled(bool(message.text))
        if self._stepper is None and (message.siblings > 1 or message.edited):
            self._stepper = self._make_stepper()
        if self._stepper:
            self._show_alternative(*self._stepper)
        self._reveal()

    def _make_stepper(self) -> tuple[IconButton, ThemedLabel, IconButton]:
        """Add the buttons that go through the alternatives, and between them a label for the message's place."""
        previous = self._add("previous", self.tr("Previous alternative"), self._copy)
        place = ThemedLabel(self._area.theme, "", "muted", -1, tabular=True)
        place.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._row.insertWidget(self._row.indexOf(self._copy), place)
        following = self._add("next", self.tr("Next alternative"), self._copy)
        previous.clicked.connect(lambda: self._area.alternative_requested.emit(self._message.id, -1))
        following.clicked.connect(lambda: self._area.alternative_requested.emit(self._message.id, 1))
        self._order_tabs()
        return previous, place, following

    def _show_alternative(self, previous: IconButton, place: ThemedLabel, following: IconButton) -> None:
        """Say which alternative this is, and whether the text is the person's."""
        message, several = self._message, self._message.siblings > 1
        previous.setVisible(several)
        following.setVisible(several)
        previous.setEnabled(message.sibling > 0)
        following.setEnabled(message.sibling + 1 < message.siblings)
        number = self.tr("%d of %d") % (message.sibling + 1, message.siblings) if several else ""
        edited = self.tr("edited") if several else self.tr("Edited")
        place.say(", ".join(part for part in (number, edited if message.edited else "") if part))
        set_tip(place, self.tr("You changed the text of this reply") if message.edited else "")

    def _order_tabs(self) -> None:
        for left, right in pairwise(sorted(self._buttons, key=self._row.indexOf)):
            QWidget.setTabOrder(left, right)

    def copy(self, text: str) -> None:
        self._copy.copy(text)

    def say_copied(self) -> None:
        """Say for a moment that the message was copied."""
        self._copy.say_copied()

    def offer_reply(self, offered: bool) -> None:
        """Offer to get a reply to a prompt that has none."""
        if offered and self._answer is None:
            self._answer = self._add("regenerate", self.tr("Get a reply"), self._more)
            self._answer.clicked.connect(self._regenerate)
            self._order_tabs()
            self._reveal()
        if self._answer is not None:
            self._answer.setVisible(offered)

    def set_revealed(self, *, last: bool | None = None, hovered: bool | None = None) -> None:
        """Show the buttons of the last message and of the one under the pointer, and there the statistics too."""
        self._last = self._last if last is None else last
        self._hovered = self._hovered if hovered is None else hovered
        self._reveal()

    def _reveal(self) -> None:
        focused = any(button.hasFocus() for button in self._buttons)
        for button in self._buttons:
            if button not in (self._stepper or ()):
                button.set_concealed(not (self._last or self._hovered or focused))
        if self._facts:
            self._facts.set_concealed(not self._hovered and not focused)

    def _regenerate(self) -> None:
        self._area.regenerate_requested.emit(self._message.id)

    def _open_menu(self) -> None:
        self.menu_requested.emit(self._more.mapToGlobal(self._more.rect().bottomLeft()))

    def _show_details(self) -> None:
        details = ReplyDetails(self._message, self._area.theme, self)
        details.tokens_requested.connect(self._tokens.clicked)
        details.open_above(self._details)
