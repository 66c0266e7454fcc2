"""The window writes before a process that imports on its behalf."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.storage.precedence import Precedence, precedence_path
from rdchat.chat.store import ConversationStore


def test_the_other_side_waits_while_the_window_writes(tmp_path: Path):
    window, process = Precedence(tmp_path / "chats.db"), Precedence(tmp_path / "chats.db")
    went_on = threading.Event()
    with closing(window), closing(process):
        with window.wanted():
            waiting = threading.Thread(target=lambda: (process.wait(), went_on.set()))
            waiting.start()
            assert not went_on.wait(0.1)
        assert went_on.wait(5)
        waiting.join()


def test_nobody_waits_where_nobody_writes_or_the_file_cannot_be_made(tmp_path: Path):
    for database in (tmp_path / "chats.db", tmp_path / "nowhere" / "chats.db"):
        with closing(Precedence(database)) as precedence:
            precedence.wait()
            with precedence.wanted():
                precedence.wait()


def test_the_store_asks_for_it_only_while_it_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with closing(ConversationStore.open(tmp_path / "chats.db")) as store:
        store.create_conversation("Before")
        assert not precedence_path(store.path).exists()
        store.share(True)
        store.share(True)
        with closing(Precedence(store.path)) as process:
            store.create_conversation("Meanwhile")
            process.wait()
        store.share(False)
        assert not precedence_path(store.path).exists()
        store.create_conversation("After")
    assert not precedence_path(tmp_path / "chats.db").exists()
