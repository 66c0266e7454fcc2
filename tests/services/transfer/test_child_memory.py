"""The process that reads strangers' chats has a limit of memory, and hostile files stay within it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import transfer_process
from rdchat.chat.transfer.transfer_process import TransferProcess
from rdchat.errors import StorageError
from tests.chat.transfer.huge_chats import HUGE, within, write, write_zip

SIZE = 512 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore(tmp_path / "conversations.db")
    yield store
    store.close()


@pytest.fixture
def process() -> Iterator[TransferProcess]:
    process = TransferProcess()
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize("archived", [True, False])
def test_an_archive_of_500_kb_stays_within_a_gigabyte(
    process: TransferProcess, store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archived: bool
):
    """Parsed as a whole, its dictionaries without content took 9.6 GB."""
    monkeypatch.setattr(transfer_process, "_MEMORY_BYTES", 10**9)
    parts = within(*HUGE["dictionaries without content"], SIZE)
    path = write_zip(tmp_path / "a.zip", parts) if archived else write(tmp_path / "conversations.json", parts)
    assert not archived or path.stat().st_size < 600_000
    with pytest.raises(StorageError, match=r"took more than 1\.00 GB of memory, so it was ended"):
        process.import_files(store, [path], lambda _progress: None).result()
    assert not store.conversations()


@pytest.mark.slow
def test_an_import_past_its_limit_is_ended_and_says_so(
    process: TransferProcess, store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transfer_process, "_MEMORY_BYTES", 100 << 20)
    path = write(tmp_path / "conversations.json", within(*HUGE["one string"], 60 << 20))
    with pytest.raises(StorageError, match=r"took more than 105 MB of memory, so it was ended"):
        process.import_files(store, [path], lambda _progress: None).result()
    assert not store.conversations()
    assert not store.rows("SELECT id FROM conversations")
