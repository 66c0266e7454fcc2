"""The app is killed while chats are changed: every finished change is kept, and the last one is whole or absent."""

import os
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from tests.chat.changes import changes, state
from tests.chat.conftest import StartProcess
from tests.chat.storage.project_texts import NAMES, files_named
from tests.processes import kill_begun, moments

KILLS = int(os.environ.get("KILLS", "3"))
CHANGE = """
import sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
from tests.chat.changes import changes

store = ConversationStore(Path(sys.argv[1]))
for _ in changes(store, int(sys.argv[2])):
    print("done", flush=True)
"""


def kill_while_changing(seed: int, database: Path, replay: Path, start_process: StartProcess) -> None:
    """Kill a process that changes chats behind some change, and hold its file against one that was changed calmly."""
    draw = Random(seed)
    app = start_process(CHANGE, database, seed)
    assert app.stdout is not None
    done = draw.randrange(5, 120)
    for _ in range(done):
        assert app.stdout.readline() == "done\n"
    app.kill()
    done += app.stdout.read().count("\n")  # those that were told of between the last reading and the kill
    killed = ConversationStore(database)
    assert killed.notice is None
    killed.close()
    found = state(database)
    calm = ConversationStore(replay)
    made = changes(calm, seed)
    names = list(islice(made, done))
    if state(replay) != found:  # the next one was made, and not told of yet
        names.append(next(made))
        assert state(replay) == found, f"{len(names)} changes, the last of them {names[-2:]}"
    calm.close()


@pytest.mark.slow
def test_kills_at_random_moments_lose_none(tmp_path: Path, start_process: StartProcess) -> None:
    for seed in range(KILLS):
        kill_while_changing(seed, tmp_path / f"{seed}.db", tmp_path / f"calm-{seed}.db", start_process)


STREAM = """
import sys, threading
from pathlib import Path
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.messages import Role

store = ConversationStore(Path(sys.argv[1]))
chat = store.create_conversation("interrupted")
prompt = store.add_message(chat.id, None, Role.USER, "Count.")
reply = store.add_message(chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
text, pause = "", threading.Event()
for number in range(10_000):
    text += f"{number} "
    store.save_text(reply.id, text)
    print(number, flush=True)
    pause.wait(0.02)
"""


def test_a_killed_app_leaves_an_interrupted_reply_with_all_that_was_saved(
    database: Path, start_process: StartProcess
) -> None:
    app = start_process(STREAM, database)
    assert app.stdout is not None
    saved = 0
    while saved < 8:
        saved = int(app.stdout.readline())
    app.kill()
    app.wait()
    assert database.with_name(f"{database.name}-wal").exists()  # it had no time to tidy up
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        (chat,) = store.conversations()
        prompt, reply = store.messages(chat.id)
        assert prompt.text == "Count."
        assert (reply.status, reply.finish_reason) == (MessageStatus.INTERRUPTED, None)
        assert store.conversations("8") == [chat]
        assert reply.text.split()[: saved + 1] == [str(number) for number in range(saved + 1)]
        again = store.reopen_message(reply.id)
        assert (again.status, again.text) == (MessageStatus.STREAMING, reply.text)


KILLED = """
import sys
from pathlib import Path
from rdchat.chat.projects import Project
from rdchat.chat.store import ConversationStore
from tests.chat.storage.project_texts import NAMES, files_named

store = ConversationStore(Path(sys.argv[1]))
print("begun", flush=True)
for number in range(10**6):
    names = NAMES[number % 2]
    store.organiser.set_project(1, Project(names), files_named(names))
"""


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_kill_while_files_are_stored_leaves_those_of_before_or_after(
    tmp_path: Path, start_process: StartProcess, kills: int
) -> None:
    """Whole, with the instructions that came with them, and no text without a file."""
    database = tmp_path / "chats.db"
    with closing(ConversationStore(database)) as store:
        store.organiser.create_folder("Work")
    seen = set[str]()
    for moment_s in moments(kills, 0.4, 76):
        kill_begun(start_process(KILLED, database), moment_s)
        with closing(ConversationStore(database)) as store:
            assert store.notice is None
            (folder,) = store.organiser.folders()
            names = folder.project.instructions
            seen.add(names)
            assert [(file, store.file_text(file)) for file in folder.files] == files_named(names)
            stored = {text for (text,) in store.rows("SELECT text FROM file_texts")}
            assert stored == {text for _, text in files_named(names)}
    assert seen - {""} <= set(NAMES)
