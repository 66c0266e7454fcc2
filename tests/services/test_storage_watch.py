"""The settings: a change holds at once, and is soon on disk, while the window waits for no disk."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import Mock

import pytest

from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from tests.services.window import Window


@contextmanager
def busy_writer(window: Window) -> Iterator[None]:
    """Have the writer's thread do something else meanwhile, such as flushing to a slow disk."""
    free = threading.Event()
    window.store.run_after_commands(free.wait)
    try:
        yield
    finally:
        free.set()


@pytest.fixture
def flushing(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that flushed to disk."""
    threads: list[threading.Thread] = []
    # The room has a function of the module's name.
    module = sys.modules["rdchat.files.atomic_file"]
    monkeypatch.setattr(module, "flush_to_disk", lambda _path: threads.append(threading.current_thread()))
    return threads


def test_no_changed_setting_is_flushed_to_disk_on_the_main_thread(
    window: Window, settings: SettingsStore, flushing: list[threading.Thread]
) -> None:
    for size in range(10, 15):
        window.settings.change_values(text_size=size)
        window.settings.wait_until_saved()
        assert json.loads(settings.path.read_bytes())["text_size"] == size
    assert {thread.name for thread in flushing} == {"store writer"}


def test_changes_hold_at_once_and_the_newest_is_written_once(
    window: Window, settings: SettingsStore, flushing: list[threading.Thread]
) -> None:
    with busy_writer(window):
        for size in range(10, 21):
            window.settings.change_values(text_size=size)
            assert window.settings.values.text_size == size
        window.settings.change_values(seed=7)
        assert not flushing
    window.settings.wait_until_saved()
    assert len(flushing) == 2, "the file and its folder"
    read = SettingsStore(settings.path).settings
    assert (read.text_size, read.seed) == (20, 7)


def test_what_was_changed_last_is_on_disk_after_quitting(window: Window, settings: SettingsStore) -> None:
    window.settings.change_values(text_size=20)
    assert window.shut_down()
    window.settings.change_values(seed=7)
    window.store.close()
    assert SettingsStore(settings.path).settings == window.settings.values


def test_a_failure_to_save_is_told_of_once_and_the_next_change_saves_all(window: Window, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.unlink(missing_ok=True)
    path.mkdir()
    with busy_writer(window):
        window.settings.change_values(text_size=20)
        window.settings.change_values(seed=7)
    window.wait_until(lambda: bool(window.seen.storage_failures))
    (failure,) = window.seen.storage_failures
    assert "settings could not be saved" in failure.title
    path.rmdir()
    window.settings.change_values(system_prompt="Be brief.")
    window.settings.wait_until_saved()
    assert SettingsStore(path).settings == window.settings.values
    assert (window.settings.values.text_size, window.settings.values.seed) == (20, 7)


def test_a_chat_that_may_crash_the_app_is_not_opened_again_by_the_next_start(
    unstarted: Window, settings: SettingsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = unstarted.store.create_conversation()
    unstarted.settings.change_values(last_chat=chat.id)
    stored: list[object] = []
    open_list = Mock(side_effect=lambda _last: stored.append(SettingsStore(settings.path).settings.last_chat))
    monkeypatch.setattr(unstarted.chats, "open_list", open_list)
    unstarted.open_last_chat()
    assert open_list.call_args.args == (chat.id,)
    assert stored == [None]


def change_and_wait(folder: Path, pipe: Connection) -> None:
    """Change settings; tell when the first change is on disk, change once more, and wait to be killed."""
    settings = SettingsStore(folder / "settings.json")
    control = SettingsControl(settings, StorageWatch(), ConversationStore(folder / "conversations.db"))
    control.change_values(text_size=20, seed=7)
    control.wait_until_saved()
    control.change_values(text_size=21)
    pipe.send("changed")
    pipe.recv()


def test_a_kill_loses_at_most_the_last_change(tmp_path: Path) -> None:
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=change_and_wait, args=(tmp_path, there))
    process.start()
    assert here.recv() == "changed"
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    read = SettingsStore(tmp_path / "settings.json")
    assert read.notice is None
    assert read.settings.seed == 7
    assert read.settings.text_size in {20, 21}
