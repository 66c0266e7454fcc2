"""What the transcript's tests share: a theme, messages, and waiting until everything is drawn."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from PySide6.QtGui import QGuiApplication, QTextCursor
from PySide6.QtWidgets import QAbstractButton, QMenu, QScrollBar, QWidget
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import FinishReason, LedgerEntry, Role, Statistics
from rdchat.ui.style import Theme
from rdchat.ui.transcript.markdown.block_stream import BlockStream, Update
from rdchat.ui.transcript.markdown.blocks import Block
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work
from rdchat.ui.transcript.markdown.text_formats import OBJECT, run_of
from rdchat.ui.transcript.message_parts import MessageEditor
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.view import TranscriptView
from tests.ui.shown_widgets import press_key

Show = Callable[[Sequence[Message]], TranscriptView]


def person(message_id: int, text: str, **more: object) -> Message:
    return Message(message_id, 1, message_id - 1 or None, Role.USER, text, MessageStatus.COMPLETE, 0.0, **more)


def reply(
    message_id: int,
    text: str,
    status: MessageStatus = MessageStatus.COMPLETE,
    finish_reason: FinishReason | None = FinishReason.EOS,
    **more: object,
) -> Message:
    return Message(
        message_id, 1, message_id - 1, Role.ASSISTANT, text, status, 0.0, finish_reason=finish_reason, **more
    )


def answered(text: str, *how: Any, **more: Any) -> list[Message]:
    """Return a question and its reply, with what `reply` takes."""
    return [person(1, "Hi"), reply(2, text, *how, **more)]


def dialogue(turns: int, answer: str = "Answer {n}.") -> list[Message]:
    """Return a conversation of `turns` questions and answers, numbered from 1."""
    messages: list[Message] = []
    for turn in range(1, turns + 1):
        messages.append(person(2 * turn - 1, f"Question {turn}?"))
        messages.append(reply(2 * turn, answer.replace("{n}", str(turn))))
    return messages


def add_message(view: TranscriptView, message: Message) -> None:
    """Add a message to the path that the view shows."""
    view.messages.append(message)
    view.add_message(message)


def update_message(view: TranscriptView, message: Message) -> None:
    """Put another state of a message onto the path."""
    view.messages.update_message(message)
    view.update_message(message)


def append_text(view: TranscriptView, message_id: int, text: str) -> None:
    """Let a reply of the path grow."""
    if (message := view.messages.find_message(message_id)) is not None:
        view.messages.update_message(replace(message, text=message.text + text))
    view.append_text(message_id, text)


@pytest.fixture
def show(qtbot: QtBot, theme: Theme) -> Show:
    """Open a transcript with these messages and wait until it is drawn."""

    def open_view(messages: Sequence[Message]) -> TranscriptView:
        view = TranscriptView(theme)
        qtbot.addWidget(view)
        view.resize(800, 600)
        view.show()
        view.set_messages(messages)
        wait_until_drawn(qtbot, view)
        return view

    return open_view


def edited_text(widget: MessageWidget) -> str | None:
    """Return what is in a message's editor; None while it is not edited."""
    shown = [editor for editor in widget.findChildren(MessageEditor) if not editor.isHidden()]
    return shown[0].text if shown else None


def draw(qtbot: QtBot, body: TextBody, text: str | None = None, *, final: bool = True) -> None:
    """Draw all of a text: another one, if one is given."""
    if text is not None:
        body.set_text(text, final)

    def is_drawn() -> bool:
        while (left := body.take_step(time.perf_counter() + 0.01)) is Work.READY:
            pass
        return left is Work.NONE

    qtbot.waitUntil(is_drawn)


def updates(stream: BlockStream, text: str, *, final: bool = True) -> Iterator[Update]:
    """Take all steps that a text needs."""
    more = True
    while more:
        update = stream.advance(text, final)
        yield update
        more = update.more


def blocks_after(blocks: list[Block], found: Iterable[Update]) -> list[Block]:
    for update in found:
        blocks[update.first :] = update.blocks
    return blocks


def new_body(qtbot: QtBot, theme: Theme, parser: Parser | None = None) -> TextBody:
    body = TextBody(parser or MarkdownParser(), theme)
    qtbot.addWidget(body)
    return body


def body_of(qtbot: QtBot, theme: Theme, text: str, parser: Parser | None = None) -> TextBody:
    body = new_body(qtbot, theme, parser)
    body.resize(500, 300)
    body.show()
    draw(qtbot, body, text)
    return body


def select(body: TextBody, anchor: int, position: int) -> QTextCursor:
    cursor = body.textCursor()
    cursor.setPosition(anchor)
    cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
    body.setTextCursor(cursor)
    return cursor


def select_text(body: TextBody, begin: str, end: str) -> None:
    """Select from the first letter of one text to the last of another."""
    first = body.document().find(begin).selectionStart()
    select(body, first, body.document().find(end, first).selectionEnd())


def copied(body: TextBody) -> str:
    """Return what Ctrl-C puts on the clipboard."""
    QGuiApplication.clipboard().setText("nothing")
    press_key(body, "Ctrl+C")
    return QGuiApplication.clipboard().text()


def highlighted(cursor: QTextCursor) -> str:
    """Return the text that Qt shows as selected, with the source of each formula."""
    parts = cursor.selection().toPlainText().split(OBJECT)
    sources = list[str]()
    formula = cursor.document().find(OBJECT, cursor.selectionStart())
    while not formula.isNull() and len(sources) < len(parts) - 1:
        table = cursor.currentTable()
        if table is None or QTextCursor(formula).currentTable() == table:
            sources.append(run_of(formula.charFormat()).text)
        formula = cursor.document().find(OBJECT, formula)
    return "".join(part + source for part, source in zip_longest(parts, sources, fillvalue=""))


def wait_until_drawn(qtbot: QtBot, view: TranscriptView) -> None:
    """Wait until all is drawn that gets a widget: those above what is in view come a few at a time."""

    def is_drawn() -> bool:
        return not view._timer.isActive() and all(widget.work is Work.NONE for widget in widgets(view))

    qtbot.waitUntil(is_drawn)


def widgets(view: TranscriptView) -> list[MessageWidget]:
    """Return the widgets of the messages that have one, from the oldest to the latest."""
    found = [widget for widget in view.findChildren(MessageWidget) if not widget.isHidden()]
    return sorted(found, key=lambda widget: widget.message.id)


def widget_of(view: TranscriptView, message_id: int) -> MessageWidget:
    return next(widget for widget in widgets(view) if widget.message.id == message_id)


def button(parent: QWidget, name: str) -> QAbstractButton:
    """Return the shown button with this text or accessible name."""
    found = [
        each
        for each in parent.findChildren(QAbstractButton)
        if name in (each.accessibleName(), each.text()) and not each.isHidden()
    ]
    assert found, f"no button {name!r}"
    return found[0]


def choose_in_menu(widget: MessageWidget, words: str) -> None:
    """Choose from a message's menu with the keyboard."""
    more = button(widget, "More")
    more.setFocus()
    press_key(more, "Space")
    (menu,) = [menu for menu in widget.findChildren(QMenu) if menu.isVisible()]
    menu.setActiveAction(next(action for action in menu.actions() if action.text() == words))
    press_key(menu, "Return")


def scroll_bar(view: TranscriptView) -> QScrollBar:
    return view.verticalScrollBar()


DRAFTED = Statistics(
    prompt_tokens=40,
    cached_prompt_tokens=8,
    generated_tokens=61,
    prefill_ms=80,
    ttft_ms=120,
    decode_ms=2000,
    rounds=30,
    drafted=90,
    accepted=30,
    target_calls=30,
    ledger=(LedgerEntry("template and tokenize", "", 1, 10), LedgerEntry("prefill", "", 1, 70)),
)
RICH = """# Title

Some *prose*
***bold at the start of a line*** and more

- one
- two
  - nested
    ```py
    x
    ```
- [x] done

3. three
3. four

> quote
> > deeper
lazy

```python
def f():

    pass
```
Setext
---
| a | b |
|---|--:|
| 1 | 2 |

    indented code

***
end <tag> ![alt](http://x/y.png)
~~~
unclosed
"""
