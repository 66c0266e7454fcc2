"""Notes in the store, and what is read as one."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.conversation import (
    NEW_CHAT,
    Drafting,
    MessageStatus,
)
from rdchat.chat.notes import LONGEST_NOTE, Note, asked_notes, notes_from_model, notes_text
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
    assert (note.text, note.folder_id, note.chat_id) == ("I use tabs", folder.id, chat.id)
    assert (note.scope, note.chat) == ("the project “Work”", "the chat “Soup”")
    assert notes_text([note]).splitlines()[1:] == [f"- {note.date}: I use tabs (perhaps from a file)"]
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
    assert source(chat) == "a remote or imported reply"
    other = store.create_conversation("Bread")
    file = attached(ReadFile("a.txt", FileKind.TEXT, ("Alpha",)), "Alpha"), "Alpha"
    store.add_message(other.id, None, Role.USER, "Hi", files=[file])
    store.add_message(other.id, None, Role.TOOL, "Result")
    assert source(other) == "a file or a result of a tool"
    store.add_message(other.id, None, Role.ASSISTANT, "Imported")
    assert source(other) == "a file or a result of a tool or a remote or imported reply"
    continued = replace(NEW_CHAT, system_prompt=f"Be brief.\n\n{SUMMARY_NOTE}\n\nAnn leads.")
    assert source(store.create_conversation("Bread (continued)", like=continued)) == "a summary of another chat"
    third = store.create_conversation("Wine")
    folder = store.organiser.create_folder("Work").id
    assert source(third, folder) == ""
    store.organiser.set_project(folder, Project(), [file])
    assert (source(third), source(third, folder)) == ("", "a file")
    store.organiser.keep_note(Note("x", folder, None, "a file"))
    assert (source(third), source(third, folder)) == ("", "a file or an earlier note")
    store.organiser.keep_note(Note("x", None, None, "a file"))
    assert source(third) == "an earlier note"


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Remember that I use tabs.", ["I use tabs"]),
        ("Hello! Please remember that I live in Lisbon, not in Porto. And thanks.", ["I live in Lisbon, not in Porto"]),
        (
            "remember that version 3.2 is ours\nremember that Ann is the boss",
            ["version 3.2 is ours", "Ann is the boss"],
        ),
        ("Can you remember that I use tabs?", ["I use tabs"]),
        ("Do you remember that day?", []),
        ("I remember that it was cold.", []),
        ("I don't remember that.", []),
        ("What is memory?", []),
    ],
)
def test_remember_that_proposes_the_persons_words(question: str, asked: list[str]) -> None:
    assert asked_notes(question) == asked


@given(st.text("ab1 -*.\n\t\u2028\0"))
def test_what_a_model_writes_is_at_most_lines(answer: str) -> None:
    for note in notes_from_model(answer):
        assert note == " ".join(note.split())
        assert 0 < len(note) <= LONGEST_NOTE


def test_a_model_that_notes_nothing_proposes_nothing() -> None:
    assert notes_from_model("none") == notes_from_model("- None.") == notes_from_model("There is nothing.") == []
    assert notes_from_model("- Ann leads.\n- **Tabs**, not spaces.\nThat is all.") == [
        "Ann leads",
        "**Tabs**, not spaces",
    ]
    assert notes_text(()) == ""
