"""The process that reads strangers' chats has a limit of memory, and hostile files stay within it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.reports import ImportReport
from rdchat.chat.transfer.tasks import import_task
from rdchat.work.child_limits import ChildLimitError, Limits
from rdchat.work.child_process import ChildProcess
from tests.chat.transfer.huge_chats import HUGE, within, write, write_zip

SIZE = 512 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore.open(tmp_path / "conversations.db")
    yield store
    store.close()


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    child = ChildProcess("transfer")
    yield child
    child.close()


def imported(child: ChildProcess, store: ConversationStore, path: Path, memory_bytes: int) -> ImportReport:
    task = import_task(store.path, [path], considerate=False)
    return ImportReport.from_json(child.submit("run", {"task": task}, Limits(memory_bytes=memory_bytes)).result())


@pytest.mark.slow
@pytest.mark.parametrize("archived", [True, False])
def test_an_archive_of_500_kb_stays_within_a_gigabyte(
    child: ChildProcess, store: ConversationStore, tmp_path: Path, archived: bool
):
    """Parsed as a whole, its dictionaries without content took 9.6 GB."""
    parts = within(*HUGE["dictionaries without content"], SIZE)
    path = write_zip(tmp_path / "a.zip", parts) if archived else write(tmp_path / "conversations.json", parts)
    assert not archived or path.stat().st_size < 600_000
    report = imported(child, store, path, 10**9)
    assert {each.title for each in store.conversations()} == {"First", "Last"}
    assert [each.title for each in report.not_taken] == ["Huge"]


def test_an_import_past_its_limit_is_ended_and_says_so(child: ChildProcess, store: ConversationStore, tmp_path: Path):
    path = write(tmp_path / "conversations.json", within(*HUGE["one string"], 60 << 20))
    with pytest.raises(ChildLimitError, match=r"took more than 0\.1 GB of memory, so it was ended"):
        imported(child, store, path, 100 << 20)
    assert not store.conversations()
