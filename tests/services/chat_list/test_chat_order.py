"""Order among the chats as the window commands it."""

from collections.abc import Callable, Generator
from itertools import product
from pathlib import Path

import pytest

from rdchat.chat.conversation import Conversation
from rdchat.chat.projects import Folder
from rdchat.chat.storage.database import Database
from rdchat.errors import StorageFullError
from rdchat.services.chat_list.chat_order import ChatOrder, Location, UndoHistory
from tests.services.window import Window
from tests.stores import add_long_path


def test_steps_are_taken_back_latest_first(window: Window) -> None:
    desk = window.chats
    window.ask("One")
    chat = window.stored_chat
    folder = desk.order.create_folder("Work")
    assert folder is not None
    desk.order.move(chat, folder.id)
    desk.rename_conversation(chat.id, "Renamed")
    desk.order.rename_folder(folder, "Home")
    desk.archive_conversation(chat.id)
    assert desk.chat.stored_conversation is None
    assert desk.order.history.last is not None
    desk.undo()
    assert window.titles == ["Renamed"]
    desk.undo()
    assert desk.order.folders[0].name == "Work"
    desk.undo()
    assert window.titles == ["One"]
    desk.undo()
    assert window.store.conversation(chat.id).folder_id is None
    desk.undo()
    assert desk.order.folders == ()
    desk.undo()  # there is nothing


def test_a_step_that_the_disk_is_in_the_way_of_stays() -> None:
    history = UndoHistory()
    tries = [StorageFullError("full"), None]

    def undo() -> None:
        if error := tries.pop(0):
            raise error

    history.add_step(undo)
    try:
        history.undo()
    except StorageFullError:
        assert history.last is undo
    history.undo()
    assert history.last is None
    for _ in range(150):
        history.add_step(lambda: None)
    assert len(history._steps) == 100


def test_what_was_deleted_for_good_cannot_be_undone_and_does_not_block_the_rest(window: Window) -> None:
    desk = window.chats
    window.ask("One")
    desk.chat.start_new()
    window.ask("Two")
    one, two = window.store.conversations()[::-1]
    desk.order.set_pinned(one, pinned=True)
    desk.delete_conversation(two.id)
    desk.order.erase(desk.store.organiser.deleted_chats())
    desk.undo()
    assert "no longer exists" in window.seen.storage_failures[-1].title
    desk.undo()
    assert window.store.conversation(one.id).pinned_at is None


CHANGES: list[Callable[[ChatOrder, Conversation, Folder], object]] = [
    lambda order, chat, _: order.set_pinned(chat, pinned=True),
    lambda order, chat, _: order.set_pinned(chat, pinned=False),
    lambda order, chat, _: order.set_archived(chat, archived=True),
    lambda order, chat, folder: order.move(chat, folder.id),
    lambda order, chat, _: order.move(chat, None),
    lambda order, chat, _: order.create_folder("New", chat=chat),
]


def test_undoing_a_change_puts_the_chat_where_it_was(window: Window) -> None:
    """Pinned, archived, in a folder, or none of these."""
    window.ask("One")
    order = window.chats.order
    folder = order.create_folder("Work")
    assert folder is not None

    def read() -> tuple[Conversation, tuple[object, ...]]:
        chat = window.store.conversation(window.stored_chat.id)
        return chat, (chat.folder_id, chat.pinned_at, chat.archived)

    for begin, change in product(CHANGES, CHANGES):
        begin(order, read()[0], folder)
        chat, before = read()
        last = order.history.last
        change(order, chat, folder)
        if order.history.last is not last:
            window.chats.undo()
        assert read()[1] == before


@pytest.mark.slow
def test_a_long_chat_is_copied_while_the_window_lives(window: Window) -> None:
    """Each slice lets the event loop turn; what is being copied is shown nowhere."""
    desk = window.chats
    store = window.store
    chat = store.create_conversation("Long")
    add_long_path(store, chat)
    desk.update_list()
    desk.order.duplicate(chat)
    assert window.titles == ["Long"]
    with window.qtbot.waitSignal(desk.order.copied) as copied:
        pass
    assert window.titles == ["Long copy", "Long"]
    assert len(store.messages(copied.args[0])) == 300
    desk.show_location(Location.TRASH)
    desk.show_location(Location.CHATS)


@pytest.mark.slow
def test_closing_midway_leaves_the_rest_to_the_next_start(
    window: Window, window_on: Callable[[Path], Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []

    def first_step(_database: Database, steps: Generator[object, None, None]) -> tuple[bool, None]:
        """Do one step of bulk work; leave the others undone."""
        if steps not in begun:
            begun.append(steps)
            next(steps, None)
        return False, None

    desk = window.chats
    store = window.store
    chat = store.create_conversation("Long")
    add_long_path(store, chat)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_advance", first_step)
        desk.order.duplicate(chat)
        window.wait_until(lambda: len(store.rows("SELECT id FROM conversations")) == 2)
        desk.close_list()
    assert [each.title for each in store.conversations()] == ["Long"]
    assert len(store.rows("SELECT id FROM conversations")) == 2
    store.close()
    again = window_on(store.path.parent).store
    assert [each.title for each in again.conversations()] == ["Long"]
    again.organiser.erase().result()
    assert len(again.rows("SELECT id FROM conversations")) == 1
