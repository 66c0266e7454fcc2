"""The calls that wait for the person's approval, below the last message."""

from functools import partial

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QApplication, QWidget

from rdchat.inference.api.messages import ToolCall
from rdchat.services.chat.tool_calls import MAX_ROUNDS, Scope, ToolCalls
from rdchat.tools.built_in import server_title
from rdchat.tools.definitions import ToolDefinition
from rdchat.ui.style.buttons import TextButton, push_button
from rdchat.ui.style.code_field import CodeField
from rdchat.ui.style.formatting import MACHINE
from rdchat.ui.style.labels import Card, ElidedLabel, ThemedLabel, visible_text
from rdchat.ui.style.layouts import column, discard, row
from rdchat.ui.style.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.transcript.message_parts import EDGE
from rdchat.ui.transcript.tool_messages import arguments_text

_MAX_DESCRIPTION = 500
_DECISIONS: dict[Scope | None, tuple[str, str]] = {
    None: ("Don't Run", "Tell the model that you did not run it"),
    Scope.ALWAYS: ("Always", "Run this tool without a question from now on, until the tool or its server changes"),
    Scope.CHAT: ("In This Chat", "Run this tool without a question in this chat, until rdchat quits"),
    Scope.ONCE: ("Run", "Run this call once"),
}
_MANY = f"The model has called tools {MAX_ROUNDS} times for this question, so each further call waits for you."
_UNANSWERED = "The model has not read these results."


class CallCard(Card):
    """One call with all its arguments, and buttons that run it or do not.

    Attributes:
        decided: Emitted with how far the approval goes; None refuses.
        buttons: The buttons, by what `decided` has.
    """

    decided = Signal(object)

    def __init__(self, call: ToolCall, tool: ToolDefinition | None, always: bool, theme: Theme) -> None:
        super().__init__(theme)
        server, _, name = call.name.partition("__")
        title, server = f"Run {name or server}?", server_title(server)
        self.setAccessibleName(f"{title} A tool of {server}")
        self.arguments = CodeField(theme, f"Arguments of {name}", 12)
        self.arguments.show_text(arguments_text(call))
        described = visible_text(" ".join((tool.description if tool else "")[:_MAX_DESCRIPTION].split()))
        leaves = f"The arguments leave {MACHINE}." if tool and tool.remote else ""
        changes = "The tool may change something." if tool and not tool.read_only else ""
        self.remark = ThemedLabel(theme, "", "warning", -1, wraps=True)
        self.buttons = {
            scope: push_button(text, tip, partial(self.decided.emit, scope))
            for scope, (text, tip) in _DECISIONS.items()
            if always or scope is not Scope.ALWAYS
        }
        # Return presses it, but only where it has the focus.
        self.buttons[Scope.ONCE].setDefault(True)
        for button in self.buttons.values():
            button.setAccessibleDescription(f"{title} {button.toolTip()}")
        head = row(ThemedLabel(theme, title, bold=True), ThemedLabel(theme, f"a tool of {server}", "muted"), None)
        description = ElidedLabel(theme, "", "muted", -1)
        self._decision = QWidget()
        row(None, *self.buttons.values(), within=self._decision)
        parts = (head, description, self.arguments, self.remark, self._decision)
        column(*parts, within=self, spacing=TIGHT + 2, margins=(MEDIUM, SMALL + 2, MEDIUM, SMALL + 2))
        description.show_text(described)
        self.remark.show_text(f"{leaves} {changes}".strip())

    def wait_a_moment(self) -> None:
        """Take no decision for the time of a double click, which may have begun on another card."""
        self._decision.setEnabled(False)
        QTimer.singleShot(QApplication.doubleClickInterval(), self._decision, partial(self._decision.setEnabled, True))


class PendingCalls(QWidget):
    """Cards of all calls that wait in the open chat. It never takes the keyboard by itself.

    Args:
        calls: The calls.
        theme: The appearance to follow.

    Attributes:
        changed: Emitted when other calls wait, so that the height is another.
        decided: Emitted when the person has decided on a call with the keyboard in its card.
        cards: The cards, by the ids of the calls.
    """

    changed = Signal()
    decided = Signal()

    def __init__(self, calls: ToolCalls, theme: Theme) -> None:
        super().__init__()
        self._calls, self._theme = calls, theme
        self.cards: dict[str, CallCard] = {}
        self._shown: object = None
        self.note = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.go_on = TextButton("Let It Go On", theme, calls.go_on)
        self._column = column(row((self.note, 1), self.go_on), within=self, margins=(EDGE, TIGHT, EDGE, TIGHT))
        calls.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the calls that wait now; a card stays as it is while its call waits."""
        calls = self._calls
        waiting = [(call, calls.definition(call), calls.may_always(call)) for call in calls.waiting]
        shown = (waiting, calls.over_limit, calls.can_go_on)
        if shown == self._shown:
            return
        self._shown, cards = shown, self.cards
        self.note.show_text(_MANY if calls.over_limit else _UNANSWERED if calls.can_go_on else "")
        self.go_on.setVisible(calls.can_go_on)
        had_focus = self.isAncestorOf(self.window().focusWidget())
        discard(*self.findChildren(CallCard))
        self.cards = {}
        for call, tool, always in waiting:
            card = self.cards[call.call_id] = CallCard(call, tool, always, self._theme)
            card.decided.connect(partial(calls.decide, call))
            self._column.addWidget(card)
            card.show()
            if cards:
                card.wait_a_moment()
        if had_focus:
            self.decided.emit()
        self.changed.emit()

    def layout_for(self, width: int) -> int:
        """Return the height that it needs at a width."""
        for card in self.cards.values():
            card.arguments.fit(width - 2 * (EDGE + MEDIUM))
        self._column.activate()
        is_empty = not self.cards and not self.note.text()
        return 0 if is_empty else max(self._column.heightForWidth(width), self._column.sizeHint().height())
