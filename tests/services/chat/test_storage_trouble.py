"""A database that another program holds, or that is damaged or deleted, in the middle of a chat."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from tests.grids import share
from tests.inference.vision.pictures import encoded, photo
from tests.processes import held_by_another_process
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, bring, pause_midway, restarted
from tests.stores import connect_by_hand


def test_a_reply_that_cannot_be_saved_is_kept_and_saved_as_soon_as_it_can(
    window: Window, engine: ScriptedEngine
) -> None:
    store = window.store
    reply_id = pause_midway(window, engine)
    with held_by_another_process(store.path):
        engine.gate.open()
        window.wait_until_idle()
        assert window.texts == ["Hi", "Hello, you!"]
        assert [notice.title for notice in window.seen.storage_failures] == [f"Another program is using {store.path}."]
        assert store.message(reply_id).status is MessageStatus.STREAMING
        # opened again, it still shows what the store does not have
        window.chat.open_chat(window.stored_chat.id)
        assert window.texts == ["Hi", "Hello, you!"]
    window.wait_until(lambda: store.message(reply_id).text == "Hello, you!")
    assert (store.message(reply_id).text, store.message(reply_id).status) == ("Hello, you!", MessageStatus.COMPLETE)
    assert len(window.seen.storage_failures) == 1


def test_commands_that_cannot_be_stored_say_so_and_change_nothing(window: Window) -> None:
    store = window.store
    window.ask("First")
    conversation = window.stored_chat
    with held_by_another_process(store.path):
        window.send("Second")
        window.edit_message(window.chat.path[0].id, "Changed")
        window.controller.regenerate(window.chat.path[1].id)
        window.continue_reply(window.chat.path[1].id)
        window.chats.rename_conversation(conversation.id, "Other")
        window.chats.delete_conversation(conversation.id)
    assert len(window.seen.storage_failures) == 6
    assert window.seen.refused == [
        ("Second", f"Another program is using {store.path}. Close that program, then try again.")
    ]
    assert (window.titles, window.texts) == (["First"], ["First", "Hello, you!"])
    with window.qtbot.assertNotEmitted(window.storage.recovered):
        window.chats.list_hits("")  # that reading works shows nothing: it did all the time
    with window.qtbot.waitSignal(window.storage.recovered):
        window.chats.rename_conversation(conversation.id, "First")
    window.ask("Second")
    assert window.texts[2:] == ["Second", "Hello, you!"]


def test_a_message_that_cannot_be_stored_gives_its_files_back(window: Window, tmp_path: Path) -> None:
    window.ask("First")
    files = window.chat.files
    (tmp_path / "notes.txt").write_text("Some notes")
    bring(window, tmp_path / "notes.txt")
    image = encoded(photo(37, 23), "PNG")
    files.add_image(image, "pasted")
    window.wait_until(lambda: not files.reason_to_wait())
    before = list(files.files)
    assert [each.name for each in before] == ["notes.txt", "pasted"]
    with held_by_another_process(window.store.path):
        window.send("Second")
        assert [text for text, _ in window.seen.refused] == ["Second"]
        assert list(files.files) == before
    window.ask("Second")
    assert [file.name for file in window.chat.path[2].files] == ["notes.txt", "pasted.png"]
    assert not files.files


def test_what_cannot_be_saved_at_the_end_is_in_the_log_and_the_last_save_is_kept(
    window: Window, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    reply_id = pause_midway(window, engine)
    window.wait_until(lambda: window.store.message(reply_id).text == "Hello,")
    with held_by_another_process(window.store.path):
        assert window.shut_down()
        assert "1 replies could not be saved" in caplog.text
    assert window.store.message(reply_id).text == "Hello,"


def test_no_word_of_a_temporary_chat_is_rescued_at_the_end(window: Window, engine: ScriptedEngine) -> None:
    folder = window.store.path.parent
    pause_midway(window, engine)
    with held_by_another_process(window.store.path):
        engine.gate.open()
        window.wait_until_idle()
        window.chat.start_temporary()
        pause_midway(window, engine, "xylophone")
        assert window.shut_down()
    (rescued,) = folder.glob("unsaved-replies-*.md")
    assert rescued.read_text().count("Hello,") == 1
    assert not [path for path in folder.rglob("*") if path.is_file() and b"xylophone" in path.read_bytes()]


def test_what_an_earlier_run_could_not_save_is_told_of_at_the_start(unstarted: Window, tmp_path: Path) -> None:
    file = tmp_path / "unsaved-replies-20261121-120000-1.md"
    file.touch()
    unstarted.open_last_chat()
    (notice,) = unstarted.seen.notices
    assert str(file) in notice.detail


def test_a_database_deleted_in_the_middle_of_a_reply_is_told_of_and_loses_nothing(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("First")
    reply_id = pause_midway(window, engine, "Second")
    for path in window.store.path.parent.glob("conversations.db*"):
        path.unlink()
    engine.gate.open()
    window.wait_until_idle()
    assert [notice.title for notice in window.seen.notices] == ["The file of your chats was restored"]
    assert window.seen.storage_failures == []
    with closing(connect_by_hand(window.store.path)) as other:
        assert other.execute("SELECT text FROM messages WHERE id = ?", (reply_id,)).fetchone() == ("Hello, you!",)
        assert other.execute("SELECT count(*) FROM messages").fetchone() == (4,)


@pytest.mark.parametrize("cycle", share([{1: 1}, {1: 2, 2: 1}, {1: 4}], 2), ids=["itself", "two", "all"])
def test_a_message_that_is_its_own_ancestor_is_told_of_at_the_start_and_can_be_worked_with(
    window: Window, window_on: Callable[[Path], Window], cycle: dict[int, int]
) -> None:
    window.ask("First")
    window.ask("Second")
    parents = [(parent, message) for message, parent in cycle.items()]
    again = restarted(window, window_on, "UPDATE messages SET parent_id = ? WHERE id = ?", parents)
    assert [notice.title for notice in again.seen.notices] == ["Some messages were moved"]
    assert again.texts == ["First", "Hello, you!", "Second", "Hello, you!"]
    again.ask("Third")
    again.edit_message(again.chat.path[0].id, "Other")
    again.wait_until_idle()
    assert again.texts == ["Other", "Hello, you!"]


def test_a_reply_without_a_question_is_not_written_anew(window: Window, window_on: Callable[[Path], Window]) -> None:
    """A store made by hand: the engine takes no request that ends with a reply."""
    window.ask("First")
    again = restarted(window, window_on, "UPDATE messages SET role = 'system', text = ' '")
    first, second = again.chat.path
    again.controller.regenerate(first.id)
    again.controller.regenerate(second.id)
    again.continue_reply(second.id)
    assert [notice.title for notice in again.seen.notices] == ["There is no question to answer"] * 3
    assert again.chat.path == [first, second]
    assert again.ask("Anew").text == "Hello, you!"
