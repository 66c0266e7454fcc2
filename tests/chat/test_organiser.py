"""Pins, folders, the archive, the Trash and copies, in the store."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.notes import Note
from rdchat.chat.organiser import ChatOrganiser
from rdchat.chat.projects import Project
from rdchat.chat.storage import TRASH_DAYS
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.inference.api import Role
from tests.chat.conftest import OpenStore
from tests.chat.storage.project_texts import files_named, text_file
from tests.clocks import ManualClock
from tests.stores import connect_by_hand

DAY_S = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(database: Path, clock: ManualClock) -> Iterator[ConversationStore]:
    """A store whose clock the test moves."""
    store = ConversationStore(database, clock)
    yield store
    store.close()


def test_a_chat_is_pinned_archived_and_moved(store: ConversationStore) -> None:
    chat = store.create_conversation("Soup")
    organiser = store.organiser
    folder = organiser.create_folder("Recipes")
    organiser.move(chat.id, folder.id)
    organiser.set_archived(chat.id, archived=True)
    store.add_message(chat.id, None, Role.USER, "One thing more")
    assert not store.conversation(chat.id).archived
    organiser.set_archived(chat.id, archived=True)
    moved = store.conversation(chat.id)
    assert (moved.folder_id, moved.pinned_at, moved.archived) == (folder.id, None, True)
    organiser.set_pinned(chat.id, pinned=True)
    pinned = store.conversation(chat.id)
    assert pinned.pinned_at is not None
    assert not pinned.archived
    organiser.set_pinned(chat.id, pinned=False)
    organiser.move(chat.id, None)
    assert replace(store.conversation(chat.id), updated_at=chat.updated_at) == chat


def test_folders_are_nested_once(store: ConversationStore) -> None:
    organiser = store.organiser
    top = organiser.create_folder("Work")
    inner = organiser.create_folder("Reports", top.id)
    other = organiser.create_folder("Home")
    with pytest.raises(StorageError, match="cannot hold others"):
        organiser.create_folder("Deeper", inner.id)
    for folder, parent in ((other.id, inner.id), (top.id, other.id), (top.id, top.id)):
        with pytest.raises(StorageError, match="nested only once"):
            organiser.move_folder(folder, parent)
    organiser.move_folder(inner.id, None)
    organiser.move_folder(top.id, other.id)
    assert [(folder.name, folder.parent_id) for folder in organiser.folders()] == [
        ("Home", None),
        ("Reports", None),
        ("Work", other.id),
    ]
    with pytest.raises(StorageError, match="This folder no longer exists"):
        organiser.create_folder("x", 99)


def test_a_deleted_folder_comes_back_with_what_was_in_it(store: ConversationStore) -> None:
    organiser = store.organiser
    folder = organiser.create_folder("Work")
    inner = organiser.create_folder("Reports", folder.id)
    chat = store.create_conversation("Plan")
    organiser.move(chat.id, folder.id)
    organiser.delete_folder(folder.id)
    assert [(each.name, each.parent_id) for each in organiser.folders()] == [("Reports", None)]
    assert [each.name for each in organiser.deleted_folders()] == ["Work"]
    assert store.conversation(chat.id).folder_id == folder.id  # nothing shows it there
    organiser.restore_folder(folder.id)
    assert {(each.name, each.parent_id) for each in organiser.folders()} == {("Work", None), ("Reports", folder.id)}
    organiser.delete_folder(folder.id)
    organiser.erase_folder(folder.id)
    assert store.conversation(chat.id).folder_id is None
    assert organiser.read_folder(inner.id).parent_id is None


def test_names_are_tidied_and_expanding_is_remembered(store: ConversationStore) -> None:
    organiser = store.organiser
    folder = organiser.create_folder("  two\nlines \ud800")
    organiser.rename_folder(folder.id, "   ")
    organiser.set_expanded(folder.id, expanded=False)
    organiser.set_project(folder.id, Project("\ud800"))
    assert organiser.read_folder(folder.id).name == "two lines ?"
    assert organiser.read_folder(folder.id).project == Project("?")
    assert not organiser.read_folder(folder.id).expanded
    assert organiser.create_folder("").name == "New folder"


def test_the_bin_keeps_chats_for_thirty_days(timed: ConversationStore, clock: ManualClock) -> None:
    first, second = (timed.create_conversation(title) for title in ("first", "second"))
    timed.add_message(first.id, None, Role.USER, "sky")
    folder = timed.organiser.create_folder("gone")
    timed.delete_conversation(first.id)
    clock.now += 2 * DAY_S
    timed.delete_conversation(second.id)
    timed.organiser.delete_folder(folder.id)
    clock.now += (TRASH_DAYS - 1) * DAY_S
    timed.organiser.expire()
    assert [chat.title for chat in timed.organiser.deleted_chats()] == ["second"]
    assert len(timed.organiser.deleted_folders()) == 1
    with pytest.raises(StorageError, match="This chat no longer exists"):
        timed.restore_conversation(first.id)  # it is being erased
    timed.organiser.erase().result()
    assert timed.rows("SELECT title FROM conversations") == [("second",)]
    assert timed.rows("SELECT count(*) FROM messages") == [(0,)]
    assert timed.restore_conversation(second.id).title == "second"
    clock.now += 2 * DAY_S
    timed.organiser.expire()
    assert timed.organiser.deleted_folders() == []


@pytest.mark.parametrize("jump_years", [-25, 25])
def test_a_clock_that_jumps_by_years_empties_no_bin(
    jump_years: int, timed: ConversationStore, clock: ManualClock
) -> None:
    """At the deletion or since; a Trash that was filled today was emptied at the next start."""
    clock.now = 1_800_000_000.0
    chat = timed.create_conversation("kept")
    folder = timed.organiser.create_folder("kept")
    clock.now += min(jump_years, 0) * 365 * DAY_S
    timed.delete_conversation(chat.id)
    timed.organiser.delete_folder(folder.id)
    clock.now += abs(jump_years) * 365 * DAY_S
    timed.organiser.expire()
    assert [each.title for each in timed.organiser.deleted_chats()] == ["kept"]
    assert [each.name for each in timed.organiser.deleted_folders()] == ["kept"]
    clock.now += 2 * DAY_S
    timed.organiser.expire()
    assert timed.organiser.deleted_chats() == []
    assert timed.organiser.deleted_folders() == []


def test_what_was_deleted_in_the_future_expires_from_now_on(timed: ConversationStore, clock: ManualClock) -> None:
    chat = timed.create_conversation("kept")
    clock.now += 10_000 * DAY_S
    timed.delete_conversation(chat.id)
    clock.now -= 10_000 * DAY_S
    for days, kept in ((0, True), (TRASH_DAYS - 1, True), (2, False)):
        clock.now += days * DAY_S
        timed.organiser.expire()
        assert bool(timed.organiser.deleted_chats()) is kept


def test_a_chat_deleted_for_good_is_gone_at_once_and_erased_step_by_step(database: Path, clock: ManualClock) -> None:
    store = ConversationStore(database, clock)
    chat = store.create_conversation("long")
    parent = None
    for number in range(20):
        parent = store.add_message(chat.id, parent, Role.USER, f"word{number}").id
    store.delete_conversation(chat.id)
    store.organiser.schedule_erase([chat.id])
    assert store.organiser.deleted_chats() == []
    erasing = store.organiser._erasing()
    store.write(lambda _connection: [next(erasing) for _ in range(3)])
    store.close()  # the app is closed, or killed, half way
    store = ConversationStore(database, clock)
    assert 0 < store.rows("SELECT count(*) FROM messages")[0][0] < 20
    assert (store.organiser.deleted_chats(), store.conversations()) == ([], [])
    store.organiser.erase().result()
    assert store.rows("SELECT count(*) FROM conversations") == [(0,)]
    store.close()


SECRET = "The password of the boat is anchovy"


def erase_secret(store: ConversationStore, kind: str) -> Iterator[None]:
    """Write a text, then erase it."""
    organiser = store.organiser
    folder = organiser.create_folder("Work").id
    chat = store.create_conversation("Soup").id
    question = store.add_message(chat, None, Role.USER, "Hi").id
    match kind:
        case "chat":
            store.add_message(chat, question, Role.USER, SECRET)
            yield
            store.delete_conversation(chat)
            organiser.schedule_erase([chat])
        case "summary" | "other summary":
            store.set_context_cut(question, ContextCut(SECRET))
            yield
            store.set_context_cut(question, ContextCut("Another one") if kind == "other summary" else None)
            return
        case "project":
            picture = image_file(b"\x89PNG" + SECRET.encode(), SECRET)
            organiser.set_project(folder, Project(SECRET), [picture, text_file(SECRET, SECRET)])
            assert store.image_path(picture[0]).exists()
            yield
            organiser.set_project(folder, Project(), [])
            return
        case _:
            organiser.keep_note(Note(SECRET, folder, None))
            yield
            if kind == "folder":
                organiser.delete_folder(folder)
                organiser.erase_folder(folder)
            else:
                organiser.change_note(organiser.notes()[0].id, "No boat" if kind == "other note" else "")
    organiser.erase()


@pytest.mark.parametrize("kind", ["chat", "summary", "other summary", "project", "note", "other note", "folder"])
def test_what_is_erased_is_in_no_file_while_the_app_runs(store: ConversationStore, kind: str) -> None:
    """The log once kept it until rdchat quit."""

    def is_there() -> bool:
        return any(SECRET.encode() in each.read_bytes() for each in store.path.parent.rglob("*") if each.is_file())

    erasing = erase_secret(store, kind)
    for wanted in (True, False):
        next(erasing, None)
        deadline = time.monotonic() + 60
        # What is written may be on its way, from one file to another one too.
        while is_there() is not wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _filled(store: ConversationStore) -> int:
    chat = store.create_conversation("Soup")
    first = store.add_message(chat.id, None, Role.USER, "How?")
    reply = store.add_message(chat.id, first.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, model="tiny")
    store.save_text(reply.id, "Boil")
    store.save_trace(reply.id, b"trace", onward=False)
    other = store.add_message(chat.id, None, Role.USER, "Why?")
    store.add_message(chat.id, other.id, Role.ASSISTANT, "Hunger.")
    store.select_sibling(other.id, -1)
    return chat.id


def test_a_copy_has_everything_and_shares_nothing(store: ConversationStore) -> None:
    chat_id = _filled(store)
    copy_id = store.organiser.copy(chat_id, "Soup copy").result()
    before = store.messages(chat_id)
    copy = store.messages(copy_id)
    assert store.conversation(copy_id).title == "Soup copy"
    assert [(each.text, each.role, each.model, each.siblings) for each in copy] == [
        (each.text, each.role, each.model, each.siblings) for each in before
    ]
    assert copy[-1].status is MessageStatus.INTERRUPTED  # the reply is written in the first one only
    assert store.trace(copy[-1].id) == b"trace"
    assert [each.text for each in store.select_sibling(copy[0].id, 1)] == ["Why?", "Hunger."]
    assert [each.text for each in store.messages(chat_id)] == ["How?", "Boil"]
    assert len(store.conversations("hunger")) == 2


def test_half_a_copy_is_shown_nowhere_and_erased_at_the_next_start(open_store: OpenStore) -> None:
    store = open_store()
    chat_id = _filled(store)
    copying = store.organiser._copying(chat_id, "Soup copy", None)
    store.write(lambda _connection: next(copying))
    store.close()
    store = open_store()
    assert [chat.id for chat in store.conversations()] == [chat_id]
    store.organiser.erase().result()
    assert store.rows("SELECT count(*) FROM messages") == [(4,)]
    with pytest.raises(StorageError, match="This chat no longer exists"):
        store.organiser.copy(99, "x").result()


def test_the_model_titles_only_what_was_titled_by_the_first_prompt(store: ConversationStore) -> None:
    made = store.create_conversation("how do i cook", from_prompt=True)
    own = store.create_conversation("My title")
    renamed = store.create_conversation("a prompt", from_prompt=True)
    store.rename_conversation(renamed.id, "Mine too")
    organiser = store.organiser
    assert organiser.without_title() == [made.id]
    assert organiser.set_title_by_model(made.id, " Cooking\nsoup ")
    assert not organiser.set_title_by_model(made.id, "Again")
    assert not organiser.set_title_by_model(own.id, "Other")
    assert not organiser.set_title_by_model(renamed.id, "Other")
    assert {chat.title for chat in store.conversations()} == {"Cooking soup", "My title", "Mine too"}
    assert organiser.without_title() == []
    none = store.create_conversation("still the prompt", from_prompt=True)
    assert not organiser.set_title_by_model(none.id, "")
    assert organiser.without_title() == []  # it had its go


def test_folders_of_a_file_made_by_hand_are_shown_as_far_as_they_can_be(database: Path, open_store: OpenStore) -> None:
    store = open_store()
    chat = store.create_conversation("lost")
    store.close()
    with closing(connect_by_hand(database)) as by_hand, by_hand:
        by_hand.executemany(
            "INSERT INTO folders (id, parent_id, name, created_at) VALUES (?, ?, ?, 1)",
            [(1, 2, "cycle"), (2, 1, "of two"), (3, 99, "no parent"), (4, None, "top"), (5, 4, "in"), (6, 5, "deep")],
        )
        by_hand.execute("UPDATE conversations SET folder_id = 77 WHERE id = ?", (chat.id,))
    store = open_store()
    parents = {folder.name: folder.parent_id for folder in store.organiser.folders()}
    assert parents == {"cycle": None, "of two": None, "no parent": None, "top": None, "in": 4, "deep": None}
    store.rename_conversation(chat.id, "found")
    store.organiser.move(chat.id, 4)
    assert store.conversation(chat.id).folder_id == 4


@pytest.mark.parametrize(
    "act",
    [
        lambda organiser: organiser.create_folder("Work", None, Project("Rhyme."), files_named("ab")),
        lambda organiser: organiser.keep_note(replace(organiser.notes()[0], text="Shorter")),
    ],
    ids=["a new project", "a note of an import is kept"],
)
def test_what_a_person_does_at_once_is_one_transaction(
    store: ConversationStore, act: Callable[[ChatOrganiser], object]
) -> None:
    """A kill between two of them left a folder without the project, and a note twice."""
    store.execute("INSERT INTO notes (created_at, source, text, kept) VALUES (1, 'an import', 'Longer', 0)")
    begun = list[str]()
    store.write(lambda connection: connection.set_trace_callback(begun.append))
    act(store.organiser)
    store.write(lambda connection: connection.set_trace_callback(None))
    assert sum(sql.startswith("BEGIN") for sql in begun) == 2, "one of them takes the callback away"


def test_a_new_folder_has_its_project(store: ConversationStore) -> None:
    folder = store.organiser.create_folder("Work", None, Project("Rhyme."), files_named("ab"))
    assert (folder.name, folder.project) == ("Work", Project("Rhyme."))
    assert [(file, store.file_text(file)) for file in folder.files] == files_named("ab")
