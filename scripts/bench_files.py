"""Measures files in chats: what 200 of them add to opening 10,000 messages, storing long ones, and ranking passages.

`--json` prints one object; times are in milliseconds, the median of several.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.attachments.choosing import passages_of, ranked
from rdchat.chat.storage.files import OF_CONVERSATION, with_files
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role

MESSAGES, FILES, CHARACTERS = 10_000, 200, 100_000
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


def filled(store: ConversationStore) -> int:
    chat = store.create_conversation("With files")
    parent = None
    for number in range(MESSAGES):
        files = []
        if number % (MESSAGES // FILES) == 0:
            file, text = some_file(number, CHARACTERS)
            files = [(attached(file, text), text)]
        role = (Role.USER, Role.ASSISTANT)[number % 2]
        parent = store.add_message(chat.id, parent, role, "Some words. " * 20, files=files).id
    return chat.id


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = ConversationStore.open(Path(folder) / "conversations.db")
        chat = filled(store)
        messages = store.messages(chat)
        assert sum(len(message.files) for message in messages) == FILES
        long, text = some_file(1, LONG)
        longest, _ = some_file(2, LONGEST)
        number = 0

        def add() -> None:
            nonlocal number
            number += 1
            fresh = f"{number} {text}"
            store.add_message(chat, None, Role.USER, "Well?", files=[(attached(long, fresh), fresh)])

        figures = {
            "open_10000_messages": median_ms(lambda: store.messages(chat)),
            "of_it_200_files": median_ms(lambda: with_files(messages, store._database.rows(OF_CONVERSATION, chat))),
            "store_2_million_characters": median_ms(add),
            "rank_8_million_characters": median_ms(lambda: ranked(passages_of(longest), "what of word7 and word99?")),
        }
        store.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    figures = measure()
    if parser.parse_args().json:
        print(json.dumps({"files": figures}))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):32} {value:>8.1f} ms")


if __name__ == "__main__":
    main()
