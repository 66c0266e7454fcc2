"""A backup or export that is killed at any of its steps: after the next start its folder is as before, or complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# It forks at each step, so it is a process of its own, without threads. A step is whatever Python's audit hooks see.
KILL_AT_EACH_STEP = """
import json, os, shutil, signal, sys
from contextlib import closing
from pathlib import Path
from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.files import remove_unfinished
from rdchat.inference.api import Role
from tests.chat.transfer import tasks

STEPS = ("open", "os.", "shutil.", "sqlite3.")
kind, folder = sys.argv[1], Path(sys.argv[2])
database = paths.database_path()
database.parent.mkdir()
with closing(ConversationStore(database)) as store:
    chat = store.create_conversation("Bread")
    store.add_message(chat.id, None, Role.USER, "How?")

def write(path):
    if kind == "backup":
        tasks.back_up(database, paths.settings_path(), path)
    else:
        tasks.export(database, path, kind, [chat.id] if kind == "markdown" else None)

def names():
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))

def run(steps):
    left = steps
    def count(event, _arguments):
        nonlocal left
        if event.startswith(STEPS):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    write(folder / "chosen")
    os._exit(0)

write(folder / "chosen")
complete = names()
seen = []
step = 0
status = -1
while status:
    shutil.rmtree(folder)
    folder.mkdir()
    step += 1
    if (child := os.fork()) == 0:
        run(step)
    _, status = os.waitpid(child, 0)
    killed = names()
    remove_unfinished()
    if names() not in ([], complete):
        seen.append((step, killed, names()))
print(json.dumps({"steps": step, "wrong": seen, "notes": os.listdir(paths.data_dir() / "unfinished")}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["backup", "json", "markdown", "folder"])
def test_a_kill_at_any_step_leaves_nothing_half(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "chosen"
    folder.mkdir()
    command = [sys.executable, "-c", KILL_AT_EACH_STEP, kind, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["steps"] > 10
    assert found["wrong"] == []
    assert found["notes"] == []
