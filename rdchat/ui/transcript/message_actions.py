"""The row of small buttons of a message: in the gap below a reply, and beside a prompt's bubble."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api.messages import Role
from rdchat.ui.style.buttons import CopyButton, IconButton
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import Part, keep_room, row
from rdchat.ui.style.theme import SMALL, control_font
from rdchat.ui.transcript.message_parts import MessageArea
from rdchat.ui.transcript.reply_details import ReplyDetails, facts, summary

HEIGHT = 28
_BETWEEN = " · "


class FactsLine(ElidedLabel):
    """The parts of a summary, without the last ones that do not fit."""

    def fitting_text(self, width: int) -> str:
        parts = self.text().split(_BETWEEN)
        while len(parts) > 1 and self.fontMetrics().horizontalAdvance(_BETWEEN.join(parts)) > width:
            parts.pop()
        return self.fontMetrics().elidedText(_BETWEEN.join(parts), Qt.TextElideMode.ElideRight, width)


class MessageActions(QWidget):
    """Copy, edit or regenerate, and the step to other alternatives; for a reply also its statistics and tokens."""

    edit_requested = Signal()
    # The menu is to open at a point of the screen.
    menu_requested = Signal(QPoint)

    def __init__(self, message: Message, area: MessageArea, parent: QWidget) -> None:
        super().__init__(parent)
        self._message, self._area = message, area
        self._last = self._hovered = False
        self._buttons: list[IconButton] = []
        is_prompt = message.role is Role.USER
        regenerate = partial(area.regenerate_requested.emit, message.id)
        self._previous, self._next = (
            IconButton(
                icon,
                f"{icon.capitalize()} version",
                area.theme,
                self,
                partial(area.alternative_requested.emit, message.id, by),
            )
            for icon, by in (("previous", -1), ("next", 1))
        )
        self._number = ThemedLabel(area.theme, "", "muted", -1, tabular=True)
        self._number.setAlignment(Qt.AlignmentFlag.AlignCenter)
        compare = partial(area.compare_requested.emit, message.id)
        self.compare = IconButton("compare", "Compare versions", area.theme, self, compare)
        self.copy_button = CopyButton("Copy message" if is_prompt else "Copy reply", area.theme, self)
        parts: list[Part] = [None] if is_prompt else []
        parts += [self._previous, self._number, self._next, self.compare, self._add(self.copy_button)]
        if is_prompt:
            self._answer = self._button("regenerate", "Get a reply", regenerate)
            self._answer.hide()
            parts += [self._button("edit", "Edit message", self.edit_requested.emit), self._answer]
        else:
            self._details = self._button("info", "Details", self._show_details)
            self._tokens = self._button("tokens", "Show tokens", partial(area.tokens_requested.emit, message.id))
            parts += [self._button("regenerate", "Regenerate reply", regenerate), self._details, self._tokens]
        self._more = self._button("more", "More", self._open_menu)
        self.facts = FactsLine(area.theme, "", "muted", -1)
        self.facts.setFont(control_font(-1, tabular=True))
        self.facts.setContentsMargins(SMALL, 0, 0, 0)
        self.facts.setAccessibleName("Reply statistics")
        row(*parts, self._more, (self.facts, 1), within=self, spacing=0)
        self.facts.setHidden(is_prompt)
        self.setFixedHeight(HEIGHT)
        keep_room(self)

    def _button(self, icon: str, name: str, act: Callable[[], object]) -> IconButton:
        return self._add(IconButton(icon, name, self._area.theme, self, act))

    def _add(self, button: IconButton) -> IconButton:
        button.focus_changed.connect(self._reveal)
        self._buttons.append(button)
        return button

    def show_message(self, message: Message) -> None:
        """Show which alternative this is, whether the text is the person's, and what can be done."""
        self._message, several = message, message.siblings > 1
        self.copy_button.setEnabled(bool(message.text))
        if message.role is not Role.USER:
            self.facts.setAccessibleDescription(", ".join(summary(message)))
            set_tip(self.facts, self._summary)
            self._details.setEnabled(bool(facts(message)))
            self._tokens.setEnabled(bool(message.text))
        for button in (self._previous, self._next, self.compare):
            button.setVisible(several)
        self._previous.setEnabled(message.sibling > 0)
        self._next.setEnabled(message.sibling + 1 < message.siblings)
        number = f"{message.sibling + 1} of {message.siblings}" if several else ""
        edited = "edited" if several else "Edited"
        self._number.show_text(", ".join(part for part in (number, edited if message.edited else "") if part))
        set_tip(self._number, "You edited this reply" if message.edited else "")
        self._reveal()

    @property
    def _summary(self) -> str:
        return _BETWEEN.join(summary(self._message))

    def offer_reply(self, offered: bool) -> None:
        """Offer to get a reply to a prompt that has none."""
        self._answer.setVisible(offered)

    def set_revealed(self, *, last: bool | None = None, hovered: bool | None = None) -> None:
        """Show the buttons of the last message and of the one under the pointer, and there the statistics too."""
        self._last = self._last if last is None else last
        self._hovered = self._hovered if hovered is None else hovered
        self._reveal()

    def _reveal(self) -> None:
        focused = any(button.hasFocus() for button in (*self._buttons, self._previous, self._next))
        for button in self._buttons:
            button.set_concealed(not (self._last or self._hovered or focused))
        self.facts.setText(self._summary if self._hovered or focused else "")

    def _open_menu(self) -> None:
        self.menu_requested.emit(self._more.mapToGlobal(self._more.rect().bottomLeft()))

    def _show_details(self) -> None:
        details = ReplyDetails(self._message, self._area.theme, self)
        details.tokens_requested.connect(self._tokens.clicked)
        details.open_above(self._details)
