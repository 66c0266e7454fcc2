from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.storage import connections
from rdchat.chat.store import ConversationStore
from rdchat.services.chat import chat_context, context_meter, reply_recorder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore(tmp_path / "conversations.db")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have timers and retries take hundredths of what they take a person: the order of events stays."""
    monkeypatch.setattr(reply_recorder, "_RETRY_INTERVAL_MS", 20)
    monkeypatch.setattr(context_meter, "_QUIET_MS", 10)
    monkeypatch.setattr(chat_context, "_CALM_MS", 50)
    monkeypatch.setattr(connections, "_BUSY_S", 0.01)
