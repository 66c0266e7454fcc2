"""The kinds of messages: a tool's result in a line that unfolds, a prompt in a bubble at the right, a model's reply."""

import json
import re
from dataclasses import replace
from enum import StrEnum

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QGridLayout, QMenu, QWidget

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import FinishReason, ToolCall, parsed_json
from rdchat.services.chat.chat_prompt import NOT_RUN
from rdchat.tools.built_in import server_title
from rdchat.tools.definitions import MAX_TEXT
from rdchat.ui.style import (
    MEDIUM,
    RADIUS,
    SMALL,
    TIGHT,
    CodeField,
    ElidedLabel,
    TextButton,
    ThinBar,
    column,
    cut,
    paint_card,
    row,
    show_share,
    small_text,
    visible_text,
)
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_actions import HEIGHT
from rdchat.ui.transcript.message_parts import (
    EDGE,
    FoldedText,
    LineLabel,
    MessageArea,
)
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.wording import counted, rough_time

# The longest text in the one line of a folded result, in characters.
_MAX_FIRST_LINE = 200
# What is shown of a call that has no result: its state, the colour of that, and the text of the button.
_STATES = {
    MessageStatus.STREAMING: ("Running…", "muted", "Stop"),
    MessageStatus.FAILED: ("Failed", "danger", ""),
    MessageStatus.INTERRUPTED: ("Interrupted", "warning", "Run Again"),
}
_INTERRUPTED = "Interrupted: rdchat closed while this tool ran. It may have done its work."
MENDED = "The model wrote this call with slips, which were mended: check its arguments."
"""The remark on a call whose text was not valid JSON, and was read leniently."""
_CUT = f"The result was longer: the first {MAX_TEXT:,} characters of it are shown here, and the model gets them."
# The largest width of a bubble, as a share of the column.
_WIDEST = 0.82
# A text of more characters fills its lines, and is laid out only once.
_LONG = 4000
# The distance of a text from the left and right edge of its bubble.
_PAD = MEDIUM + 2
# How an answer begins that is a JSON object; once it has only a brace, this is not certain.
_JSON_BEGINS = re.compile(r'\s*\{\s*["}]')
_BRACE = re.compile(r"\s*\{")
# The room that a bubble leaves for the buttons beside it.
_BUTTONS = 3 * 28 + TIGHT


def tool_title(full_name: str) -> str:
    """Return a tool's name with that of its server."""
    server, _, name = full_name.partition("__")
    return f"{name} · {server_title(server)}" if name else server


def refused_text(message: Message) -> str:
    """Return which calls of a reply are not run, and why the first one is not; empty for none."""
    if not (refused := [call for call in message.tool_calls if call.refusal]):
        return ""
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    title = tool_title(refused[0].name)[:_MAX_FIRST_LINE]
    return visible_text(f"Not run: {title}{more}. {refused[0].refusal[:_MAX_FIRST_LINE]}")


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call, one a line where they are JSON."""
    arguments = parsed_json(call.arguments)
    return call.arguments if arguments is None else json.dumps(arguments, indent=2, ensure_ascii=False)


class ToolMessage(MessageWidget):
    """One line that unfolds to a call's arguments and its complete result, which is plain text.

    Args:
        message: The result.
        call: The call that it is the result of; None where that is unknown.
        area: The transcript.
    """

    room_below = SMALL

    def __init__(self, message: Message, call: ToolCall | None, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName("Result")
        self.unfolded = False
        self.toggle = TextButton("", area.theme, self._toggle, color="text")
        self._title = tool_title(message.tool_name)[:_MAX_FIRST_LINE]
        self.toggle.setText(self._title)
        self.first_line = ElidedLabel(area.theme, "", "muted", -1)
        self.state = small_text(area.theme, tabular=True, wraps=False)
        self.action = TextButton("", area.theme, self._act)
        self._bar = ThinBar("The tool runs", 2)
        self.note = small_text(area.theme, selectable=True)
        self.arguments = CodeField(area.theme, "Arguments", 12)
        self._call = call
        self._remark = MENDED if call and call.mended else ""
        self._files = self._make_files()
        inner = column(self.note, self.arguments, self._files, self.body, margins=(SMALL, 0, SMALL, TIGHT))
        head = row(self.toggle, (self.first_line, 1), self.state, self.action, margins=(0, 0, SMALL, 0))
        self._column = column(head, self._bar, inner, within=self, spacing=0, margins=(EDGE, TIGHT, EDGE, TIGHT))
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        if message.files != self.message.files:
            self._files.show_files(message.files)
        ended = message.status is not MessageStatus.STREAMING
        text, color, action = _STATES.get(message.status, (counted(len(message.text), "character"), "muted", ""))
        if message.error == NOT_RUN:
            text = "Not run"
            color = "muted"
        self.state.show_text(text, color)
        # All lines are joined: the first one of JSON is often a bracket alone.
        beginning = " ".join(message.text[:MAX_TEXT].split()) if ended and not self.unfolded else ""
        self.first_line.setText(visible_text(beginning[:_MAX_FIRST_LINE]))
        self.note.show_text(visible_text(cut(self._note_on(message))))
        self.action.setText(action)
        self.toggle.setAccessibleName(f"{self._title}, {text}")
        show_share(self._bar, None)
        self.body.set_text(message.text if ended else "", ended)
        super().show_message(message)

    def _note_on(self, message: Message) -> str:
        """Return what the person should know about a result."""
        if message.error and message.error != NOT_RUN:
            return message.error
        if message.status is MessageStatus.INTERRUPTED:
            return _INTERRUPTED
        return _CUT if len(message.text) > MAX_TEXT else self._remark

    def layout_for(self, width: int) -> int:
        inner = width - 2 * (EDGE + SMALL)
        self.arguments.fit(inner)
        self._files.setFixedHeight(self._files.arrange_chips(inner))
        return super().layout_for(width)

    def _show_parts(self) -> None:
        super()._show_parts()
        # Its only action, Run Again, is in the context menu.
        self.actions_row.hide()
        self.toggle.show_arrow(self.unfolded)
        self._bar.setVisible(self.is_busy)
        self.action.setVisible(bool(self.action.text()) and self.area.has_actions)
        self.arguments.setVisible(self.unfolded and bool(self.arguments.toPlainText()))
        self.body.setVisible(self.unfolded and bool(self.message.text))
        self._files.setVisible(bool(self.message.files))

    def _toggle(self) -> None:
        self.unfolded = not self.unfolded
        # Arguments may have a megabyte, so only those that are looked at are laid out.
        if self._call is not None and self.unfolded:
            self.arguments.show_code(arguments_text(self._call))
        self.show_message(self.message)
        self.area.height_changed.emit()

    def _act(self) -> None:
        if self.is_busy:
            self.area.stop_requested.emit()
        else:
            self.area.run_again_requested.emit(self.message.id)

    def _add_actions(self, menu: QMenu) -> None:
        if self.message.status is MessageStatus.INTERRUPTED:
            self._add(menu, "Run Again", self.area.run_again_requested)

    @property
    def visible_bodies(self) -> list[TextBody]:
        return [self.body] if self.unfolded else []

    def unfold(self, body: TextBody) -> None:
        if not self.unfolded:
            self._toggle()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.area.theme.colors
        area = QRectF(self.rect()).adjusted(EDGE + 0.5, 0.5, -EDGE - 0.5, -0.5)
        paint_card(self, area, colors.surface, colors.border, RADIUS - 2)


def fenced(answer: str) -> str:
    """Return an answer that is, or begins, a JSON object as a block of code; any other answer as it is."""
    return f"```json\n{answer}" if _JSON_BEGINS.match(answer) else answer


class PersonMessage(MessageWidget):
    """Shows the text as it was typed; fenced code is set apart. The buttons stand beside the bubble if they fit."""

    # The reply belongs to the same turn.
    room_below = MEDIUM

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName("Your message")
        self._files = self._make_files()
        self._bubble = column(self.body)
        self._buttons_layout = row(None, self.actions_row)
        # The height of the buttons where they stand under the bubble; 0 where they stand beside it.
        self._under = 0
        # The bubble and the buttons share one cell: margins set them apart.
        overlay = QGridLayout()
        overlay.addLayout(self._bubble, 0, 0)
        overlay.addLayout(self._buttons_layout, 0, 0, Qt.AlignmentFlag.AlignBottom)
        self._column = column(self._files, overlay, within=self, spacing=0)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        self.body.set_text(message.text, True)
        super().show_message(message)

    def _show_parts(self) -> None:
        super()._show_parts()
        if not self.message.text:
            # Images without words have no bubble.
            self.body.hide()
        # An editor shows the files itself.
        self._files.setVisible(bool(self.message.files) and not self.is_edited)

    def layout_for(self, width: int) -> int:
        """Place the bubble at the right, and the buttons at its left or, without room there, below; return the height.

        A long text fills the widest bubble; a shorter one gets a bubble as wide as its longest line.
        """
        column_width = width - 2 * EDGE
        self._files.setFixedHeight(self._files.arrange(width - EDGE))
        widest = min(round(column_width * _WIDEST), column_width - _BUTTONS) - 2 * _PAD
        is_short = len(self.message.text) < _LONG
        text_width = self.body.natural_width(widest) if is_short else widest
        text_left = width - EDGE - _PAD - text_width
        is_narrow = text_left - _PAD < self.actions_row.sizeHint().width()
        self._under = HEIGHT if is_narrow and not self.is_edited else 0
        # Without a text there is no bubble, and no padding of one: `pad and ...` stays 0.
        pad = SMALL if self.message.text else 0
        self._bubble.setContentsMargins(text_left, pad and pad + 2, EDGE + _PAD, pad + self._under)
        self._buttons_layout.setContentsMargins(0, 0, EDGE if self._under else width - text_left + _PAD + TIGHT, 0)
        self.update()
        return super().layout_for(width)

    def set_last(self, last: bool) -> None:
        # A prompt is the last message where its reply was deleted, or a branch begins.
        self.actions_row.offer_reply(last)
        super().set_last(last)

    def _add_actions(self, menu: QMenu) -> None:
        menu.addAction("Edit Message", self.edit)
        self._add(menu, "Get a Reply", self.area.regenerate_requested).setVisible(self.is_last)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.is_edited and self.message.text:
            left = self._bubble.contentsMargins().left() - _PAD
            bubble = self._bubble.geometry().adjusted(left, 0, -EDGE, -self._under)
            paint_card(self, bubble, self.area.theme.colors.raised, radius=RADIUS + 4)


class Remedy(StrEnum):
    """The action that the person can take when a reply ended early: the text of the button."""

    NOTHING = ""
    CONTINUE = "Continue"
    TRY_AGAIN = "Try Again"


def early_end(message: Message) -> tuple[str, Remedy]:
    """Return why a reply ended early, and what to do; an empty text if it ended by itself or is being written."""
    begun = bool(message.text.strip())
    # A reply that ends in calls cannot be continued.
    remedy = Remedy.CONTINUE if begun and not message.tool_calls else Remedy.TRY_AGAIN
    match message.status, message.finish_reason:
        case MessageStatus.FAILED, _:
            return message.error or "The reply failed.", Remedy.TRY_AGAIN
        case MessageStatus.INTERRUPTED, _:
            end = "Interrupted: rdchat closed while this reply was being written."
            return end if begun else "Interrupted: rdchat closed before this reply began.", remedy
        case MessageStatus.COMPLETE, FinishReason.CANCELLED:
            return message.error or "Stopped.", remedy
        case MessageStatus.COMPLETE, FinishReason.LENGTH:
            return "Stopped at the token limit for a reply.", remedy
        case MessageStatus.COMPLETE, FinishReason.CONTEXT_FULL:
            text = "The model's context is full. The chat has to be shortened before it goes on."
            return text, Remedy.NOTHING
    return "", Remedy.NOTHING


def thought_title(ms: float, *, thinking: bool, cut_off: bool) -> str:
    """Return the title of a thought that took some milliseconds; 0 if that is not known."""
    if thinking:
        return "Thinking…"
    if cut_off:
        return "Did not finish thinking"
    return f"Thought for {rough_time(ms / 1000)}" if ms else "Thoughts"


class ReplyMessage(MessageWidget):
    """Shows the model's thoughts, its answer, and a line about how it ended."""

    # This is the distance below the buttons, which stand in the gap between two turns.
    room_below = TIGHT

    def __init__(self, message: Message, area: MessageArea) -> None:
        super().__init__(message, MarkdownParser(), area)
        self.body.setAccessibleName("Reply")
        self.passages = ElidedLabel(area.theme, "", "muted", -1)
        # What an empty reply waits for.
        self._waiting = ""
        # Whether the text shown last ends in an open thought.
        self._thinking = False
        self._status = LineLabel(area.theme, wraps=True, selectable=True)
        self._remedy_button = TextButton("", area.theme, self._apply_remedy)
        self._status_line = QWidget()
        row(self._status, self._remedy_button, None, within=self._status_line, margins=(EDGE, TIGHT, EDGE, 0))
        body = row(self.body, margins=(EDGE, 0, EDGE, 0))
        passages = row(self.passages, margins=(EDGE, 0, EDGE, TIGHT))
        self._column = column(passages, body, self._status_line, self.actions_row, within=self, spacing=0)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        # First, as what follows reads it.
        self.message = message
        self.passages.show_text(", ".join(message.made_with.passages if message.made_with else ()))
        final = not self.is_busy
        parts = message.parts
        # `open`: the text ends inside a thought. Once the reply has ended, that thought was cut off.
        thinking = parts.open and not final and bool(message.text)
        self._thinking = thinking
        if parts.thought or thinking:
            self.thought = self.thought or self._make_thought()
            cut_off = parts.open and final
            title = thought_title(message.thinking.ms, thinking=thinking, cut_off=cut_off)
            self.thought.show_folded(title, parts.thought, final=not thinking, unfolded=cut_off)
        elif self.thought:
            self.thought.deleteLater()
            self.thought = None
        self.body.set_text(fenced(parts.answer), final)
        self._show_status()
        super().show_message(message)

    def append_text(self, message: Message, text: str) -> None:
        """Show a reply that is being written, which has gained a text.

        Where the text only lengthens the answer, it is added at the end. The whole message is shown anew where nothing
        of the answer is shown yet, during a thought, where another part begins, and while the answer begins with a
        brace, since `fenced` may then change how all of it is shown.
        """
        # Where each thought and each piece of the answer begins and ends in the text; `message.parts` has the texts.
        before = self.message.thinking.parts
        parts = message.thinking.parts
        # The parts are as before, but for the end of the last one.
        joins = before and parts and parts == (*before[:-1], replace(before[-1], end=before[-1].end + len(text)))
        if self.body.is_empty or self._thinking or not joins or _BRACE.match(message.text):
            self.show_message(message)
            return
        self.message = message
        self.body.append(text)
        self.area.work_added.emit()

    def set_waiting(self, text: str) -> None:
        """Show what an empty reply waits for."""
        self._waiting = text
        self._show_status()
        self._show_parts()

    def _show_status(self) -> None:
        """Show how the reply ended and which calls are not run, or what an empty one waits for."""
        text, remedy = early_end(self.message)
        text = f"{text} {refused_text(self.message)}".strip()
        if self.is_busy and not self.message.text:
            text = self._waiting or "Waiting for the model…"
        self._status.show_text(text, "danger" if self.message.status is MessageStatus.FAILED else "muted")
        self._remedy_button.setText(remedy)
        self._remedy_button.setVisible(bool(remedy) and self.area.has_actions)

    def _make_thought(self) -> FoldedText:
        thought = FoldedText(self.area.theme, "the model's thoughts", self)
        self._add_folded(thought)
        self._column.insertWidget(1, thought)
        return thought

    def _submit(self, text: str) -> None:
        """Store the edited answer; one that is unchanged only closes the editor."""
        if text == self.written_text.strip("\n"):
            self._close_editor()
        else:
            super()._submit(text)

    def _show_parts(self) -> None:
        super()._show_parts()
        if self.thought:
            self.thought.setVisible(not self.is_edited)
        self._status_line.setVisible(not self.is_edited and bool(self._status.text()))

    @property
    def written_text(self) -> str:
        """The answer as it was written, without the thoughts, which are not the person's to edit."""
        return self.message.parts.answer

    def _add_actions(self, menu: QMenu) -> None:
        menu.addSeparator()
        can_edit = not self.is_busy and bool(self.written_text.strip())
        menu.addAction("Edit Reply", self.edit).setEnabled(can_edit)
        begun = bool(self.message.text)
        can_continue = begun and not self.is_busy and not self.message.tool_calls
        self._add(menu, "Regenerate Reply", self.area.regenerate_requested).setEnabled(not self.is_busy)
        self._add(menu, "Regenerate With…", self.area.regenerate_with_requested).setEnabled(not self.is_busy)
        self._add(menu, "Continue Reply", self.area.continue_requested).setEnabled(can_continue)
        for button in self.actions_row.show_figures():
            menu.addAction(button.accessibleName().title(), button.click).setEnabled(button.isEnabled())

    def _apply_remedy(self) -> None:
        continues = self._remedy_button.text() == Remedy.CONTINUE
        (self.area.continue_requested if continues else self.area.regenerate_requested).emit(self.message.id)
