"""Measures the list of chats and its search: 1,000 chats in 50 folders with 100,000 messages.

The work of the window's thread is given in processor time, and as the wait of a click. An answer's time runs from the
last typed letter until the list shows it, including the pause after typing. Then each command is timed with 100,000
chats, and with a chat of 100,000 messages: the longest stretch of processor time on the window's thread.
"""

import json
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench_panels import DraftedReply
from bench_transcript import DelayMeter, Meter, wait
from PySide6.QtCore import QEventLoop
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit
from stand_in_app import new_app, own_folder, running_app

from rdchat import paths
from rdchat.app import App
from rdchat.chat.storage.search import SearchQuery, SearchReader
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role
from rdchat.services.order.chat_list import ChatList

CHATS, FOLDERS, MESSAGES, LONG_CHAT = 1000, 50, 100_000, 10_000
LARGE = 100_000  # chats, or messages of one chat
WORDS = 5000  # of the messages' language, the frequent ones first
SYLLABLES = tuple(a + b + c for a in "bdfgklmnprstvw" for b in "aeiou" for c in ("", "n", "r"))
_INSERT = (
    "INSERT INTO messages (id, conversation_id, parent_id, activated, role, status, created_at, text)"
    " VALUES (?, ?, ?, ?, ?, 'complete', 0, ?)"
)
TYPED = ("b", "be", "ber", "bera", "bera ma", "xyz")


type Command = Callable[[], object]


def fill() -> None:
    """Write the chats, with texts of a few words to a few hundred."""
    choose = random.Random(1)
    store = ConversationStore(paths.database_path())
    organiser = store.organiser
    folders = [organiser.create_folder(f"Folder {number}").id for number in range(FOLDERS)]
    for number in range(CHATS):
        chat = store.create_conversation(f"Chat {number} {choose.choice(SYLLABLES)}")
        if number % 2:
            organiser.move(chat.id, folders[number % FOLDERS])
        if number % 100 == 0:
            organiser.set_pinned(chat.id, pinned=True)
    vocabulary = list(dict.fromkeys("".join(choose.choices(SYLLABLES, k=choose.randrange(1, 4))) for _ in range(WORDS)))
    weights = [1 / (number + 1) for number in range(len(vocabulary))]

    def insert(connection: sqlite3.Connection) -> None:
        for number in range(1, MESSAGES + 1):
            place = number % CHATS + 1
            text = " ".join(choose.choices(vocabulary, weights, k=choose.randrange(5, 120)))
            role = (Role.USER, Role.ASSISTANT)[number // CHATS % 2]
            connection.execute(
                "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, model, text)"
                " VALUES (?, ?, ?, ?, 'complete', ?, ?, ?)",
                (place, number - CHATS if number > CHATS else None, number, role, time.time(),
                 f"model {number % 7}" if role is Role.ASSISTANT else None, text),
            )  # fmt: skip

    store.write(insert)
    store.close()


def measure(qt: Meter) -> dict[str, object]:
    """Type searches in the app, and list everything."""
    with running_app(qt, DraftedReply) as app:
        wait(3.0)
        window, desk = app.window, app.controller.chats
        window.resize(1000, 680)
        report: dict[str, object] = {"rows": len(desk.rows), "list_again_cpu_ms": _median_ms(desk.refresh)}
        qt.reset()
        meter = DelayMeter()
        answers = {typed: _answer_ms(window.sidebar.search, desk, typed) for typed in TYPED}
        meter.stop()
        report |= {
            "answer_ms": answers,
            "longest_handler_cpu_ms": round(qt.longest_cpu * 1000, 1),
            "longest_delay_ms": round(max(meter.delays), 1),
            "reader_cpu_ms": {
                typed: _median_ms(partial(SearchReader(paths.database_path()).search, SearchQuery(typed)), 3)
                for typed in TYPED
            },
        }
        return report | _deleting_ms(app._store)


def _deleting_ms(store: ConversationStore) -> dict[str, float]:
    """Delete a message with 10,000 below it and take that back; return the processor time of both."""
    chat = store.create_conversation("Long")
    first = store.add_message(chat.id, None, Role.USER, "0").id

    def insert(connection: sqlite3.Connection) -> None:
        parent = first
        for number in range(1, LONG_CHAT):
            cursor = connection.execute(
                "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, text)"
                " VALUES (?, ?, ?, ?, 'complete', ?, ?)",
                (chat.id, parent, number + 1, (Role.USER, Role.ASSISTANT)[number % 2], time.time(), "word " * 100),
            )
            parent = cursor.lastrowid or 0

    store.write(insert)
    deleted = [store.message_bin.delete(first)]

    def delete_again() -> None:
        deleted.append(store.message_bin.delete(first))
        store.message_bin.restore(deleted[-1])

    store.message_bin.restore(deleted[0])
    return {"delete_and_undo_10000_messages_cpu_ms": _median_ms(delete_again)}


def _answer_ms(field: QLineEdit, desk: ChatList, typed: str) -> float:
    """Type into the empty field; return how long the answer takes after the last letter."""
    loop = QEventLoop()

    def note() -> None:
        answer = desk.answer
        if answer is not None and answer.query.words == typed:
            loop.quit()

    for letter in typed:
        QTest.keyClicks(field, letter)
        wait(0.06)
    began = time.perf_counter()
    desk.conversations_changed.connect(note)
    loop.exec()
    taken = time.perf_counter() - began
    desk.conversations_changed.disconnect(note)
    field.clear()
    wait(0.5)
    return round(taken * 1000, 1)


def _median_ms(work: Callable[[], object], times: int = 9) -> float:
    """Return the processor time of this thread."""
    taken = []
    for _ in range(times):
        began = time.thread_time()
        work()
        taken.append((time.thread_time() - began) * 1000)
    return round(statistics.median(taken), 1)


def fill_many_chats() -> None:
    """Write 100,000 chats of two messages each: half of them in folders, some pinned, in the archive or in the bin."""
    store, now = ConversationStore(paths.database_path()), time.time()
    folders = [store.organiser.create_folder(f"Folder {number}").id for number in range(FOLDERS)]
    numbers = range(1, LARGE + 1)

    def insert(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO conversations (id, title, created_at, updated_at, folder_id, pinned_at, archived_at,"
            " deleted_at) VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
            ((number, f"Chat {number}", now - 60 * number, folders[number % FOLDERS] if number % 2 else None,
              now if number % 1000 == 0 else None, now if number % 50 == 7 else None,
              now if number % 50 == 9 else None) for number in numbers),
        )  # fmt: skip
        connection.executemany(
            _INSERT, ((2 * number - 1, number, None, 1, "user", f"word{number % 1000}") for number in numbers)
        )
        connection.executemany(
            _INSERT, ((2 * number, number, 2 * number - 1, 2, "assistant", f"reply{number % 99}") for number in numbers)
        )

    store.write(insert)
    store.close()


def fill_long_chat() -> None:
    """Write a chat of 100,000 messages with an alternative in its middle and one of its last reply."""
    store = ConversationStore(paths.database_path())
    chat, roles = store.create_conversation("Long").id, ("assistant", "user")

    def insert(connection: sqlite3.Connection) -> None:
        connection.executemany(
            _INSERT,
            ((number, chat, number - 1 or None, number, roles[number % 2], f"word{number % 1000} " * 20)
             for number in range(1, LARGE + 1)),
        )  # fmt: skip
        for number, parent in enumerate((LARGE // 2 - 1, LARGE - 1), start=LARGE + 1):
            connection.execute(_INSERT, (number, chat, parent, 0, "assistant", "another"))

    store.write(insert)
    store.close()


def measure_large(qt: Meter, commands: Callable[[App], Iterator[tuple[str, Command]]]) -> dict[str, float]:
    """Return the longest stretch of processor time, in ms, of each command, from opening the store to quitting."""
    report: dict[str, float] = {}

    def do[T](name: str, command: Callable[[], T], quiet_s: float = 0.5) -> T:
        qt.reset()
        began = time.thread_time()
        done = command()
        taken = time.thread_time() - began
        wait(quiet_s)
        report[name] = round(max(taken, qt.longest_cpu) * 1000, 1)
        return done

    store = do("open the store", partial(ConversationStore, paths.database_path()), 0.0)
    app = new_app(qt, store, DraftedReply)
    do("start", app.start, 3.0)
    app.window.resize(1000, 680)
    for name, command in commands(app):
        do(name, command)
        app.controller.stop()
        wait(0.5)
    do("quit", lambda: (app.window.close(), app.finish()), 0.0)
    return report


def commands_on_chats(app: App) -> Iterator[tuple[str, Command]]:
    controller, window = app.controller, app.window
    desk, order, bar = controller.chats, controller.chats.order, window.sidebar
    chat = partial(app._store.conversation, 5002)
    yield "open a chat", lambda: desk.chat.open(5000)
    yield "send", lambda: controller.send("What is new?")
    yield "regenerate", lambda: controller.regenerate(controller.chat.path[-1].id)
    yield "edit", lambda: controller.edit_message(controller.chat.path[-2].id, "What else?")
    yield "alternative", lambda: controller.chat.show_alternative(controller.chat.path[-2].id, -1)
    for name, command in {
        "rename": lambda: desk.rename_conversation(5002, "Other"),
        "pin": lambda: order.set_pinned(chat(), True),
        "move to a folder": lambda: order.move(chat(), order.folders[3].id),
        "archive": lambda: desk.archive_conversation(5002),
        "delete": lambda: desk.delete_conversation(5000),
    }.items():
        yield name, command
        yield f"undo {name}", desk.undo
    yield "filter by folder", lambda: bar.filter.choose(SearchQuery(folder_id=order.folders[1].id))
    yield "end of the filter", lambda: bar.filter.choose(SearchQuery())
    yield "search", lambda: desk.search("word7")
    yield "end of the search", lambda: desk.search("")


def commands_on_messages(app: App) -> Iterator[tuple[str, Command]]:
    controller, window = app.controller, app.window
    desk = controller.chats
    last: Callable[[], int] = lambda: controller.chat.path.ids[-1]  # noqa: E731
    yield "leave the chat", desk.chat.start_new
    yield "open the chat", lambda: desk.chat.open(1)
    yield "send", lambda: controller.send("What is new?")
    yield "regenerate", lambda: controller.regenerate(last())
    yield "alternative", lambda: controller.chat.show_alternative(last(), -1)
    yield "edit", lambda: controller.edit_message(controller.chat.path[-2].id, "What else?")
    yield "delete a message", lambda: controller.editor.delete_message(last())
    yield "undo", desk.undo
    yield "back", lambda: controller.chat.show_alternative(controller.chat.path[-2].id, -1)
    yield "alternative in the middle", lambda: controller.chat.show_alternative(LARGE // 2, 1)
    yield "back to the end", lambda: controller.chat.show_alternative(last(), -1)
    yield "regenerate in the middle", lambda: controller.regenerate(LARGE // 2)
    yield "back again", lambda: controller.chat.show_alternative(last(), -2)
    yield "to the start", window.conversation.transcript.scroll_to_start
    yield "to the end", window.conversation.transcript.scroll_to_end
    yield "delete half of it", lambda: controller.editor.delete_message(controller.chat.path.ids[LARGE // 2])
    yield "undo of half", desk.undo
    yield "rename", lambda: desk.rename_conversation(1, "Other")
    yield "search", lambda: desk.search("word7")
    yield "end of the search", lambda: desk.search("")
    yield "delete the chat", lambda: desk.delete_conversation(1)
    yield "undo the deletion", desk.undo
    yield "send again", lambda: controller.send("And now?")


def main() -> None:
    qt = Meter(sys.argv[:1])
    with own_folder():
        fill()
        report = measure(qt)
    for name, write, commands in (
        (f"{LARGE:,} chats, ms", fill_many_chats, commands_on_chats),
        (f"{LARGE:,} messages, ms", fill_long_chat, commands_on_messages),
    ):
        with own_folder():
            write()
            report[name] = measure_large(qt, commands)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
