"""Files written by commands are private; chats can be read from read-only folders."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.chat.transfer.samples import chatgpt_with_everything
from tests.disks import small_disk
from tests.grids import share
from tests.users import BECOME_ANOTHER, OTHER_USER, folder_for_all, modes, needs_root

COMMANDS = f"""
import json, os, subprocess, sys
from pathlib import Path
from rdchat.cli import main

def run(place):
    os.environ["RDCHAT_DATA_DIR"] = str(place / "data")
    os.environ["RDCHAT_CACHE_DIR"] = str(place / "out" / "cache")
    out = place / "out"
    return [
        main(["chats", "list"]),
        main(["chats", "list", "--search", "secret"]),
        main(["chats", "export", "--json", str(out / "chats.json")]),
        main(["chats", "export", "--markdown", str(out / "chats")]),
        main(["chats", "backup", str(out / "b.zip")]),
    ]

run(Path(sys.argv[1]))  # imports all that it needs: another user could not
{BECOME_ANOTHER}
print(run(Path(sys.argv[2])))
"""


ONE_BY_ONE = """
import json, os, sys
from rdchat.__main__ import main

_, umask, commands = sys.argv
for arguments in json.loads(commands):
    os.umask(int(umask))
    sys.argv = ["rdchat", *arguments]
    if status := main():
        sys.exit(status)
    print(end="\\0", flush=True)
"""


def store_in(data: Path) -> None:
    with closing(ConversationStore(data / "conversations.db")) as store:
        made = store.create_conversation("Bread")
        store.add_message(made.id, None, Role.USER, "A secret recipe")


def rdchat(*commands: Sequence[object], umask: int = 0o022, **environment: str) -> list[str]:
    """Run commands in one process, since its start takes half a second; each begins with this umask.

    Returns:
        What each command prints.
    """
    words = json.dumps([[str(word) for word in command] for command in commands])
    told = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, str(umask), words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, ""), told.stderr
    return told.stdout.split("\0")[:-1]


def check_closed(folder: Path) -> None:
    open_to_others = {name: mode for name, mode in modes(folder).items() if int(mode, 8) & 0o077 and name != "."}
    assert open_to_others == {}


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o022, 0o002, 0])
def test_what_commands_write_is_closed_whatever_the_umask(small_model: Path, tmp_path: Path, umask: int) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([chatgpt_with_everything()]))
    (tmp_path / "conversations.json").chmod(0o600)
    rdchat(
        ("chats", "import", tmp_path / "conversations.json"),
        ("chats", "export", "--json", tmp_path / "chats.json"),
        ("chats", "export", "--markdown", tmp_path / "chats"),
        ("chats", "backup", tmp_path / "b.zip"),
        ("chats", "restore", tmp_path / "b.zip"),
        ("doctor",),
        ("ask", "Hello", "--model", small_model, "--mode", "off", "--temperature", 0, "--max-tokens", 4),
        umask=umask,
    )
    assert {"conversations.db", "logs"} < set(modes(paths.data_dir()))
    check_closed(tmp_path)


@pytest.mark.slow
def test_folders_that_were_open_are_closed_at_start(tmp_path: Path) -> None:
    paths.data_dir().mkdir()
    store_in(paths.data_dir())
    (paths.cache_dir() / "costs").mkdir(parents=True)
    (paths.cache_dir() / "costs" / "tiny.json").write_text("{}")
    for path in (paths.data_dir(), *paths.data_dir().rglob("*"), *paths.cache_dir().rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    rdchat(("chats", "list"))
    assert {modes(folder)["."] for folder in (paths.data_dir(), paths.cache_dir())} == {"700"}


# Chats that can be read, and nothing else


@pytest.mark.slow
@pytest.mark.parametrize("log", share(["full with its index", "full", "empty", ""], 4))
def test_chats_on_a_disk_that_cannot_be_written_are_read(tmp_path: Path, log: str) -> None:
    """As from a disk image or another machine's backup; the app may have been killed before."""
    disk_folder = tmp_path / "disk"
    out = tmp_path / "out"
    disk_folder.mkdir()
    out.mkdir()
    with small_disk(disk_folder, kibibytes=4096) as disk:
        data = disk_folder / "data"
        data.mkdir()
        store_in(data)
        if log.startswith("full"):
            kill_a_writer(data)
        if log != "full with its index":
            (data / "conversations.db-shm").unlink(missing_ok=True)
        if log == "empty":
            (data / "conversations.db-wal").touch()
        titles = ["Cake", "Bread"] if log.startswith("full") else ["Bread"]
        before = {path.name: path.read_bytes() for path in data.iterdir()}
        disk.make_read_only()
        own = {"RDCHAT_DATA_DIR": str(data)}
        listed, *_ = rdchat(
            ("chats", "list", "--json"),
            ("chats", "export", "--json", out / "chats.json"),
            ("chats", "export", "--markdown", out / "chats"),
            ("chats", "backup", out / "b.zip"),
            **own,
        )
        assert [each["title"] for each in json.loads(listed)["chats"]] == titles
        assert {path.name: path.read_bytes() for path in data.iterdir()} == before
    assert len(list((out / "chats").iterdir())) == len(titles)
    _, restored = rdchat(("chats", "restore", out / "b.zip"), ("chats", "list", "--json"))
    assert [each["title"] for each in json.loads(restored)["chats"]] == titles


def kill_a_writer(data: Path) -> None:
    """Write a chat into the log, and die before it is written back."""
    code = (
        "import os, sys; from pathlib import Path; from rdchat.chat.store import ConversationStore\n"
        "ConversationStore(Path(sys.argv[1])).create_conversation('Cake')\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(data / "conversations.db")], check=True)
    assert (data / "conversations.db-wal").stat().st_size > 0


@needs_root
def test_chats_in_a_folder_that_may_not_be_written_are_read() -> None:
    with folder_for_all() as place:
        for name in ("first", "second"):
            (place / name / "data").mkdir(parents=True)
            (place / name / "out").mkdir()
            store_in(place / name / "data")
        for path in ((place / "second"), *(place / "second").rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)
        (place / "second" / "data" / "conversations.db").chmod(0o400)
        (place / "second" / "data").chmod(0o500)
        command = [sys.executable, "-c", COMMANDS, str(place / "first"), str(place / "second")]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told.stdout.splitlines()[-1:] == ["[0, 0, 0, 0, 0]"], told.stderr
        assert (place / "second" / "out" / "b.zip").exists()
