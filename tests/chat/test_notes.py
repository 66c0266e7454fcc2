"""Notes in the store, and what is read as one."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.conversation import NEW_CHAT, Drafting, MessageStatus, Origin
from rdchat.chat.notes import Note, notes_text
from rdchat.chat.projects import Project
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import SUMMARY_NOTE
from rdchat.inference.api import Role
from tests.stores import finish_message


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    with closing(ConversationStore(tmp_path / "chats.db", clock=lambda: 1_764_000_000.0)) as store:
        yield store


def texts(store: ConversationStore) -> list[str]:
    return [note.text for note in store.organiser.notes()]


def test_a_note_has_its_project_chat_day_and_source(store: ConversationStore) -> None:
    folder = store.organiser.create_folder("Work")
    chat = store.create_conversation("Soup")
    store.organiser.keep_note(Note(" I use\ttabs\n", folder.id, chat.id, "a file"))
    (note,) = store.organiser.notes()
    assert (note.text, note.folder_id, note.chat_id) == ("I use\ttabs", folder.id, chat.id)
    assert (note.scope, note.chat) == ("the project “Work”", "the chat “Soup”")
    assert notes_text([note]).splitlines()[1:] == [f"- {note.date}: I use\ttabs (perhaps from a file)"]
    assert note.date.startswith("2025-11-2")
    store.execute("UPDATE notes SET created_at = 1e300, folder_id = NULL")
    (note,) = store.organiser.notes()
    assert (note.date, note.scope) == ("an unknown day", "all chats")


def test_a_deleted_chat_keeps_its_notes_and_they_are_marked(store: ConversationStore) -> None:
    chat = store.create_conversation("Soup")
    store.organiser.keep_note(Note("I use tabs", None, chat.id))
    store.delete_conversation(chat.id)
    assert [(note.text, note.chat) for note in store.organiser.notes()] == [("I use tabs", "a deleted chat")]
    store.restore_conversation(chat.id)
    assert store.organiser.notes()[0].chat == "the chat “Soup”"
    store.delete_conversation(chat.id)
    store.organiser.schedule_erase([chat.id])
    store.organiser.erase().result()
    assert [(note.text, note.chat_id) for note in store.organiser.notes()] == [("I use tabs", None)]


def test_a_projects_notes_go_with_it_for_good(store: ConversationStore) -> None:
    folder = store.organiser.create_folder("Work")
    store.organiser.keep_note(Note("Of work", folder.id, None))
    store.organiser.keep_note(Note("Of all", None, None))
    store.organiser.delete_folder(folder.id)
    assert texts(store) == ["Of work", "Of all"]
    store.organiser.erase_folder(folder.id)
    assert texts(store) == ["Of all"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["one", "two", "three"]), st.booleans()), max_size=12))
@settings(max_examples=20)
def test_no_note_is_lost_or_doubled(store: ConversationStore, steps: list[tuple[str, str, bool]]) -> None:
    """Whatever is kept and deleted: each note that was kept and not deleted is there once, the newest last."""
    store.execute("DELETE FROM notes")
    folders = {name: store.organiser.create_folder(name).id for name in "ab"}
    expected = list[tuple[int, str]]()
    for name, text, deletes in steps:
        key = (folders[name], text)
        if not deletes:
            store.organiser.keep_note(Note(text, folders[name], None))
            expected += [key] if key not in expected else []
        elif key in expected:
            note = next(each for each in store.organiser.notes() if (each.folder_id, each.text) == key)
            store.organiser.change_note(note.id, "")
            expected.remove(key)
    assert [(note.folder_id, note.text) for note in store.organiser.notes()] == expected


def test_text_of_others_in_a_chat_is_known(store: ConversationStore) -> None:
    chat = store.create_conversation("Soup")
    question = store.add_message(chat.id, None, Role.USER, "Hi")

    def add_reply(drafting: Drafting | None) -> None:
        reply = store.add_message(chat.id, question.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
        finish_message(store, reply.id, "Hello", MessageStatus.COMPLETE, drafting=drafting)

    source = lambda chat, folder=None: store.organiser.note_source(chat.id, folder)  # noqa: E731
    assert source(chat) == ""
    add_reply(Drafting())
    assert source(chat) == ""
    add_reply(Drafting(server="studio"))
    assert source(chat) == "a remote reply"
    other = store.create_conversation("Bread")
    file = attached(ReadFile("a.txt", FileKind.TEXT, ("Alpha",)), "Alpha"), "Alpha"
    store.add_message(other.id, None, Role.USER, "Hi", files=[file])
    store.add_message(other.id, None, Role.TOOL, "Result")
    assert source(other) == "a file or a result of a tool"
    store.add_message(other.id, None, Role.ASSISTANT, "Imported", origin=Origin.IMPORT)
    assert source(other) == "a file or a result of a tool or an import"
    continued = replace(NEW_CHAT, system_prompt=f"Be brief.\n\n{SUMMARY_NOTE}\n\nAnn leads.")
    assert source(store.create_conversation("Bread (continued)", like=continued)) == "a summary of another chat"
    third = store.create_conversation("Wine")
    folder = store.organiser.create_folder("Work").id
    assert source(third, folder) == ""
    store.organiser.set_project(folder, Project(), [file])
    assert (source(third), source(third, folder)) == ("", "a file")
    store.organiser.set_project(folder, Project("Be brief.", imported=True), [])
    assert (source(third), source(third, folder)) == ("", "imported instructions")
    store.organiser.set_project(folder, Project("Be brief."), [file])
    store.organiser.keep_note(Note("x", folder, None, "a file"))
    assert (source(third), source(third, folder)) == ("", "a file or an earlier note")
    store.organiser.keep_note(Note("x", None, None, "a file"))
    assert source(third) == "an earlier note"


@given(st.text(max_size=2000))
@settings(max_examples=30)
def test_a_note_is_kept_as_typed(store: ConversationStore, text: str) -> None:
    """No word is lost, changed or cut, in the store or in a prompt, where each line of a note stands in its entry."""
    store.execute("DELETE FROM notes")
    store.organiser.keep_note(Note("first", None, None))
    store.organiser.keep_note(Note(text, None, None))
    kept = store.organiser.notes()[1:]
    assert [note.text for note in kept] == ([text.strip()] if text.strip() else [])
    if kept:
        store.organiser.change_note(store.organiser.notes()[0].id, f"{text} too")
        assert store.organiser.notes()[0].text == f"{text} too".strip()
        _, *lines = notes_text(kept).split("\n")
        assert lines[0].startswith(f"- {kept[0].date}: ")
        assert all(line.startswith("  ") for line in lines[1:])
        assert " ".join(lines).split()[2:] == text.split()


def test_no_notes_are_no_text() -> None:
    assert notes_text(()) == ""
