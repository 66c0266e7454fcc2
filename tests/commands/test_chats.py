"""`rdchat chats`, with the window closed and with it open."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.cli import main
from rdchat.inference.api.requests import Role
from rdchat.services.app.single_instance import SingleInstance
from rdchat.services.transfer_desk import TransferDesk
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, chatgpt_with_everything
from tests.commands.running import check_refused, printed_json
from tests.processes import python_process
from tests.services.conftest import *  # noqa: F403  its fixtures, which make an app without a window
from tests.services.window import Window

WAIT_MS = 60_000


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


def test_list_tells_ids_and_titles(capsys: pytest.CaptureFixture[str], chat: int):
    (listed,) = printed_json(capsys, "chats", "list")["chats"]
    assert (listed["id"], listed["title"], listed["messages"]) == (chat, "Bread", 2)
    assert main(["chats", "list", "--search", "flour"]) == 0
    assert "Bread  2 messages" in capsys.readouterr().out
    assert printed_json(capsys, "chats", "list", "--search", "stone") == {"chats": []}


def test_list_of_nothing_is_empty_and_makes_nothing(capsys: pytest.CaptureFixture[str]):
    assert printed_json(capsys, "chats", "list") == {"chats": []}
    assert not paths.database_path().exists()


def test_export_and_import_give_the_chat_back(capsys: pytest.CaptureFixture[str], chat: int, tmp_path: Path):
    assert main(["chats", "export", "--json", str(tmp_path / "all.json")]) == 0
    assert main(["chats", "export", "--markdown", str(tmp_path / "bread.md"), "--chat", str(chat), "--details"]) == 0
    assert main(["chats", "export", "--markdown", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ("all.json", "bread.md", "all")]
    assert "## tiny\n\nWith flour." in (tmp_path / "bread.md").read_text()
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["Bread.md"]
    with closing(ConversationStore(paths.database_path())) as store:
        store.delete_conversation(chat)
    report = printed_json(capsys, "chats", "import", str(tmp_path / "all.json"))
    assert (report["chats"], report["messages"], report["complete"]) == (1, 2, True)
    assert titles() == ["Bread"]


def test_import_ends_with_1_where_something_was_not_taken(
    capsys: pytest.CaptureFixture[str], rivers: Path, tmp_path: Path
):
    (tmp_path / "bad.json").write_text("{")
    assert main(["chats", "import", str(rivers), str(tmp_path / "bad.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Imported 1 chat with 4 messages."
    assert "Without 1 custom instruction, 1 image, 1 tool call, 1 tool result: Rivers" in lines
    assert "Not imported: bad.json is damaged or incomplete: it is not valid JSON." in lines
    assert titles() == ["Rivers"]


def test_refusals(capsys: pytest.CaptureFixture[str], chat: int, tmp_path: Path):
    check_refused(capsys, ["chats", "export", "--json", str(tmp_path / "a.json"), "--chat", "99"], "no chat 99", 1)
    check_refused(capsys, ["chats", "export", "--json", str(tmp_path)], "is a folder", 2)
    check_refused(capsys, ["chats", "backup", str(tmp_path)], "is a folder", 2)
    check_refused(capsys, ["chats", "restore", str(tmp_path / "none.zip")], "cannot be read", 1)
    (tmp_path / "text.zip").write_text("text")
    check_refused(capsys, ["chats", "restore", str(tmp_path / "text.zip")], "is damaged", 1)
    assert titles() == ["Bread"]


@pytest.mark.parametrize("command", [("backup",), ("export", "--json"), ("export", "--chat", "1", "--markdown")])
def test_a_file_that_is_there_is_replaced_only_by_force_and_our_own_never(
    capsys: pytest.CaptureFixture[str], chat: int, tmp_path: Path, command: tuple[str, ...]
):
    notes, link = tmp_path / "notes.md", tmp_path / "link.db"
    notes.write_text("my own")
    link.symlink_to(paths.database_path())
    check_refused(capsys, ["chats", *command, str(notes)], "already exists", 2)
    assert notes.read_text() == "my own"
    for own in (paths.database_path(), paths.settings_path(), link):
        check_refused(capsys, ["chats", *command, str(own), "--force"], "rdchat itself uses", 2)
    assert main(["chats", *command, str(notes), "--force"]) == 0
    assert notes.read_bytes() != b"my own"
    assert titles() == ["Bread"]


def test_backup_and_restore(capsys: pytest.CaptureFixture[str], chat: int, tmp_path: Path):
    facts = printed_json(capsys, "chats", "backup", str(tmp_path / "b.zip"))
    assert (facts["chats"], facts["messages"]) == (1, 2)
    with closing(ConversationStore(paths.database_path())) as store:
        store.rename_conversation(chat, "Cake")
    kept = printed_json(capsys, "chats", "restore", str(tmp_path / "b.zip"))
    assert titles() == ["Bread"]
    assert main(["chats", "restore", kept["database"]]) == 0
    assert titles() == ["Cake"]


_WRITES_ON = """
import sys, threading
from pathlib import Path
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role
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


def test_nothing_is_restored_below_a_process_that_writes(
    capsys: pytest.CaptureFixture[str], chat: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from rdchat.services.app import instance_channel

    monkeypatch.setattr(instance_channel.ask_open_app, "__defaults__", (300,))
    printed_json(capsys, "chats", "backup", str(tmp_path / "b.zip"))
    with python_process(_WRITES_ON, paths.database_path()) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        check_refused(capsys, ["chats", "restore", str(tmp_path / "b.zip")], "does not answer", 1)
        written = int(writer.communicate("")[0])
    with closing(ConversationStore(paths.database_path())) as store:
        (mine,) = [each for each in store.conversations() if each.title == "Written meanwhile"]
        assert len(store.messages(mine.id)) == written
    assert not list(paths.data_dir().glob("*restore*"))


def test_a_store_whose_process_does_not_answer_is_left_alone(
    capsys: pytest.CaptureFixture[str], chat: int, rivers: Path, monkeypatch: pytest.MonkeyPatch
):
    from rdchat.services.app import instance_channel

    monkeypatch.setattr(instance_channel.ask_open_app, "__defaults__", (300,))
    with closing(ConversationStore(paths.database_path())):
        check_refused(capsys, ["chats", "import", str(rivers)], "does not answer", 1)
        assert main(["chats", "list"]) == 0


# With the app open


@pytest.fixture
def open_app(window_on: Callable[[Path], Window], qtbot: QtBot) -> Iterator[tuple[Window, TransferDesk]]:
    """An app that is open on the command line's own folder, and listens."""
    instance = SingleInstance(paths.data_dir())
    assert instance.claim()
    window = window_on(paths.data_dir())
    window.controller.start()
    desk = TransferDesk(window.controller, window.store, paths.settings_path())
    instance.request_received.connect(desk.take_request)
    yield window, desk
    desk.close()
    instance.release()


def run_beside(window: Window, *arguments: str) -> tuple[int, str, str]:
    """Run a command in a process of its own while this one's events go on; return its status and what it printed."""
    outcome: list[subprocess.CompletedProcess[str]] = []

    def run() -> None:
        command = [sys.executable, "-m", "rdchat", "chats", *arguments]
        outcome.append(subprocess.run(command, check=False, capture_output=True, text=True, timeout=120))

    thread = threading.Thread(target=run)
    thread.start()
    window.qtbot.waitUntil(lambda: bool(outcome), timeout=WAIT_MS)
    thread.join()
    return outcome[0].returncode, outcome[0].stdout, outcome[0].stderr


def test_what_is_imported_beside_an_open_app_appears_there(open_app: tuple[Window, TransferDesk], rivers: Path):
    window, desk = open_app
    told: list[Any] = []
    desk.imported.connect(told.append)
    status, out, err = run_beside(window, "import", str(rivers), "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["chats"] == 1
    assert window.titles == ["Rivers"]
    assert len(told) == 1


@pytest.mark.slow
def test_a_restore_goes_through_the_open_app(open_app: tuple[Window, TransferDesk], tmp_path: Path):
    window, _ = open_app
    preferences = window.controller.preferences
    preferences.change(replace(preferences.settings, titles_by_model=False))
    window.ask("First")
    assert run_beside(window, "backup", str(tmp_path / "b.zip"))[0] == 0
    window.controller.chat.start_new()
    window.ask("Second")
    status, out, err = run_beside(window, "restore", str(tmp_path / "b.zip"), "--json")
    assert (status, err) == (0, "")
    assert Path(json.loads(out)["database"]).exists()
    assert window.titles == ["First"]


@pytest.mark.slow
def test_the_open_app_refuses_in_words(open_app: tuple[Window, TransferDesk], tmp_path: Path):
    window, _ = open_app
    (tmp_path / "bad.zip").write_text("text")
    status, out, err = run_beside(window, "restore", str(tmp_path / "bad.zip"))
    assert (status, out) == (1, "")
    assert "bad.zip is damaged." in err
    (tmp_path / "bad.json").write_text(json.dumps([chatgpt_chat(chatgpt_node("a", "a", "user", "x"))]))
    status, out, _ = run_beside(window, "import", str(tmp_path / "bad.json"))
    assert status == 1
    assert "Not imported: Rivers: Its messages form a cycle." in out
