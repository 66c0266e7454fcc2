"""The app is killed while chats are changed: every finished change is kept, and the last one is whole or absent."""

import os
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from rdchat.chat.store import ConversationStore
from tests.chat.changes import changes, state
from tests.chat.conftest import StartProcess

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
