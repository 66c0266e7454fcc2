"""An import is killed at any moment: afterwards all of a file is there, its project and its chats, or nothing."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from tests.chat.conftest import StartProcess
from tests.chat.transfer.samples import ours
from tests.processes import kill_begun, moments

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
FILES = 9
KILLS = int(os.environ.get("KILLS", "8"))


@pytest.mark.slow
def test_a_killed_import_leaves_nothing(database: Path, start_process: StartProcess, tmp_path: Path):
    ConversationStore(database).close()
    message = {"role": "user", "text": "Words " * 100}
    chats = [{"title": f"Chat {number}", "messages": [message] * MESSAGES} for number in range(CHATS)]
    files = [{"name": f"{number}", "kind": "text", "text": f"{number} " * 40_000} for number in range(FILES)]
    project = {
        "title": "Work",
        "folder": ["Work"],
        "project": True,
        "messages": [message | {"text": "", "files": files}],
    }
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(ours(project, *chats)))
    for moment_s in moments(KILLS, 1.5, 36):
        kill_begun(start_process(IMPORT, database, path), moment_s)
        with closing(ConversationStore(database)) as store:
            assert store.notice is None
            assert not store.organiser.deleted_chats()
            store.organiser.erase().result()
            shown = [chat.id for chat in store.conversations()]
            is_whole = bool(shown)
            assert len(shown) == CHATS * is_whole
            assert store.rows("SELECT count(*) FROM messages") == [(MESSAGES * len(shown),)], "nothing hidden is left"
            assert store.rows("SELECT count(*) FROM file_texts") == [(FILES * is_whole,)]
            assert [len(folder.files) for folder in store.organiser.folders()] == [FILES] * is_whole
            for folder in store.organiser.folders():
                store.organiser.delete_folder(folder.id)
                store.organiser.erase_folder(folder.id)
            for each in shown:
                store.delete_conversation(each)
            store.organiser.schedule_erase(shown)
