import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from tests.disks import SmallDisk, small_disk
from tests.processes import python_process
from tests.stores import quick_stores

__all__ = ["quick_stores"]

type OpenStore = Callable[[], ConversationStore]
type StartProcess = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.db"


@pytest.fixture
def open_store(database: Path) -> Iterator[OpenStore]:
    """Opens the store at `database`; what a test leaves open is closed at its end."""
    with ExitStack() as stack:

        def opened() -> ConversationStore:
            store = ConversationStore(database)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def store(open_store: OpenStore) -> ConversationStore:
    return open_store()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A real file system with room for a new store, whose write-ahead log alone takes 600 kB, and little more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, kibibytes=1280) as mounted:
        yield mounted


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Runs Python code with arguments in a process of its own, connected by pipes; killed at the end of the test."""
    with ExitStack() as stack:
        yield lambda code, *arguments: stack.enter_context(python_process(code, *arguments))
