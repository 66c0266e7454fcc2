"""Measures long chats and files: opening 10,000 messages with 200 files, storing long files, and ranking passages.

A chat is opened through the window of the whole app, until the messages in view are drawn: `cpu` is the main thread's
processor time, `wall` the elapsed time, `first` that of the first opening. A short chat shows the window's own share.
Times are in milliseconds, medians of several.
"""

import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable

from bench_panels import DraftedReply
from bench_transcript import Mark, synthetic_reply, wait
from PySide6.QtWidgets import QApplication
from stand_in_app import own_folder, running_app

from rdchat import paths
from rdchat.app import App
from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.attachments.choosing import passages_of, ranked
from rdchat.chat.conversation import Drafting, MadeWith, MessageStatus, Thinking
from rdchat.chat.storage.rows import json_column
from rdchat.chat.storage.whole_chat import add_files
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode, Role, SamplingParams
from rdchat.ui.transcript.markdown.text_body import Work

MESSAGES, FILES, CHARACTERS = 10_000, 200, 100_000
SHORT = 20  # messages
LONG, LONGEST = 2_000_000, 8_000_000  # characters that are sent at most, and read at most
TIMES = 5


def median_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 1)


def some_file(number: int, characters: int) -> tuple[ReadFile, str]:
    text = " ".join(f"word{(number * 7919 + place * place) % 50_000}" for place in range(characters // 10))
    return ReadFile(f"file {number}.txt", FileKind.TEXT, (text,)), text


def fill(store: ConversationStore, count: int) -> int:
    """Store a chat with replies as the app keeps them: statistics, what was drafted, thinking, what was asked with."""
    chat = store.create_conversation(f"{count} messages")
    answer = "".join(synthetic_reply()[:300])
    counters = Statistics(accepted_lengths=(50, 40, 30, 20, 10))

    def insert(connection: sqlite3.Connection) -> None:
        (before,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
        for number in range(1, count + 1):
            asked = number % 2
            connection.execute(
                "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, model, seed,"
                " finish_reason, statistics, drafting, thinking, made_with, text)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (chat.id, before + number - 1 if number > 1 else None, number, Role.USER if asked else Role.ASSISTANT,
                 MessageStatus.COMPLETE, time.time(), None if asked else "stand-in", None if asked else number,
                 None if asked else FinishReason.EOS, None if asked else json_column(counters),
                 None if asked else json_column(Drafting(Mode.OFF, "This engine drafts nothing.")),
                 None if asked else json_column(Thinking(ms=12.5)),
                 None if asked else json_column(MadeWith(SamplingParams())),
                 f"Question {number}?" if asked else answer),
            )  # fmt: skip
            if number % (MESSAGES // FILES) == 1:
                file, text = some_file(number, CHARACTERS)
                add_files(connection, before + number, [(attached(file, text), text)])

    store.write(insert)
    return chat.id


def open_in_window(qt: QApplication, long: int, short: int) -> dict[str, float]:
    """Open a long and a short chat by turns, in the window of the app."""
    taken: dict[int, list[tuple[float, float]]] = {long: [], short: []}
    with running_app(qt, DraftedReply) as app:
        app.window.resize(1000, 680)
        wait(3.0)
        for chat in (long, short) * TIMES:
            app.controller.chat.start_new()
            wait(1.0)
            opening = Mark()
            app.controller.chat.open(chat)
            while is_drawing(app):
                QApplication.processEvents()
            app.window.repaint()
            cpu, wall = time.thread_time() - opening.cpu, time.perf_counter() - opening.wall
            taken[chat].append((cpu * 1000, wall * 1000))
            wait(1.5)  # it counts the context and draws what is above meanwhile
    figures = {}
    for chat, name in ((long, f"open_{MESSAGES}_messages"), (short, f"open_{SHORT}_messages")):
        figures[f"{name}_first_cpu"] = round(taken[chat][0][0], 1)
        for place, kind in enumerate(("cpu", "wall")):
            figures[f"{name}_{kind}"] = round(statistics.median(each[place] for each in taken[chat]), 1)
    return figures


def is_drawing(app: App) -> bool:
    """Whether a message in view is not drawn yet."""
    view = app.window.conversation.transcript
    return any(widget.work is Work.READY for widget in view.widgets.values() if view.is_in_view(widget))


def measure(qt: QApplication) -> dict[str, float]:
    store = ConversationStore(paths.database_path())
    long_chat, short_chat = fill(store, MESSAGES), fill(store, SHORT)
    chat = store.create_conversation("With files")
    long, text = some_file(1, LONG)
    longest, _ = some_file(2, LONGEST)
    number = 0

    def add() -> None:
        nonlocal number
        number += 1
        fresh = f"{number} {text}"
        store.add_message(chat.id, None, Role.USER, "Well?", files=[(attached(long, fresh), fresh)])

    figures = {
        "path_of_10000_messages": median_ms(lambda: store.messages(long_chat)),
        "store_2_million_characters": median_ms(add),
        "rank_8_million_characters": median_ms(lambda: ranked(passages_of(longest), "what of word7 and word99?")),
    }
    store.close()
    return open_in_window(qt, long_chat, short_chat) | figures


def main() -> None:
    qt = QApplication(sys.argv[:1])
    with own_folder():
        figures = measure(qt)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
