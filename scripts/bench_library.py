"""Measures the list of conversations and searching in it: 1,000 chats in 50 folders with 100,000 messages.

What the window's thread works is told in processor time and as what a click would have waited; an answer's time is from
the last letter typed until the list shows it, the pause after typing included. `--json` prints one object.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from bench_panels import DraftedReply
from bench_transcript import DelayMeter, Meter, wait
from PySide6.QtCore import QEventLoop, Qt
from PySide6.QtTest import QTest
from stand_in_engine import StandInEngine

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role

CHATS, FOLDERS, MESSAGES = 1000, 50, 100_000
WORDS = 5000  # in the language of the messages, the frequent ones first
TYPED = ("w", "wo", "word1", "word12", "word12 word3", "word4999", "nowhere")


def fill(path: object) -> None:
    """Write the chats, with texts of a few words to a few hundred."""
    choose = random.Random(1)
    store = ConversationStore.open(paths.database_path())
    organiser = store.organiser
    folders = [organiser.create_folder(f"Folder {number}").id for number in range(FOLDERS)]
    for number in range(CHATS):
        chat = store.create_conversation(f"Chat {number} about word{choose.randrange(WORDS)}")
        if number % 2:
            organiser.move(chat.id, folders[number % FOLDERS])
        if number % 100 == 0:
            organiser.set_pinned(chat.id, pinned=True)
    vocabulary = [f"word{number}" for number in range(WORDS)]
    weights = [1 / (number + 1) for number in range(WORDS)]
    with store._database.writing() as connection:
        for number in range(1, MESSAGES + 1):
            chat = number % CHATS + 1
            text = " ".join(choose.choices(vocabulary, weights, k=choose.randrange(5, 120)))
            role = (Role.USER, Role.ASSISTANT)[number // CHATS % 2]
            connection.execute(
                "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, model, text)"
                " VALUES (?, ?, ?, ?, 'complete', ?, ?, ?)",
                (chat, number - CHATS if number > CHATS else None, number, role, time.time(),
                 f"model {number % 7}" if role is Role.ASSISTANT else None, text),
            )  # fmt: skip
    store.close()


def measure(qt: Meter) -> dict[str, object]:
    app = App(qt, ConversationStore.open(paths.database_path()), SettingsStore(paths.settings_path()),
              lambda: StandInEngine(DraftedReply))  # fmt: skip
    app.controller.preferences.change(app.controller.preferences.settings)
    app.start()
    wait(3.0)
    window, desk = app.window, app.controller.desk
    window.resize(1000, 680)
    report: dict[str, object] = {"listing_ms": _median_ms(desk.refresh), "rows": len(desk.listing.rows())}
    answers: dict[str, float] = {}
    delays: list[float] = []
    for typed in TYPED:
        desk.search("")
        window.sidebar.search.clear()
        wait(0.5)
        meter = DelayMeter()
        for letter in typed:
            QTest.keyClick(window.sidebar.search, Qt.Key(ord(letter.upper())) if letter != " " else Qt.Key.Key_Space)
            wait(0.06)
        began = time.perf_counter()
        loop = QEventLoop()
        desk.finder.answered.connect(lambda answer, typed=typed: loop.quit() if answer.query.words == typed else None)
        loop.exec()
        answers[typed] = round((time.perf_counter() - began) * 1000, 1)
        wait(0.3)
        meter.stop()
        delays += meter.delays
    report["answer_ms"] = answers
    report["longest_delay_while_searching_ms"] = round(max(delays), 1)
    report["search_thread_ms"] = {
        typed: _median_ms(lambda typed=typed: desk.finder._reader.search(_query(typed)), 3) for typed in TYPED
    }
    window.close()
    app.finish()
    return report


def _query(words: str) -> object:
    from rdchat.chat.storage.search_reader import SearchQuery  # noqa: PLC0415

    return SearchQuery(words)


def _median_ms(work: Callable[[], object], times: int = 9) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    qt = Meter(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RDCHAT_DATA_DIR"] = os.environ["RDCHAT_CACHE_DIR"] = folder
        fill(folder)
        report = measure(qt)
    if options.json:
        print(json.dumps(report))
    else:
        for name, figure in report.items():
            print(f"{name}: {figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
