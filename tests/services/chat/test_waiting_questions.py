"""A question that waits survives a restore, a quit and a kill as typed text does; of a temporary chat nothing does."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat import machine
from rdchat.chat.attachments.attached_file import AttachedFile, image_file
from rdchat.chat.presets import LongChats
from rdchat.errors import StorageError
from rdchat.services.chat.unsent_memory import UnsentMemory
from rdchat.services.window.transfers import Transfers
from tests.chat.transfer.tasks import back_up, prepare
from tests.services.bench_runs import EVENTS, PLAN
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, restarted, text_file

type Open = Callable[[Path], Window]
QUESTION = "And where is the xylophone?"
LONG = ("word " * 1030).strip()
FILES = [text_file("list.txt", "Marmalade"), image_file(b"\x89PNG of a xylophone", "a.png")]


@pytest.fixture(autouse=True)
def on_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chats are summarised only for a question."""
    monkeypatch.setattr(machine, "on_battery", lambda: True)


def ask(window: Window, *files: tuple[AttachedFile, str]) -> None:
    """Ask the question as the window does: the field is empty before it is sent."""
    window.chat.files.restore_files(files)
    window.wait_until(lambda: not window.chat.files.reason_to_wait())
    window.chat.set_typed(QUESTION)
    window.chat.unsent.store()
    window.chat.set_typed("")
    window.send(QUESTION)


def wait_for_a_measurement(window: Window, engine: ScriptedEngine) -> None:
    window.ask("Hello")
    engine.bench_events = EVENTS
    engine.gate.shut()
    window.benchmark.run_plan(PLAN, {})
    ask(window, *FILES)


def wait_for_a_load(window: Window, engine: ScriptedEngine) -> None:
    """The first question is a message already; the second one waits behind it."""
    window.ask("Hello")
    engine.load_gate.shut()
    window.slot.load_model("/models/other")
    window.send("One")
    ask(window)


def wait_for_a_summary(window: Window, engine: ScriptedEngine) -> None:
    engine.context_length = 4096
    window.load("/models/short")
    window.settings.change_values(long_chats=LongChats.COMPACT)
    for number in range(3):
        window.send(f"{number} {LONG}")
        window.wait_until(lambda: len(window.chat.path) == 2 * number + 2 and not window.writing)  # noqa: B023
        window.wait_until_idle()
        window.counted()
    engine.gate.shut()
    ask(window)
    window.wait_until(lambda: engine.gate.is_waiting)
    assert window.context.is_awaited


WAITS = {
    "a measurement": wait_for_a_measurement,
    "a load": wait_for_a_load,
    "a summary": wait_for_a_summary,
}
type Wait = Callable[[Window, ScriptedEngine], None]


def field(window: Window) -> tuple[str, list[str]]:
    """Return the text of the message field, and the names of its files."""
    return window.chat.typed, [file.name for file in window.chat.files.files]


def names(wait: Wait) -> list[str]:
    return [file.name for file, _ in FILES] if wait is wait_for_a_measurement else []


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_it_survives_a_quit(window: Window, engine: ScriptedEngine, window_on: Open, wait: Wait) -> None:
    wait(window, engine)
    assert len(window.chat.unsent.waiting) == 1
    engine.load_gate.open()
    again = restarted(window, window_on)
    assert field(again) == (QUESTION, names(wait))
    assert again.chat.id == window.chat.id


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_it_survives_a_kill(
    window: Window, engine: ScriptedEngine, window_on: Open, wait: Wait, tmp_path: Path
) -> None:
    wait(window, engine)
    window.store.write(lambda _connection: None)  # this waits for files that are being stored
    killed = tmp_path / "killed"
    killed.mkdir()
    for path in tmp_path.glob("conversations.db*"):
        if path.is_file() and not path.name.endswith((".lock", "-shm")):
            shutil.copy(path, killed)
    engine.gate.open()
    engine.load_gate.open()
    again = window_on(killed)
    again.open_last_chat()
    assert field(again) == (QUESTION, names(wait))


def restore(window: Window, backup: Path) -> None:
    prepare(backup, backup.parent)
    Transfers(window.controller, window.store, backup.with_name("settings.json")).restore_backup()


@pytest.fixture
def backup(window: Window, tmp_path: Path) -> Path:
    window.chat.start_new()
    window.ask("Earlier")
    window.chat.start_new()
    back_up(window.store.path, tmp_path / "settings.json", tmp_path / "backup.zip")
    return tmp_path / "backup.zip"


@pytest.mark.parametrize("wait", [wait_for_a_measurement, wait_for_a_summary])
@pytest.mark.parametrize("typed", ["", "Also this"])
def test_it_survives_a_restore(
    window: Window, engine: ScriptedEngine, window_on: Open, backup: Path, wait: Wait, typed: str
) -> None:
    wait(window, engine)
    window.chat.set_typed(typed)
    restore(window, backup)
    assert window.titles == ["Earlier"]
    text = "\n\n".join(filter(None, [QUESTION, typed]))
    assert not window.chat.unsent.waiting, "who reads another chat now does not see it sent"
    window.chat.start_new()
    assert field(window) == (text, names(wait))
    again = restarted(window, window_on)
    again.chat.start_new()
    assert field(again) == (text, names(wait))


def test_nothing_is_restored_while_a_reply_waits_for_a_load(
    window: Window, engine: ScriptedEngine, backup: Path
) -> None:
    wait_for_a_load(window, engine)
    with pytest.raises(StorageError, match="A reply is being written"):
        restore(window, backup)
    assert [message.text for message in window.chat.unsent.waiting] == [QUESTION]
    window.stop_reply()
    restore(window, backup)
    window.chat.start_new()
    assert field(window) == (QUESTION, [])


@pytest.mark.parametrize("is_new", [True, False])
def test_typed_text_survives_a_restore_also_once_it_is_stored(window: Window, backup: Path, is_new: bool) -> None:
    """It was read by the chat's id from the store that had taken the place of its own."""
    if not is_new:
        window.ask("Hello")
    window.chat.set_typed(QUESTION)
    window.chat.unsent.store()
    if is_new:
        window.chat.open_chat(window.store.newest_conversations(1)[0].id)
    restore(window, backup)
    window.chat.start_new()
    assert window.chat.typed == QUESTION


@pytest.mark.parametrize("end", ["restore", "quit"])
def test_of_a_temporary_chat_nothing_survives(
    window: Window, engine: ScriptedEngine, window_on: Open, backup: Path, end: str
) -> None:
    window.chat.start_temporary()
    wait_for_a_measurement(window, engine)
    assert len(window.chat.unsent.waiting) == 1
    if end == "restore":
        restore(window, backup)
        window.chat.start_new()
        assert field(window) == ("", [])
    again = restarted(window, window_on)
    again.chat.start_new()
    assert field(again) == ("", [])
    assert not again.chat.unsent.waiting
    for path in backup.parent.rglob("*"):
        assert not path.is_file() or not any(word in path.read_bytes() for word in (b"xylophone", b"Marmalade"))


def test_a_text_that_moves_to_its_chat_is_stored_there_before_it_goes_from_the_field_of_new_chats(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two would lose it."""
    stored = list[int | None]()
    save = window.store.save_unsent_text
    unsent = UnsentMemory(window.store)

    def note(chat_id: int | None, message_id: int | None, text: str, _origin: object) -> None:
        stored.append(chat_id)
        save(chat_id, message_id, text)

    monkeypatch.setattr(window.store, "save_unsent_text", note)
    for number in range(8):
        unsent.save_text(None, None, f"typed {number}")
        unsent.store()
        unsent.save_text(None, None, "")
        unsent.save_text(window.store.create_conversation("New").id, None, f"typed {number}")
        unsent.store()
        assert stored[-1] is None
