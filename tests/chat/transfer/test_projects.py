"""Projects in exports, imports and backups."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import NEW_CHAT, Message
from rdchat.chat.notes import Note
from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage import FullChat
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.rdchat_json import plain_chat, read
from rdchat.inference.api import Role
from tests.chat.storage.project_texts import text_file
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.full_samples import IMAGE
from tests.chat.transfer.samples import ours

WHOLE = Project("Rhyme.", preset="p", model="/models/big", tools=("web",))


# An import drops control characters and halves of surrogate pairs.
LETTERS = st.characters(exclude_categories=["Cc", "Cs"])
FILES = [text_file("a.txt", "Alpha"), image_file(IMAGE, "b.png")]
ENTRY = {
    "title": "Work",
    "folder": ["Work"],
    "project": True,
    "system_prompt": "Rhyme always.",
    "messages": [{"parent": None, "role": "user", "text": "", "files": [
        {"name": "a.txt", "kind": "text", "text": "Alpha beta", "note": "Two pages", "taken": "page 1"}
    ]}],
}  # fmt: skip


def fill(store: ConversationStore) -> None:
    """Two chats of a project, one in a folder within another project, and a project without a chat."""
    work = store.organiser.create_folder("Work")
    outer = store.organiser.create_folder("Outer")
    inner = store.organiser.create_folder("Inner", outer.id)
    empty = store.organiser.create_folder("Empty", outer.id)
    store.organiser.set_project(work.id, WHOLE, FILES)
    store.organiser.set_project(outer.id, Project("Outside."))
    store.organiser.set_project(empty.id, Project(), FILES[:1])
    for title, folder in (("One", work), ("Two", work), ("Three", inner), ("Four", None)):
        chat = store.create_conversation(title)
        store.add_message(chat.id, None, Role.USER, f"About {title}")
        store.organiser.move(chat.id, folder.id if folder else None)


def empty(store: ConversationStore) -> None:
    for folder in store.organiser.folders():
        store.organiser.delete_folder(folder.id)
        store.organiser.erase_folder(folder.id)
    for chat in store.conversations():
        store.delete_conversation(chat.id)
    assert store.rows("SELECT * FROM file_texts") == []
    assert store.rows("SELECT * FROM file_images") == []


def shared(store: ConversationStore) -> dict[str, Folder]:
    return {folder.name: folder for folder in store.organiser.folders()}


def check_projects(store: ConversationStore) -> None:
    folders = shared(store)
    assert folders["Work"].project == Project("Rhyme.", imported=True)
    assert [file.name for file in folders["Work"].files] == ["a.txt", "b.png"]
    assert [store.file_text(file) for file in folders["Work"].files] == [text for _, text in FILES]
    assert folders["Outer"].project == Project("Outside.", imported=True)
    assert not folders["Inner"].is_project
    assert folders["Empty"].files == (FILES[0][0],)
    assert [folders[each].parent_id for each in ("Inner", "Empty")] == [folders["Outer"].id] * 2
    assert {chat.title for chat in store.conversations() if chat.folder_id == folders["Work"].id} == {"Two", "One"}
    assert len(store.conversations()) == 4
    # Nothing is left of what stood for a project.
    assert store.rows("SELECT count(*) FROM conversations WHERE unlisted <> 0") == [(0,)]
    assert store.rows("SELECT count(*) FROM message_files") == [(0,)]


def test_an_export_has_each_project_once_and_an_import_brings_it(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    fill(store)
    path = tmp_path / "chats.json"
    tasks.export(store.path, path)
    entries = json.loads(path.read_text())["chats"]
    assert sorted(each["folder"] for each in entries if "project" in each) == [["Outer"], ["Outer", "Empty"], ["Work"]]
    empty(store)
    report = import_files(path)
    assert report.is_complete
    assert len(report.chats) == 4
    assert len(report.folders) == 4
    assert report.messages == 4
    check_projects(store)
    again = import_files(path)
    assert again.already_here == 4
    assert again.is_complete
    assert not again.folders
    check_projects(store)


def test_an_export_of_some_chats_has_their_projects_alone(store: ConversationStore, tmp_path: Path) -> None:
    fill(store)
    path = tmp_path / "chats.json"
    ids = [chat.id for chat in store.conversations() if chat.title in {"One", "Four"}]
    tasks.export(store.path, path, chats=ids)
    titles = [each["title"] for each in json.loads(path.read_text())["chats"] if "title" in each]
    assert sorted(titles) == ["Four", "One", "Work"]


def test_a_database_is_imported_with_its_projects(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    with closing(ConversationStore(other)) as filled:
        fill(filled)
    assert import_files(other).is_complete
    check_projects(store)


def test_an_export_of_a_chat_names_the_files_of_its_project_unless_it_is_to_have_them(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    fill(store)
    store.organiser.keep_note(Note("I use tabs", shared(store)["Work"].id, None))
    (chat,) = (chat.id for chat in store.conversations() if chat.title == "One")
    path = tmp_path / "one.json"
    tasks.export(store.path, path, chats=[chat], shares=False)
    (project,) = (entry for entry in json.loads(path.read_text())["chats"] if "project" in entry)
    assert project["system_prompt"] == "Rhyme."
    assert project["messages"][0]["files"] == [{"name": "a.txt", "kind": "text"}, {"name": "b.png", "kind": "image"}]
    assert "notes" not in project
    assert "Alpha" not in path.read_text()
    assert not import_files(path).folders, "the chat is here already"
    store.delete_conversation(chat)
    report = import_files(path)
    assert [each.gain for each in report.folders] == [
        "“Work 2”: 1 imported chat with instructions. Your own “Work” stays as it is."
    ]
    assert [(each.title, each.parts) for each in report.without] == [("Work", "2 file contents")]
    whole = tmp_path / "whole.json"
    tasks.export(store.path, whole, chats=list(report.chats))
    assert "Alpha" not in whole.read_text(), "the new project has no files"


def test_a_project_moves_with_its_notes(store: ConversationStore, import_files: ImportFiles, tmp_path: Path) -> None:
    fill(store)
    store.organiser.keep_note(Note("I use tabs", shared(store)["Work"].id, None))
    (chat,) = (chat.id for chat in store.conversations() if chat.title == "One")
    path = tmp_path / "one.json"
    tasks.export(store.path, path, chats=[chat])
    empty(store)
    report = import_files(path)
    assert report.is_complete
    (work,) = store.organiser.folders()
    assert [file.name for file in work.files] == ["a.txt", "b.png"]
    assert [store.file_text(file) for file in work.files] == [text for _, text in FILES]
    assert [(note.text, note.folder_id, note.kept) for note in store.organiser.notes()] == [
        ("I use tabs", work.id, False)
    ]


def test_markdown_names_the_files_of_the_project_and_has_their_texts_where_they_are_wanted(
    store: ConversationStore, tmp_path: Path
) -> None:
    fill(store)
    (chat,) = (chat.id for chat in store.conversations() if chat.title == "One")
    path = tmp_path / "one.md"
    tasks.export(store.path, path, "markdown", [chat], details=False)
    assert "## Files of the project\n\n*File: a.txt*\n\n*File: b.png*\n\n## You" in path.read_text()
    tasks.export(store.path, path, "markdown", [chat], details=True, shares=False)
    text = path.read_text()
    assert "## System prompt\n\nRhyme." in text
    assert "## Files of the project\n\n*File: a.txt*\n\n*File: b.png*\n\n## You" in text
    tasks.export(store.path, path, "markdown", [chat], details=True)
    text = path.read_text()
    assert "<summary>File: a.txt</summary>" in text
    assert "Alpha" in text


# What may be wrong in a file


@pytest.mark.parametrize(
    "change",
    [
        {"folder": []},
        {"project": 1},
        {"messages": [*ENTRY["messages"], *ENTRY["messages"]]},
        {"messages": [{"role": "user", "text": "Words"}]},
    ],
    ids=["no folder", "no truth", "two messages", "words"],
)
def test_what_is_no_project_stays_a_chat(store: ConversationStore, import_json: ImportJson, change: Any) -> None:
    report = import_json("chats.json", ours(ENTRY | change))
    assert report.is_complete
    assert [chat.title for chat in store.conversations()] == ["Work"]
    assert not any(folder.is_project for folder in store.organiser.folders())


@given(
    st.lists(st.text(LETTERS, min_size=1, max_size=20).filter(str.strip), max_size=2, min_size=1),
    st.text(LETTERS),
    st.lists(st.text(LETTERS), max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_a_project_is_read_as_it_was_written(names: list[str], instructions: str, texts: list[str]) -> None:
    files = [text_file(f"{index}.txt", text) for index, text in enumerate(texts)]
    conversation = NEW_CHAT.__class__(0, names[-1], None, None, system_prompt=instructions)
    messages = (Message(0, 0, None, Role.USER, "", files=tuple(file for file, _ in files)),)
    chat = FullChat(
        conversation, messages, texts={file.digest: text for file, text in files}, folder=tuple(names), is_project=True
    )
    again = read(json.loads(json.dumps(plain_chat(chat))))
    assert again.is_project
    assert again.folder == chat.folder
    assert again.conversation.system_prompt == instructions
    assert again.messages[0].files == messages[0].files
    assert again.texts == chat.texts


def test_notes_of_what_is_no_project_are_counted(import_json: ImportJson) -> None:
    chat = {"title": "Hi", "messages": [{"role": "user", "text": "Words"}], "notes": [{"text": "I use tabs"}]}
    report = import_json("chats.json", ours(chat))
    assert "1 note" in report.without[0].parts
