"""Measures an import while the app is open: its speed, and how long the window waits.

A file in ChatGPT's format is imported while a reply is saved three times a second. The same is measured before without
an import, since a busy machine delays the window too.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from stand_in_app import new_app, own_folder
from stand_in_engine import StandInReply

from rdchat import paths
from rdchat.app import application
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role

_SAVE_S = 0.3
_BEFORE_MS = 5000
_WORDS = 20_000  # different ones, of which texts are made


@dataclass(frozen=True, slots=True)
class Waits:
    """What the main thread waited."""

    seconds: float  # how long it was measured
    longest_turn_ms: float  # the longest that the event loop worked without a look at what came in
    longest_save_ms: float  # the longest that a reply took to be saved
    saves: int  # how many there were


def write_chats(path: Path, megabytes: float) -> None:
    """Write a `conversations.json` of about this size."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(_WORDS)]
    chats = []
    for number in range(max(1, round(megabytes * 1e6 / 92_000))):
        nodes = {
            str(place): {
                "id": str(place),
                "parent": str(place - 1) if place else None,
                "message": {
                    "author": {"role": "assistant" if place % 2 else "user"},
                    "create_time": 1.7e9 + place,
                    "content": {"content_type": "text", "parts": [" ".join(chance.choices(words, k=250))]},
                },
            }
            for place in range(50)
        }
        chats.append({"title": f"Chat {number}", "create_time": 1.7e9, "mapping": nodes, "current_node": "49"})
    path.write_text(json.dumps(chats))


def measure(qt: QApplication, save: Callable[[int], object], begin: Callable[[Callable[..., None]], object]) -> Waits:
    """Work on events until what `begin` was given is called."""
    over: list[bool] = []
    begin(lambda *_results: over.append(True))
    began, saved, saves, turn, longest = time.perf_counter(), 0.0, 0, 0.0, 0.0
    while not over:
        before = time.perf_counter()
        qt.processEvents()
        after = time.perf_counter()
        turn = max(turn, after - before)
        if after - saved > _SAVE_S:
            saved, saves = after, saves + 1
            save(saves)
            longest = max(longest, time.perf_counter() - after)
        time.sleep(0.002)
    return Waits(round(time.perf_counter() - began, 2), round(turn * 1000, 1), round(longest * 1000, 1), saves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=4.0, help="size of the file")
    options = parser.parse_args()
    with own_folder() as folder:
        file = folder / "conversations.json"
        write_chats(file, options.megabytes)
        qt = application()
        store = ConversationStore(paths.database_path())
        prompt = store.add_message(store.create_conversation("Live").id, None, Role.USER, "Go on")
        streaming = MessageStatus.STREAMING
        reply = store.add_message(prompt.conversation_id, prompt.id, Role.ASSISTANT, "", status=streaming)
        app = new_app(qt, store, StandInReply)
        app.start()
        save = lambda number: store.save_text(reply.id, "word " * number)  # noqa: E731
        measure(qt, save, lambda over: QTimer.singleShot(_BEFORE_MS, over))  # the window is built

        def begin(over: Callable[..., None]) -> None:
            app.transfer.import_files([file], lambda _progress: None, over)

        found = {
            "without": asdict(measure(qt, save, lambda over: QTimer.singleShot(_BEFORE_MS, over))),
            "import": asdict(measure(qt, save, begin)) | {"megabytes": round(file.stat().st_size / 1e6, 2)},
        }
        app.window.close()
        assert app.finish()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
