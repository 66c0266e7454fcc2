"""What is laid out, parsed and listed in one step of the event loop is bounded, whatever the store has.

The figures are counts, not times: characters of all texts of widgets that are new or longer, widgets that are new, and
characters that the main thread parsed as JSON or read from the store.
"""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from threading import get_ident
from typing import Any

import pytest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QLineEdit, QPlainTextEdit, QTextEdit, QWidget

from rdchat.chat.listing import ChatRow
from rdchat.chat.storage import Database, FullChat, insert_in_steps
from rdchat.ui.window.main_window import MainWindow
from tests.chat.grown_chats import LONG, full_chat, grown
from tests.ui.conftest import Chat

_TABLES = ("conversations", "messages", "folders", "message_files", "folder_files", "notes")
# Columns that decide what a row is, and no text.
_KINDS = {"role", "status", "digest", "kind", "title_by"}
# The fields that took longest, or of which there were most.
_WORST = (
    "conversations.system_prompt",
    "conversations.own_options.cleared[]",
    "folders.project.instructions",
    "messages.error of 4",
    "messages.tool_name of 3",
    "messages.drafting.drafter of 6",
    "messages.tool_calls[0].arguments of 2",
    "messages.tool_calls[] of 6",
)
_SHARES = 8
# The limits of a step, and of refreshing the list. A chat like the one here has 3,000 characters and 200 widgets, and
# six labels of 2,000 may have the name of a call.
_CHARACTERS = 15_000
_WIDGETS = 500
_PARSED = 3000
_READ = 3000


@dataclass(frozen=True)
class Cell:
    """A column of a row with a huge value."""

    table: str
    row: int
    column: str
    path: str
    value: str

    @property
    def name(self) -> str:
        """Such as `messages.tool_calls[0].name of 2`."""
        return f"{self.table}.{self.column}{self.path}" + f" of {self.row}" * (self.table == "messages")


def cells(connection: sqlite3.Connection) -> Iterator[Cell]:
    """Yield each text, and each text and list in JSON, of all tables in turn as a huge one."""
    for table in _TABLES:
        cursor = connection.execute(f"SELECT rowid, * FROM {table}")
        columns = [each[0] for each in cursor.description][1:]
        for row, *values in cursor:
            for column, value in zip(columns, values, strict=True):
                if isinstance(value, str) and column not in _KINDS:
                    is_json = value.startswith(("{", "["))
                    for path, each in grown(json.loads(value) if is_json else value):
                        yield Cell(table, row, column, path, json.dumps(each) if is_json else each)


def stored(chat: FullChat, connection: sqlite3.Connection) -> int:
    """Store a chat in a project with a file and a note; return its id."""
    *_, chat_id = insert_in_steps(connection, chat)
    project = json.dumps({"instructions": "Be kind.", "preset": "p", "model": "m", "tools": ["web"]})
    (folder,) = connection.execute(
        "INSERT INTO folders (name, created_at, project) VALUES ('Folder', 1, ?) RETURNING id", (project,)
    ).fetchone()
    connection.execute("UPDATE conversations SET unlisted = 0, folder_id = ?", (folder,))
    connection.execute(
        "INSERT INTO folder_files (folder_id, position, digest, kind, characters, taken, note, name)"
        " SELECT ?, 0, digest, kind, characters, taken, note, name FROM message_files LIMIT 1",
        (folder,),
    )
    note = "INSERT INTO notes (folder_id, conversation_id, created_at, source, text) VALUES (?, ?, 1, 'a', 'b')"
    connection.execute(note, (folder, chat_id))
    return chat_id


@dataclass
class Work:
    """What one step did."""

    characters: int = 0
    widgets: int = 0
    parsed: int = 0
    read: int = 0


def text_of(widget: QWidget) -> int:
    """Return the number of characters that a widget shows, or tells a screen reader."""
    texts = [widget.toolTip(), widget.accessibleName(), widget.accessibleDescription(), widget.windowTitle()]
    if isinstance(widget, QLabel | QAbstractButton | QLineEdit):
        texts.append(widget.text())
    document = widget.document().characterCount() if isinstance(widget, QPlainTextEdit | QTextEdit) else 0
    return sum(map(len, texts)) + document


class Meter:
    """Counts the work of the main thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._work = Work()
        self._shown = dict[QWidget, int]()
        main = get_ident()
        loads = json.loads
        rows = Database.rows

        def counted_loads(text: Any, **options: Any) -> Any:
            self._work.parsed += len(text) if get_ident() == main else 0
            return loads(text, **options)

        def counted_rows(database: Database, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
            found = rows(database, sql, *parameters)
            if get_ident() == main:
                self._work.read += sum(len(each) for row in found for each in row if isinstance(each, str))
            return found

        monkeypatch.setattr(json, "loads", counted_loads)
        monkeypatch.setattr(Database, "rows", counted_rows)
        self.work()

    def work(self) -> Work:
        """Return what was done since the last call."""
        tops = QApplication.topLevelWidgets()
        shown = {each: text_of(each) for top in tops for each in (top, *top.findChildren(QWidget))}
        work = self._work
        work.characters = sum(max(0, count - self._shown.get(each, 0)) for each, count in shown.items())
        work.widgets = len(shown.keys() - self._shown.keys())
        self._work = Work()
        self._shown = shown
        return work


@pytest.mark.parametrize("share", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in range(_SHARES))])
def test_a_huge_value_is_not_shown_at_once(
    window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch, share: int | None
) -> None:
    chat.start()
    chat_id = chat.store.write(lambda connection: stored(full_chat(), connection))
    found = chat.store.write(lambda connection: list(cells(connection)))
    chosen = [each for each in found if each.name in _WORST] if share is None else found[share::_SHARES]
    assert len(chosen) >= len(_WORST)
    meter = Meter(monkeypatch)
    wrong = dict[str, list[tuple[int, ...]]]()
    for cell in chosen:
        where = f"{cell.table} WHERE rowid = {cell.row}"
        ((old,),) = chat.store.rows(f"SELECT {cell.column} FROM {where}")
        change = f"UPDATE {cell.table} SET {cell.column} = ? WHERE rowid = {cell.row}"
        chat.store.write(lambda connection, sql=change, value=cell.value: connection.execute(sql, (value,)).close())
        chat.chats.update_list()
        meter.work()
        chat.chats.update_list()
        assert any(isinstance(row, ChatRow) for row in map(chat.chats.rows.__getitem__, range(len(chat.chats.rows))))
        listed = meter.work()
        chat.open.open_chat(chat_id)
        steps = [meter.work()]
        for _ in range(2):
            QApplication.processEvents()
            steps.append(meter.work())
        # Messages are drawn in steps, and a call that waits has all its arguments in its card.
        is_whole = cell.column == "text" or cell.name == "messages.tool_calls[0].arguments of 6"
        characters = _CHARACTERS + (len(LONG) + 100 if is_whole else 0)
        # A folder is read with the instructions that it shares, though these are parsed once.
        read = _READ + (3 * len(LONG) if cell.table == "folders" else 0)
        limits = astuple(Work(characters, _WIDGETS, _PARSED, read))
        steps = [astuple(each) for each in (listed, *(replace(each, parsed=0, read=0) for each in steps))]
        if any(count > limit for each in steps for count, limit in zip(each, limits, strict=True)):
            wrong[cell.name] = steps
        chat.open.start_new()
        chat.store.write(lambda connection, sql=change, value=old: connection.execute(sql, (value,)).close())
        QApplication.processEvents()
    assert not wrong


def test_few_of_many_results_are_read(window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result in view looks for its call above, and the open chat for calls that wait."""
    chat.start()
    first, reply, result, *_ = full_chat().messages
    many = (replace(result, id=2 + number, parent_id=1 + number, text="x" * 1000, files=()) for number in range(600))
    messages = (replace(first, context_cut=None), reply, *many)
    chat_id = chat.store.write(lambda connection: stored(replace(full_chat(), messages=messages), connection))
    meter = Meter(monkeypatch)
    chat.open.open_chat(chat_id)
    assert meter.work().read < 500_000
