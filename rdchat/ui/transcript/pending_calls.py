"""Cards below the last message, each with a tool call of the model that waits for the person's approval."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from rdchat.services.chat.tool_call_control import MAX_ROUNDS, Scope, ToolCalls, WaitingCall
from rdchat.tools.built_in import server_title
from rdchat.ui.style import (
    MACHINE,
    MEDIUM,
    SMALL,
    TIGHT,
    Card,
    CodeField,
    ConsentPause,
    ElidedLabel,
    TextButton,
    Theme,
    ThemedLabel,
    column,
    cut,
    discard,
    push_button,
    row,
    small_text,
    visible_text,
)
from rdchat.ui.transcript.message_kinds import MENDED, arguments_text
from rdchat.ui.transcript.message_parts import EDGE, height_of

# The longest description of a tool that a card shows, in characters.
_MAX_DESCRIPTION = 500
# The text and the tooltip of each button, by how far the approval goes; None refuses the call.
_DECISIONS: dict[Scope | None, tuple[str, str]] = {
    None: ("Don't Run", "Tell the model that you did not run it"),
    Scope.ALWAYS: ("Always", "Run this tool without a question from now on, until the tool or its server changes"),
    Scope.CHAT: ("In This Chat", "Run this tool without a question in this chat, until rdchat quits"),
    Scope.ONCE: ("Run", "Run this call once"),
}
# The most cards at a time: so many calls of a reply written here are run, but an import may have more.
_MAX_CARDS = 16
# The buttons of a call whose server does not run, so that its tool is not known yet.
_START = {
    None: _DECISIONS[None],
    Scope.ONCE: ("Start the Server", "Start it to see what the tool does; nothing is run before you agree"),
}
# Why a call's tool is not known, by the state of its server.
_UNKNOWN = {
    "stopped": "Its server does not run, so it is not known what the tool does.",
    "starting": "Its server is starting…",
    "failed": "Its server has failed, so it is not known what the tool does. Settings > Tools says why.",
}
_NOT_HERE = "The tool is not available in this chat."
_MANY = f"The model has called tools {MAX_ROUNDS} times for this question, so each further call waits for you."
_UNANSWERED = "The model has not read these results."
_RAN_NOTHING = "None of these calls could be run, so the model was not asked again."


class CallCard(Card):
    """One call with all its arguments, and the buttons that approve or refuse it.

    While its server does not run, a button that starts the server stands in place of those that run the call.

    Attributes:
        waiting: The call, its tool, and the state of the tool's server.
        decided: Emitted with how far the approval goes; None refuses.
        buttons: The buttons, by the value that each emits with `decided`.
    """

    decided = Signal(object)

    def __init__(self, waiting: WaitingCall, theme: Theme) -> None:
        super().__init__(theme)
        self.waiting = waiting
        tool = waiting.tool
        server, _, name = cut(waiting.call.name).partition("__")
        title = f"Run {name or server}?"
        server = server_title(server)
        self.setAccessibleName(f"{title} A tool of {server}")
        self.arguments = CodeField(theme, f"Arguments of {name}", 12)
        self.arguments.show_code(arguments_text(waiting.call))
        decisions = dict(_DECISIONS if tool else _START)
        if not waiting.may_always:
            decisions.pop(Scope.ALWAYS, None)
        if tool is None and waiting.status not in _UNKNOWN:
            # There is no server to start.
            del decisions[Scope.ONCE]
        self.buttons = {
            scope: push_button(text, tip, partial(self.decided.emit, scope)) for scope, (text, tip) in decisions.items()
        }
        if (run := self.buttons.get(Scope.ONCE)) is not None:
            run.setEnabled(waiting.status != "starting")
        for button in self.buttons.values():
            button.setAccessibleDescription(f"{title} {button.toolTip()}")
        head = row(ThemedLabel(theme, title, bold=True), ThemedLabel(theme, f"a tool of {server}", "muted"), None)
        description = ElidedLabel(theme, "", "muted", -1)
        self.remark = small_text(theme, "", "warning")
        parts = (head, description, self.arguments, self.remark, row(None, *self.buttons.values()))
        column(*parts, within=self, spacing=TIGHT + 2, margins=(MEDIUM, SMALL + 2, MEDIUM, SMALL + 2))
        description.show_text(visible_text(" ".join((tool.description if tool else "")[:_MAX_DESCRIPTION].split())))
        self.remark.show_text(_remark_on(waiting))
        ConsentPause(self)


def _remark_on(waiting: WaitingCall) -> str:
    """Return what to know before a call is approved; empty for nothing."""
    tool = waiting.tool
    parts = [f"The arguments leave {MACHINE}."] if waiting.remote else []
    if tool is None:
        parts.append(_UNKNOWN.get(waiting.status, _NOT_HERE))
    elif not tool.read_only:
        parts.append("The tool may change something.")
    if waiting.call.mended:
        parts.append(MENDED)
    return " ".join(parts)


class PendingCalls(QWidget):
    """Cards of the first calls that wait in the open chat. It never takes the keyboard by itself.

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
        self._calls = calls
        self._theme = theme
        self.cards: dict[str, CallCard] = {}
        # What is shown, to compare; None for nothing yet.
        self._state: object = None
        self.note = small_text(theme)
        self.go_on = TextButton("Continue", theme, calls.go_on)
        ConsentPause(self.go_on)
        self._column = column(row((self.note, 1), self.go_on), within=self, margins=(EDGE, TIGHT, EDGE, TIGHT))
        calls.changed.connect(self.show_calls)
        self.show_calls()

    def show_calls(self) -> None:
        """Show the calls that wait now; a card stays as it is while its call waits."""
        calls = self._calls
        first = calls.waiting[:_MAX_CARDS]
        waiting = {call.call_id: calls.waiting_call(call) for call in first}
        further = len(calls.waiting) - len(first)
        state = (waiting, further, calls.over_limit, calls.can_go_on)
        if state == self._state:
            return
        self._state = state
        cards = self.cards
        note = _MANY if calls.over_limit else ""
        if calls.can_go_on and not note:
            note = _RAN_NOTHING if calls.ran_nothing else _UNANSWERED
        if further:
            note = f"{note} These are the first {_MAX_CARDS} calls; {further:,} more follow once you decide.".strip()
        self.note.show_text(note)
        self.go_on.setVisible(calls.can_go_on)
        unchanged = {key: card for key, card in cards.items() if card.waiting == waiting.get(key)}
        # Whether the keyboard is in a card that goes now.
        focus = self.window().focusWidget()
        had_focus = self.isAncestorOf(focus) and not any(card.isAncestorOf(focus) for card in unchanged.values())
        discard(*(card for key, card in cards.items() if key not in unchanged))
        self.cards = {}
        for key, waiting_call in waiting.items():
            card = unchanged.get(key) or CallCard(waiting_call, self._theme)
            self.cards[key] = card
            if key not in unchanged:
                card.decided.connect(partial(calls.decide, waiting_call.call, tool=waiting_call.tool))
            # A card that is there already moves behind the others.
            self._column.addWidget(card)
            card.show()
        if had_focus:
            self.decided.emit()
        self.changed.emit()

    def layout_for(self, width: int) -> int:
        """Return the height that it needs at a width."""
        for card in self.cards.values():
            card.arguments.fit(width - 2 * (EDGE + MEDIUM))
            # Otherwise the layout learns of its height only in the next turn of the event loop.
            card.updateGeometry()
        return height_of(self._column, width) if self.cards or self.note.text() else 0
