from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore(tmp_path / "conversations.db")
    yield store
    store.close()
