"""Kills an import at any moment."""

import os
from contextlib import closing
from pathlib import Path

from rdchat.chat.store import ConversationStore
from tests.chat.conftest import StartProcess
from tests.processes import kill_begun

IMPORT = """
import sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
from tests.chat.transfer.tasks import import_into

store = ConversationStore(Path(sys.argv[1]))
print("begun", flush=True)
import_into(store, [Path(sys.argv[2])])
print("done", flush=True)
"""
CHATS = 12
MESSAGES = 40
KILLS = int(os.environ.get("KILLS", "8"))
LONGEST_S = 1.5


def kill_at(moment_s: float, database: Path, file: Path, start_process: StartProcess) -> int:
    """Kill an import so long after it has begun; return the number of chats that the app then shows."""
    kill_begun(start_process(IMPORT, database, file), moment_s)
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        shown = store.conversations()
        assert not store.organiser.deleted_chats()
        store.organiser.erase().result()
        stored = store.rows("SELECT count(*) FROM messages")[0][0]
        assert stored == MESSAGES * len(shown), "nothing is left of what is not shown"
        for chat in shown:
            store.delete_conversation(chat.id)
        store.organiser.schedule_erase([chat.id for chat in shown])
    return len(shown)
