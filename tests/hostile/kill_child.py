"""The app with a person at it who never rests: `python -m tests.hostile.kill_child JOURNAL SEED [MODEL]`.

The journal tells what the app had been given and what it had stored, with times. It is appended to line by line, so it
holds all of it when the process is killed. Without a model, an engine of ours writes some 200 characters a second.
"""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Slot

from rdchat import app as composition, paths
from rdchat.app import App
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import (
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ReplyEnd,
    Role,
    SamplingParams,
    Statistics,
    TokenEvent,
)
from tests.hostile.heartbeat import Heartbeat, Script, wait
from tests.listed_chats import listed
from tests.services.fakes import ScriptedEngine

_TOKENS_A_SECOND = 50
_LONGEST_REPLY = 400
_ACTION_S = (0.05, 0.5)  # between two actions
_STREAMING = MessageStatus.STREAMING


class SteadyReply:
    """A `TokenIterator` that writes words at a steady pace."""

    def __init__(self, request_id: int, words: random.Random) -> None:
        self._cancelled = threading.Event()
        self._events = self._make(request_id, words)
        self.statistics = Statistics()

    def _make(self, request_id: int, words: random.Random) -> Iterator[GenerationEvent]:
        text = ""
        for index in range(words.randrange(5, _LONGEST_REPLY)):
            if self._cancelled.wait(1 / _TOKENS_A_SECOND):
                break
            token = f"{words.randrange(1000):03} "
            text += token
            yield TokenEvent(request_id, index, index, token)
        reason = FinishReason.CANCELLED if self._cancelled.is_set() else FinishReason.EOS
        yield ReplyEnd(request_id, text, (), "", reason, self.statistics)

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self._events

    def __next__(self) -> GenerationEvent:
        return next(self._events)

    def update(self, _settings: object) -> None:
        """Draft by nothing else."""

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._cancelled.set()


class SteadyEngine(ScriptedEngine):
    """An engine whose replies are made at a steady pace."""

    words = random.Random(1)

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> Any:
        return SteadyReply(request.request_id, self.words)


class Journal:
    """Says what happened, with the time of the system's monotonic clock, which the one who kills has too."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, did: str, **facts: object) -> None:
        os.write(self._file, (json.dumps({"t": time.monotonic(), "did": did, **facts}) + "\n").encode())


class Person(QObject):
    """Sends, edits, switches, deletes and stops at random."""

    def __init__(self, app: App, journal: Journal, seed: int) -> None:
        super().__init__()
        self._controller = app.controller
        self._journal = journal
        self._random = random.Random(seed)
        self._controller.chat.message_added.connect(self._on_message)
        self._controller.chat.message_changed.connect(self._on_message)
        self._controller.chat.reply_grew.connect(self._on_text)
        self._given: dict[int, int] = {}  # characters of each reply that were shown
        self._controller.chat.path_changed.connect(self._on_transcript)
        self._heart = Heartbeat(lambda: None, self)
        self._heart.play(self._act())

    def _act(self) -> Script:
        actions: list[Callable[[], None]] = [
            self._send, self._send, self._send, self._edit, self._regenerate, self._open, self._new, self._delete,
            self._rename, self._controller.stop_reply, self._alternate, self._put_in_order, self._put_in_order,
        ]  # fmt: skip
        while True:
            yield wait(self._random.uniform(*_ACTION_S))
            self._random.choice(actions)()

    def _send(self) -> None:
        self._controller.send(f"Question {self._random.random()}")

    def _edit(self) -> None:
        if prompt := self._any(Role.USER):
            self._controller.edit_message(prompt.id, f"Edited {self._random.random()}")

    def _regenerate(self) -> None:
        if reply := self._any(Role.ASSISTANT):
            self._controller.regenerate(reply.id)

    def _alternate(self) -> None:
        if message := self._any(self._random.choice([Role.USER, Role.ASSISTANT])):
            self._controller.chat.show_alternative(message.id, self._random.choice([-1, 1]))

    def _any(self, role: Role) -> Message | None:
        found = [message for message in self._controller.chat.path if message.role is role]
        return self._random.choice(found) if found else None

    def _open(self) -> None:
        if chats := listed(self._controller.chats):
            self._controller.chat.open_chat(self._random.choice(chats).id)

    def _new(self) -> None:
        self._controller.chat.start_new()

    def _rename(self) -> None:
        if chats := listed(self._controller.chats):
            self._controller.chats.rename_conversation(self._random.choice(chats).id, f"Name {self._random.random()}")

    def _delete(self) -> None:
        chats = listed(self._controller.chats)
        if len(chats) > 3:
            chosen = self._random.choice(chats).id
            self._journal.note("deleting", chat=chosen)  # from here on it may be gone
            self._controller.chats.delete_conversation(chosen)

    def _put_in_order(self) -> None:
        """Pin, move, copy, put away or take back; nothing of it may cost a message."""
        desk = self._controller.chats
        choose = self._random.choice
        if not (chats := listed(desk)):
            return
        chat = choose(chats)
        order = desk.order
        folder = choose([None, *(folder.id for folder in order.folders)])
        choose(
            [
                lambda: order.set_pinned(chat, chat.pinned_at is None),
                lambda: order.set_archived(chat, not chat.archived),
                lambda: order.move(chat, folder),
                lambda: order.create_folder("Folder", chat=chat) if len(order.folders) < 20 else None,
                lambda: order.delete_folder(choose(order.folders)) if order.folders else None,
                lambda: order.duplicate(chat) if len(chats) < 20 else None,
                desk.undo,
            ]
        )()

    @Slot(Message)
    def _on_message(self, message: Message) -> None:
        """Note what the store has already."""
        if message.status is not _STREAMING:
            self._journal.note("stored", id=message.id, chat=message.conversation_id, text=message.text)

    @Slot(int, str)
    def _on_text(self, message_id: int, _text: str) -> None:
        message = self._controller.chat.path.find_message(message_id)
        assert message is not None, "only replies of the path grow"
        text = message.text
        begin = min(self._given.get(message_id, 0), len(text))
        self._given[message_id] = len(text)
        self._journal.note("given", id=message_id, text=text[begin:])

    @Slot()
    def _on_transcript(self) -> None:
        for message in self._controller.chat.path:
            if message.role is Role.USER:
                self._on_message(message)


def main() -> int:
    """Run until killed."""
    journal = Journal(Path(sys.argv[1]))
    seed = int(sys.argv[2])
    model = sys.argv[3] if len(sys.argv) > 3 else None
    qt = composition.application()
    SteadyEngine.words = random.Random(seed)
    settings = SettingsStore(paths.settings_path())
    settings.save_settings(Settings(model=model, sampling=SamplingParams(max_tokens=300)))
    store = ConversationStore(paths.database_path(), wait=False)
    if store.notice:
        journal.note("notice", text=str(store.notice))
    app = App(qt, store, settings, composition.make_engine if model else SteadyEngine)
    person = Person(app, journal, seed)
    app.open_window()
    journal.note("started")
    status = qt.exec()
    del person
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
