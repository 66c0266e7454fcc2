"""The row of small buttons under a message. It always keeps its space, so that nothing moves when it shows."""

from collections.abc import Callable

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import Role
from rdchat.ui.look.buttons import CopyButton, IconButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import Part, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.transcript.message_area import MessageArea
from rdchat.ui.transcript.reply_details import FactsLine, ReplyDetails, facts

_HEIGHT = 28


class MessageActions(QWidget):
    """Copy, edit or regenerate, and the step to other alternatives; for a reply also its statistics and tokens."""

    copy_requested = Signal()
    edit_requested = Signal()
    menu_requested = Signal(QPoint)  # where on the screen

    def __init__(self, message: Message, area: MessageArea, parent: QWidget) -> None:
        super().__init__(parent)
        self._message, self._area = message, area
        self._last = self._hovered = False
        self._buttons: list[IconButton] = []
        step = area.alternative_requested
        self._previous = self._add("previous", self.tr("Previous alternative"), lambda: step.emit(self._message.id, -1))
        self._place = ThemedLabel(area.theme, "", "muted", -1, tabular=True)
        self._place.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._next = self._add("next", self.tr("Next alternative"), lambda: step.emit(self._message.id, 1))
        is_prompt = message.role is Role.USER
        self.copy_button = CopyButton(self.tr("Copy message") if is_prompt else self.tr("Copy reply"), area.theme, self)
        self.copy_button.copy_requested.connect(self.copy_requested)
        self._keep(self.copy_button)
        parts: list[Part] = [self._previous, self._place, self._next, self.copy_button]
        parts = [None, *parts, *self._of_prompt()] if is_prompt else [*parts, *self._of_reply()]
        self._more = self._add("more", self.tr("More"), self._open_menu)
        self._facts = FactsLine(area.theme, self)
        self._facts.setHidden(is_prompt)
        row(*parts, self._more, (self._facts, 1), within=self, spacing=0)
        self.setFixedHeight(_HEIGHT)
        policy = self.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.setSizePolicy(policy)

    def _of_prompt(self) -> list[Part]:
        edit = self._add("edit", self.tr("Edit message"), self.edit_requested.emit)
        self._answer = self._add("regenerate", self.tr("Get a reply"), self._regenerate)
        self._answer.hide()
        return [edit, self._answer]

    def _of_reply(self) -> list[Part]:
        again = self._add("regenerate", self.tr("Regenerate reply"), self._regenerate)
        self._details = self._add("info", self.tr("Details"), self._show_details)
        tokens = self._area.tokens_requested
        self._tokens = self._add("tokens", self.tr("Show tokens"), lambda: tokens.emit(self._message.id))
        return [again, self._details, self._tokens]

    def _add(self, icon: str, name: str, act: Callable[[], object]) -> IconButton:
        button = IconButton(icon, name, self._area.theme, self)
        button.clicked.connect(lambda _checked: act())
        return self._keep(button)

    def _keep(self, button: IconButton) -> IconButton:
        button.focus_changed.connect(self._reveal)
        self._buttons.append(button)
        return button

    def show_message(self, message: Message) -> None:
        self._message = message
        self.copy_button.setEnabled(bool(message.text))
        if message.role is not Role.USER:
            self._facts.show_message(message)
            self._details.setEnabled(bool(facts(message)))
            self._tokens.setEnabled(bool(message.text))
        self._show_alternative()
        self._reveal()

    def _show_alternative(self) -> None:
        """Say which alternative this is, and whether the text is the person's."""
        message, several = self._message, self._message.siblings > 1
        self._previous.setVisible(several)
        self._next.setVisible(several)
        self._previous.setEnabled(message.sibling > 0)
        self._next.setEnabled(message.sibling + 1 < message.siblings)
        number = self.tr("%d of %d") % (message.sibling + 1, message.siblings) if several else ""
        edited = self.tr("edited") if several else self.tr("Edited")
        self._place.say(", ".join(part for part in (number, edited if message.edited else "") if part))
        set_tip(self._place, self.tr("You changed the text of this reply") if message.edited else "")

    def offer_reply(self, offered: bool) -> None:
        """Offer to get a reply to a prompt that has none."""
        self._answer.setVisible(offered)

    def set_revealed(self, *, last: bool | None = None, hovered: bool | None = None) -> None:
        """Show the buttons of the last message and of the one under the pointer, and there the statistics too."""
        self._last = self._last if last is None else last
        self._hovered = self._hovered if hovered is None else hovered
        self._reveal()

    def _reveal(self) -> None:
        focused = any(button.hasFocus() for button in self._buttons)
        for button in self._buttons:
            if button not in (self._previous, self._next):
                button.set_concealed(not (self._last or self._hovered or focused))
        self._facts.set_concealed(not self._hovered and not focused)

    def _regenerate(self) -> None:
        self._area.regenerate_requested.emit(self._message.id)

    def _open_menu(self) -> None:
        self.menu_requested.emit(self._more.mapToGlobal(self._more.rect().bottomLeft()))

    def _show_details(self) -> None:
        details = ReplyDetails(self._message, self._area.theme, self)
        details.tokens_requested.connect(self._tokens.clicked)
        details.open_above(self._details)
