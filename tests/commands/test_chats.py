"""`rdchat chats`."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.cli import main
from rdchat.inference.api import Role
from tests.chat.transfer.samples import chatgpt_with_everything
from tests.commands.running import Console
from tests.processes import python_process
from tests.services.conftest import *  # noqa: F403  its fixtures, which make an app without a window


@pytest.fixture
def chat() -> int:
    """A chat in the store of the command line."""
    with closing(ConversationStore(paths.database_path())) as store:
        made = store.create_conversation("Bread")
        question = store.add_message(made.id, None, Role.USER, "How is bread made?")
        store.add_message(made.id, question.id, Role.ASSISTANT, "With flour.", model="tiny")
    return made.id


@pytest.fixture
def rivers(tmp_path: Path) -> Path:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt_with_everything()]))
    return path


def titles() -> list[str]:
    with closing(ConversationStore(paths.database_path())) as store:
        return [each.title for each in store.conversations()]


def test_list_tells_ids_and_titles(console: Console, chat: int):
    (listed,) = console.json("chats", "list")["chats"]
    assert (listed["id"], listed["title"], listed["messages"]) == (chat, "Bread", 2)
    assert "Bread  2 messages" in console.runs("chats", "list", "--search", "flour").out
    assert console.json("chats", "list", "--search", "stone") == {"chats": []}


def test_list_of_nothing_is_empty_and_makes_nothing(console: Console):
    assert console.json("chats", "list") == {"chats": []}
    assert not paths.database_path().exists()


@pytest.mark.slow
def test_export_and_import_give_the_chat_back(console: Console, chat: int, tmp_path: Path):
    assert main(["chats", "export", "--json", str(tmp_path / "all.json")]) == 0
    assert main(["chats", "export", "--markdown", str(tmp_path / "bread.md"), "--chat", str(chat), "--details"]) == 0
    assert console.runs("chats", "export", "--markdown", tmp_path / "all").out.splitlines() == [
        str(tmp_path / name) for name in ("all.json", "bread.md", "all")
    ]
    assert "## tiny\n\nWith flour." in (tmp_path / "bread.md").read_text()
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["Bread.md"]
    with closing(ConversationStore(paths.database_path())) as store:
        store.delete_conversation(chat)
    report = console.json("chats", "import", tmp_path / "all.json")
    assert (report["chats"], report["messages"], report["complete"]) == (1, 2, True)
    assert titles() == ["Bread"]


@pytest.mark.slow
def test_import_ends_with_1_where_something_was_not_taken(console: Console, rivers: Path, tmp_path: Path):
    (tmp_path / "bad.json").write_text("{")
    lines = console.runs("chats", "import", rivers, tmp_path / "bad.json", status=1).out.splitlines()
    assert lines[0] == "Imported 1 chat with 4 messages."
    assert "Without 1 custom instruction, 1 image, 1 tool call, 1 tool result: Rivers" in lines
    assert (
        "Not imported: bad.json is not valid JSON: it is damaged or incomplete, or no file that rdchat reads." in lines
    )
    assert titles() == ["Rivers"]


@pytest.mark.slow
def test_refusals(console: Console, chat: int, tmp_path: Path):
    console.refuses(["chats", "export", "--json", tmp_path / "a.json", "--chat", "99"], "no chat 99", 1)
    console.refuses(["chats", "export", "--json", tmp_path], "is a folder", 2)
    console.refuses(["chats", "backup", tmp_path], "is a folder", 2)
    console.refuses(["chats", "restore", tmp_path / "none.zip"], "cannot be read", 1)
    (tmp_path / "text.zip").write_text("text")
    console.refuses(["chats", "restore", tmp_path / "text.zip"], "is damaged", 1)
    assert titles() == ["Bread"]


@pytest.mark.parametrize("command", [("backup",), ("export", "--json"), ("export", "--chat", "1", "--markdown")])
def test_a_file_that_is_there_is_replaced_only_by_force_and_our_own_never(
    console: Console, chat: int, tmp_path: Path, command: tuple[str, ...]
):
    notes = tmp_path / "notes.md"
    link = tmp_path / "link.db"
    notes.write_text("my own")
    link.symlink_to(paths.database_path())
    console.refuses(["chats", *command, notes], "already exists", 2)
    assert notes.read_text() == "my own"
    for own in (paths.database_path(), paths.settings_path(), link):
        console.refuses(["chats", *command, own, "--force"], "rdchat itself uses", 2)
    console.runs("chats", *command, notes, "--force")
    assert notes.read_bytes() != b"my own"
    assert titles() == ["Bread"]


@pytest.mark.slow
def test_backup_and_restore(console: Console, chat: int, tmp_path: Path):
    facts = console.json("chats", "backup", tmp_path / "b.zip")
    assert (facts["chats"], facts["messages"]) == (1, 2)
    with closing(ConversationStore(paths.database_path())) as store:
        store.rename_conversation(chat, "Cake")
    kept = console.json("chats", "restore", tmp_path / "b.zip")
    assert titles() == ["Bread"]
    console.runs("chats", "restore", kept["database"])
    assert titles() == ["Cake"]


_WRITES_ON = """
import sys, threading
from pathlib import Path
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.messages import Role
store = ConversationStore(Path(sys.argv[1]))
chat, last, stop = store.create_conversation("Written meanwhile"), None, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
count = 0
while not stop.is_set():
    last = store.add_message(chat.id, last, Role.USER, "more").id
    count += 1
    if count == 10:
        print("writing", flush=True)
store.close()
print(count)
"""


@pytest.mark.slow
def test_nothing_is_restored_below_a_process_that_writes(console: Console, chat: int, tmp_path: Path):
    console.json("chats", "backup", tmp_path / "b.zip")
    with python_process(_WRITES_ON, paths.database_path()) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        console.refuses(["chats", "restore", tmp_path / "b.zip"], "Quit rdchat first", 1)
        written = int(writer.communicate("")[0])
    with closing(ConversationStore(paths.database_path())) as store:
        (mine,) = [each for each in store.conversations() if each.title == "Written meanwhile"]
        assert len(store.messages(mine.id)) == written
    assert not list(paths.data_dir().glob("*restore*"))


def test_while_rdchat_is_open_import_and_restore_say_to_quit_it_and_the_rest_reads(
    console: Console, chat: int, rivers: Path, tmp_path: Path
):
    with closing(ConversationStore(paths.database_path())):
        console.runs("chats", "backup", tmp_path / "b.zip")
        console.refuses(["chats", "import", rivers], "Quit rdchat first", 1)
        console.refuses(["chats", "restore", tmp_path / "b.zip"], "Quit rdchat first", 1)
        console.runs("chats", "export", "--json", tmp_path / "all.json")
        console.runs("chats", "list")
    assert titles() == ["Bread"]
