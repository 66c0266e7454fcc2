"""The window of one reply's tokens and of the draft tree behind each."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.services.chat.trace_recorder import TraceRecorder
from rdchat.ui.drafts.token_details import TokenDetails
from rdchat.ui.drafts.token_view import TokenView
from rdchat.ui.drafts.tree_view import TreeView
from rdchat.ui.drafts.words import Legend, round_words, tree_words
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SideWindow, show_in_front
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.look.throttle import Throttle

_NOT_RECORDED = "How this reply came about was not recorded."
_NO_TREE = "The tree of this round was not recorded."
_NO_DRAFT = "Nothing was drafted here: this token was decoded on its own."


class DraftsWindow(SideWindow):
    """Shows one reply: its tokens, beside them the details of one token, and below them the tree of its round."""

    def __init__(self, traces: TraceRecorder, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Tokens and drafts", (900, 680), (480, 380), parent)
        self._traces = traces
        self._message_id = 0
        self._trace = ReplyTrace()
        self.legend = Legend(theme)
        self.note = ThemedLabel(theme, "", "muted", -1)
        self.tokens = TokenView(theme)
        self.details = TokenDetails(theme)
        self.heading = ElidedLabel(theme, bold=True)
        self.previous = IconButton("previous", "Previous round", theme)
        self.next = IconButton("next", "Next round", theme)
        self.tree = TreeView(theme)
        self.nothing = ThemedLabel(theme, _NOT_RECORDED, "muted", wraps=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._throttle = Throttle(self)
        self._lay_out(theme)
        self._throttle.due.connect(lambda: self._load() if self.isVisible() else None)
        self.tokens.looked_at.connect(lambda token: self.details.show_token(self._trace, token))
        self.tokens.cursor_moved.connect(self._show_round)
        self.tree.step_requested.connect(self._step)
        for button, step in ((self.previous, -1), (self.next, 1)):
            button.clicked.connect(lambda _checked, step=step: self._step(step))
        traces.tokens_added.connect(self._on_tokens)
        traces.trace_ended.connect(self._on_end)

    def _lay_out(self, theme: Theme) -> None:
        above = _splitter(Qt.Orientation.Horizontal, (self.tokens, 600), (self.details, 240))
        above.setStretchFactor(0, 1)
        heading = row((self.heading, 1), self.previous, self.next, margins=(MEDIUM, SMALL, MEDIUM, 0))
        below = QWidget()
        column(heading, (self.tree, 1), within=below)
        self.pages = QStackedWidget()
        self.pages.addWidget(_splitter(Qt.Orientation.Vertical, (above, 400), (below, 260)))
        self.pages.addWidget(self.nothing)
        head = row((self.legend, 1), self.note, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(head, Separator(theme), (self.pages, 1), within=self, spacing=0)

    def show_reply(self, message_id: int) -> None:
        """Show a reply; one that is still being written is followed."""
        self._message_id = message_id
        show_in_front(self)  # first, so that the text is laid out once, at the final width
        self._load(-1 if self._traces.is_live(message_id) else 0)
        self.tokens.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        """Free the trace, which may be large, when the window is closed."""
        super().hideEvent(event)
        if not event.spontaneous():  # it is when the window is minimised
            self._show(ReplyTrace(), -1)

    def _load(self, cursor: int | None = None) -> None:
        """Show the present trace, with the cursor on a token (-1: the last); None keeps the cursor where it is."""
        trace = self._traces.trace(self._message_id)
        if cursor is None and self.pages.currentIndex():
            cursor = -1  # nothing was recorded until now
        self.pages.setCurrentIndex(0 if trace else 1)
        self.legend.setVisible(trace is not None)
        self._show(trace or ReplyTrace(), cursor)

    def _show(self, trace: ReplyTrace, cursor: int | None) -> None:
        self._trace = trace
        lost = formatting.counted(trace.missing, "character was", "characters were")
        self.note.setText(f"{lost} not recorded" if trace.missing else "")
        self.legend.show_trace(trace)
        self.tokens.show_trace(trace, cursor)
        self._show_round()

    def _on_tokens(self, message_id: int) -> None:
        if message_id == self._message_id and self.isVisible():
            self._throttle.note()

    def _on_end(self, message_id: int) -> None:
        if message_id == self._message_id and self.isVisible():
            self._load()

    def _step(self, rounds: int) -> None:
        """Go some rounds on from the current one, or from the cursor to the nearest one."""
        if number := self._number_after(rounds):
            self.tokens.move_to(self._trace.rounds[number - 1].first)

    def _number_after(self, rounds: int) -> int:
        """Return the number of the round that so many steps lead to; 0 if there is none."""
        cursor, trace = self.tokens.current, self._trace
        number = trace.tokens[cursor].round if trace.tokens else 0
        if not number:
            number = sum(each.first <= cursor for each in trace.rounds) + (rounds < 0)
        return number + rounds if 1 <= number + rounds <= len(trace.rounds) else 0

    def _show_round(self) -> None:
        """Show the round of the cursor's token."""
        cursor = self.tokens.current
        number = self._trace.tokens[cursor].round if cursor >= 0 else 0
        self.previous.setEnabled(self._number_after(-1) > 0)
        self.next.setEnabled(self._number_after(1) > 0)
        if not number:
            self.heading.setText("No draft" if cursor >= 0 else "")
            self.tree.show_tree(None, _NO_DRAFT, _NO_DRAFT)
            return
        self.heading.setText(round_words(self._trace, number))
        tree = self._trace.rounds[number - 1].tree
        self.tree.show_tree(tree, tree_words(self._trace, number), _NO_TREE)


def _splitter(orientation: Qt.Orientation, *parts: tuple[QWidget, int]) -> QSplitter:
    """Return a splitter of widgets with their first sizes."""
    splitter = QSplitter(orientation)
    for widget, _ in parts:
        splitter.addWidget(widget)
    splitter.setSizes([size for _, size in parts])
    splitter.setHandleWidth(1)
    splitter.setChildrenCollapsible(False)
    return splitter
