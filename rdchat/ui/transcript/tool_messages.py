"""The result of a tool's call in the transcript: its call, how it ended, and its text, folded."""

import json

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QMenu

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.messages import ToolCall, parsed_json
from rdchat.services.chat.chat_prompt import NOT_RUN
from rdchat.tools.built_in import server_title
from rdchat.tools.result_text import MAX_TEXT
from rdchat.ui.files.chips import SentFiles
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.code_field import CodeField
from rdchat.ui.style.formatting import counted
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, cut, visible_text
from rdchat.ui.style.layouts import ThinBar, column, row, show_share
from rdchat.ui.style.theme import RADIUS, SMALL, TIGHT, paint_card
from rdchat.ui.transcript.markdown.parser import PlainParser
from rdchat.ui.transcript.markdown.text_body import TextBody
from rdchat.ui.transcript.message_parts import EDGE, MessageArea
from rdchat.ui.transcript.message_widget import MessageWidget

_MAX_FIRST_LINE = 200
_STATES = {
    MessageStatus.STREAMING: ("Running…", "muted"),
    MessageStatus.FAILED: ("Failed", "danger"),
    MessageStatus.INTERRUPTED: ("Interrupted", "warning"),
}
_INTERRUPTED = "Interrupted: rdchat closed while this tool ran. It may have done its work."
MENDED = "The model wrote this call with slips, which were mended: check its arguments."
"""Of a call that was read leniently."""
_CUT = f"The result was longer: the first {MAX_TEXT:,} characters of it are shown here, and the model gets them."


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
    """One line that unfolds to the arguments and the whole result, which is plain text.

    Args:
        message: The result.
        call: What it answers; None where that is unknown.
        area: The transcript.
    """

    room_below = SMALL

    def __init__(self, message: Message, call: ToolCall | None, area: MessageArea) -> None:
        super().__init__(message, PlainParser(), area)
        self.body.setAccessibleName("Result")
        self.unfolded = False
        self.toggle = TextButton("", area.theme, self._toggle, color="text")
        self.toggle.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.toggle.setText(tool_title(message.tool_name)[:_MAX_FIRST_LINE])
        self.first_line = ElidedLabel(area.theme, "", "muted", -1)
        self.state = ThemedLabel(area.theme, "", "muted", -1, tabular=True)
        self.action = TextButton("", area.theme, self._act)
        self._bar = ThinBar("The tool runs", 2)
        self.note = ThemedLabel(area.theme, "", "muted", -1, wraps=True, selectable=True)
        self.arguments = CodeField(area.theme, "Arguments", 12)
        self.arguments.show_text(arguments_text(call) if call else "")
        self._remark = MENDED if call and call.mended else ""
        self._files = SentFiles(message.files, area.file_text, area.theme, self)
        self._files.opened.connect(area.file_requested)
        inner = column(self.note, self.arguments, self._files, self.body, margins=(SMALL, 0, SMALL, TIGHT))
        head = row(self.toggle, (self.first_line, 1), self.state, self.action, margins=(0, 0, SMALL, 0))
        self._column = column(head, self._bar, inner, within=self, spacing=0, margins=(EDGE, TIGHT, EDGE, TIGHT))
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        if message.files != self.message.files:
            self._files.show_files(message.files)
        ended = message.status is not MessageStatus.STREAMING
        text, color = _STATES.get(message.status, (counted(len(message.text), "character"), "muted"))
        if message.error == NOT_RUN:
            text = "Not run"
            color = "muted"
        self.state.show_text(text, color)
        # JSON begins with a line that has a bracket alone.
        begins = " ".join(message.text[:MAX_TEXT].split()) if ended else ""
        self.first_line.setText(visible_text(begins[:_MAX_FIRST_LINE]))
        interrupted = message.status is MessageStatus.INTERRUPTED
        error = "" if message.error == NOT_RUN else message.error
        note = error or (_INTERRUPTED if interrupted else _CUT if len(message.text) > MAX_TEXT else self._remark)
        self.note.show_text(visible_text(cut(note)))
        self.action.setText("" if ended and not interrupted else "Run Again" if ended else "Stop")
        self.toggle.setAccessibleName(f"{tool_title(message.tool_name)}, {text}")
        show_share(self._bar, None)
        self.body.set_text(message.text if ended else "", ended)
        super().show_message(message)

    def layout_for(self, width: int) -> int:
        inner = width - 2 * (EDGE + SMALL)
        self.arguments.fit(inner)
        self._files.setFixedHeight(self._files.layout_for(inner))
        return super().layout_for(width)

    def _show_parts(self) -> None:
        super()._show_parts()
        # What it has is in the context menu.
        self.actions_row.hide()
        self.toggle.setArrowType(Qt.ArrowType.DownArrow if self.unfolded else Qt.ArrowType.RightArrow)
        self._bar.setVisible(self.is_busy)
        self.action.setVisible(bool(self.action.text()) and self.area.has_actions)
        self.first_line.setText("" if self.unfolded else self.first_line.text())
        self.arguments.setVisible(self.unfolded and bool(self.arguments.toPlainText()))
        self.body.setVisible(self.unfolded and bool(self.message.text))
        self._files.setVisible(bool(self.message.files))

    def _toggle(self) -> None:
        self.unfolded = not self.unfolded
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
