"""The law of what an import changes: it adds, and what was there stays as it is; undone, the store is as before."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import example, given, settings, strategies as st

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Conversation, Drafting, ReadingPosition
from rdchat.chat.notes import Note
from rdchat.chat.projects import Folder
from rdchat.chat.storage import folders_listed
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.chat.transfer.chat_import import ImportReport, take_back
from rdchat.chat.transfer.claude_projects import MEMORIES, PROJECTS as PROJECTS_FORMAT
from rdchat.chat.transfer.transfer_process import FORMATS
from rdchat.inference.api import Role
from tests.chat.storage.project_texts import text_file
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.full_samples import FULL
from tests.chat.transfer.project_entries import PROJECTS, chat_entry, project_entry
from tests.chat.transfer.samples import lm_studio_chat, ours, write_jan

type Rows = set[tuple[Any, ...]]
type Names = tuple[str, ...]

FILE = text_file("a.txt", "Alpha")
NAMES = st.sampled_from([("Work",), ("Work 2",), ("Play",), ("Play", "Work")])


def rows(store: ConversationStore) -> Rows:
    """All rows of the store, each behind the name of its table; without the search indexes."""
    names = [name for (name,) in store.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [name for name in names if "_index" not in name and not name.startswith("sqlite_")]
    assert {"conversations", "messages", "folders", "folder_files", "file_texts", "notes"} <= {*tables}
    return {(table, *row) for table in tables for row in store.rows(f"SELECT rowid, * FROM {table}")}


def undo(store: ConversationStore, report: ImportReport) -> None:
    store.write(lambda connection: take_back(report, connection))
    store.organiser.erase().result()


def own_folder(store: ConversationStore, names: Sequence[str], kind: str) -> Folder:
    """Make a folder with a chat and a note; the folder around it is made where it is missing."""
    outer = None
    if len(names) > 1:
        there = {folder.name: folder for folder in store.organiser.folders() if folder.parent_id is None}
        outer = (there.get(names[0]) or own_folder(store, names[:1], "plain")).id
    folder = store.organiser.create_folder(names[-1], outer)
    store.organiser.set_project(folder.id, PROJECTS[kind], [FILE] if kind == "files" else [])
    chat = store.create_conversation("Mine")
    store.add_message(chat.id, None, Role.USER, f"About {names}")
    store.organiser.move(chat.id, folder.id)
    store.organiser.keep_note(Note("I use tabs", folder.id, chat.id))
    return folder


def project_of(chat: Conversation, store: ConversationStore) -> Folder | None:
    """The folder from which a chat has its instructions and files."""
    by_id = {folder.id: folder for folder in folders_listed(store.rows)}
    folder = by_id.get(chat.folder_id or 0)
    while folder is not None and not folder.is_project:
        folder = by_id.get(folder.parent_id or 0)
    return folder


def check_law(store: ConversationStore, path: Path) -> ImportReport:
    before = rows(store)
    report = tasks.import_into(store, [path])
    after = rows(store)
    assert before <= after
    undo(store, report)
    assert rows(store) == before
    return report


stores_and_files = given(
    st.lists(st.tuples(NAMES, st.sampled_from([*PROJECTS])), max_size=4),
    st.lists(st.tuples(NAMES, st.sampled_from(["rhymes", "drums", "files"])), max_size=3),
    st.lists(NAMES, min_size=1, max_size=3),
)
"""Folders of one's own, and the projects and chats of a file."""


def check_import(
    own: Sequence[tuple[Names, str]], projects: Sequence[tuple[Names, str]], chats: Sequence[Names]
) -> None:
    with tempfile.TemporaryDirectory() as name, closing(ConversationStore(Path(name, "chats.db"))) as store:
        for names, kind in own:
            own_folder(store, names, kind)
        entries = [project_entry(*each) for each in projects]
        entries += [chat_entry(names, f"Theirs {number}") for number, names in enumerate(chats)]
        path = Path(name, "theirs.json")
        path.write_text(json.dumps(ours(*entries)))
        check_law(store, path)
        report = tasks.import_into(store, [path])
        stored = {chat.id: chat for chat in store.conversations()}
        for chat_id, names in zip(report.chats, chats, strict=True):
            wanted = next((kind for depth in (2, 1) for each, kind in projects if each == names[:depth]), "plain")
            folder = project_of(stored[chat_id], store)
            found = (folder.project.instructions, [*folder.files]) if folder else ("", [])
            assert found == (PROJECTS[wanted].instructions, [FILE[0]] if wanted == "files" else [])
        there = rows(store)
        again = tasks.import_into(store, [path])
        assert rows(store) == there, "the same file again adds something"
        assert not again.folders
        assert again.already_here == len(chats)


@stores_and_files
@example([(("Work",), "plain")], [(("Work",), "files")], [("Work",)])
@settings(max_examples=8, deadline=None)
def test_an_import_adds_and_changes_nothing_of_ones_own(own: Any, projects: Any, chats: Any) -> None:
    check_import(own, projects, chats)


@pytest.mark.slow
@stores_and_files
@settings(max_examples=150, deadline=None)
def test_many_imports_add_and_change_nothing(own: Any, projects: Any, chats: Any) -> None:
    check_import(own, projects, chats)


IMAGE = image_file(b"\x89PNG\r\n\x1a\nmine", "mine.png")


def fill(store: ConversationStore) -> None:
    """Store something of every kind that a person can have."""
    for number, kind in enumerate(PROJECTS):
        own_folder(store, ("Work", f"Inner {number}"), kind)
    project = own_folder(store, ("Play",), "drums")
    store.organiser.set_project(project.id, PROJECTS["drums"], [FILE, IMAGE])
    organiser = store.organiser
    organiser.keep_note(Note("For all", None, None))
    kinds = ("pinned", "archived", "deleted", "temporary title", "forked")
    chats = {kind: store.create_conversation(kind, from_prompt=kind == "temporary title").id for kind in kinds}
    for kind, chat in chats.items():
        asked = store.add_message(chat, None, Role.USER, kind, files=[FILE, IMAGE])
        reply = store.add_message(chat, asked.id, Role.ASSISTANT, "A reply", model="m", seed=7, drafting=Drafting())
        store.save_trace(reply.id, b"a trace", onward=False)
        store.set_context_cut(asked.id, ContextCut("A summary", files=(FILE[0],)))
    other = store.add_message(chats["forked"], None, Role.USER, "Another")
    store.message_trash.delete(store.add_message(chats["forked"], other.id, Role.USER, "Deleted").id)
    store.save_reading_position(chats["forked"], ReadingPosition(other.id, 3))
    store.save_unsent_text(chats["forked"], None, "Typed")
    store.save_unsent_text(None, None, "Typed for a new chat")
    store.save_unsent_files(chats["forked"], [FILE])
    store.set_chat_options(replace(store.conversation(chats["forked"]), system_prompt="Mine"))
    organiser.set_pinned(chats["pinned"], True)
    organiser.set_archived(chats["archived"], True)
    store.delete_conversation(chats["deleted"])
    organiser.delete_folder(organiser.create_folder("Gone").id)
    store.indexing.result()


def stranger(path: Path) -> Path:
    """A store of somebody else, with folders, a project and a chat that are named as one's own."""
    with closing(ConversationStore(path)) as theirs:
        fill(theirs)
        folder = next(each for each in theirs.organiser.folders() if each.name == "Play")
        theirs.organiser.set_project(folder.id, PROJECTS["rhymes"], [text_file("a.txt", "Beta")])
        theirs.add_message(theirs.create_conversation("pinned").id, None, Role.USER, "Theirs", files=[FILE, IMAGE])
    return path


def zipped_chats(path: Path) -> Path:
    return zipped(path / "data.zip", {"conversations.json": [FULL["Claude"]], "projects.json": CLAUDE_PROJECTS})


def exported(path: Path) -> Path:
    tasks.export(stranger(path / "chats.db"), path / "export.json")
    return path / "export.json"


def backed_up(path: Path) -> Path:
    tasks.back_up(stranger(path / "chats.db"), path / "settings.json", path / "backup.zip")
    with ZipFile(path / "backup.zip") as archive:
        return Path(archive.extract("conversations.db", path / "unpacked"))


def written(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    **{
        name: lambda path, chat=chat: written(path / "conversations.json", [chat])
        for name, chat in FULL.items()
        if name not in {"rdchat", "Jan"}
    },
    "rdchat, one chat": lambda path: written(path / "chat.json", ours(FULL["rdchat"])),
    "rdchat, an export with projects": exported,
    "rdchat, a database": lambda path: stranger(path / "theirs.db"),
    "rdchat, that of a backup": backed_up,
    "Jan, a thread": lambda path: write_jan(path / "t1") / "messages.jsonl",
    "Jan, a folder": lambda path: write_jan(path / "t1"),
    "LM Studio, a file": lambda path: written(path / "1.conversation.json", lm_studio_chat()),
    "Claude, an archive with projects": zipped_chats,
    "Claude, projects": lambda path: written(path / "projects.json", CLAUDE_PROJECTS),
    "Claude, memories": lambda path: written(path / "memories.json", [CLAUDE_MEMORIES]),
}
"""A stranger's file of each form that rdchat reads, by what it is."""


def test_each_form_that_is_read_is_tried() -> None:
    assert {each.name for each in FORMATS} <= {*FORMS, PROJECTS_FORMAT.name, MEMORIES.name}


@pytest.mark.parametrize("form", FORMS)
def test_what_was_there_stays_in_an_import_of_each_form(form: str, store: ConversationStore, tmp_path: Path) -> None:
    fill(store)
    report = check_law(store, FORMS[form](tmp_path))
    assert report.is_complete
    assert report.chats or report.folders or report.notes


def test_the_report_says_whose_chats_have_what(store: ConversationStore, import_json: ImportJson) -> None:
    own_folder(store, ("Work",), "plain")
    own_folder(store, ("Play",), "drums")
    entries = [project_entry(("Work",), "files"), chat_entry(("Work",), "One"), chat_entry(("Play",), "Two")]
    report = import_json("theirs.json", ours(*entries))
    assert [each.gain for each in report.folders] == [
        "“Work 2”: 1 imported chat with instructions, 1 file. Your own “Work” stays as it is.",
        "“Play 2”: 1 imported chat with nothing shared. Your own “Play” stays as it is.",
    ]
    assert len(report.notes) == 2


def test_notes_of_an_import_count_once_they_are_kept(store: ConversationStore, import_json: ImportJson) -> None:
    import_json("theirs.json", ours(project_entry(("Work",), "rhymes"), chat_entry(("Work",), "One")))
    notes = store.organiser.notes()
    assert [(note.text, note.kept, note.source) for note in notes] == [
        ("They use blanks", False, "an import"),
        ("I use tabs", False, "an import"),
    ]
    folder_id = notes[0].folder_id
    # A note that does not count is no source of another one.
    assert store.organiser.note_source(0, folder_id) == "imported instructions"
    # What is typed is stored, also where a note from an import has the same words.
    store.organiser.keep_note(Note("I use tabs", folder_id, None))
    store.organiser.keep_note(notes[0])
    kept = {note.text: note.source for note in store.organiser.notes() if note.kept}
    assert kept == {"I use tabs": "", "They use blanks": "an import"}
    assert [note.text for note in store.organiser.notes() if not note.kept] == ["I use tabs"]


# Claude's projects and memories

CLAUDE_PROJECTS = [
    {
        "uuid": "p1", "name": "Boats", "description": "All about boats", "is_starter_project": False,
        "prompt_template": "Answer like a captain.", "created_at": "2025-08-01T10:00:00Z",
        "creator": {"uuid": "u", "full_name": "Sam Sailor"},
        "docs": [{"uuid": "d", "filename": "keel.md", "content": "Oak.", "created_at": "2025-08-01T10:00:00Z"}],
    },
    {"uuid": "p2", "name": "Boats", "prompt_template": "Rhyme.", "docs": []},
]  # fmt: skip
CLAUDE_MEMORIES = {
    "conversations_memory": "**Work**\n\nSails a boat.\n\nLikes oak.",
    "project_memories": {"p2": "Rhymes with coat.", "gone": "Of a project that is not there."},
    "memory_files": [{"content": "Of an unknown form."}],
    "account_uuid": "u",
}
CLAUDE_CHAT = {
    "uuid": "c", "name": "Wind", "chat_messages": [{"uuid": "m", "sender": "human", "text": "Why does it blow?"}],
}  # fmt: skip


def zipped(path: Path, members: Mapping[str, Any]) -> Path:
    with ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, json.dumps(data))
    return path


def check_claude(store: ConversationStore, report: ImportReport) -> None:
    assert report.is_complete
    assert [chat.title for chat in store.conversations()] == ["Wind"]
    folders = {folder.name: folder for folder in store.organiser.folders()}
    assert {name: folder.project.instructions for name, folder in folders.items()} == {
        "Boats": "Answer like a captain.",
        "Boats 2": "Rhyme.",
    }
    ((file,)) = folders["Boats"].files
    assert (file.name, store.file_text(file)) == ("keel.md", "Oak.")
    assert {(note.text, note.folder_id, note.kept) for note in store.organiser.notes()} == {
        ("**Work**\n\nSails a boat.", None, False),
        ("Likes oak.", None, False),
        ("Rhymes with coat.", folders["Boats 2"].id, False),
        ("Of a project that is not there.", None, False),
    }
    without = {(each.title, each.parts) for each in report.without}
    assert {("Boats", "1 “description” text"), ("Memories", "1 “content” text")} <= without


@pytest.mark.parametrize("how", ["old", "new", "several", "folder"])
def test_claudes_projects_and_memories_are_imported(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, how: str
) -> None:
    one_by_one = {f"projects/{each['uuid']}.json": each for each in CLAUDE_PROJECTS}
    chats = {"conversations.json": [CLAUDE_CHAT]}
    old = chats | {"users.json": [{"uuid": "u"}], "memories.json": [CLAUDE_MEMORIES], "projects.json": CLAUDE_PROJECTS}
    new = chats | {"memories/u.json": CLAUDE_MEMORIES} | one_by_one
    match how:
        case "several":
            archives = {"m": {"memories/u.json": CLAUDE_MEMORIES}, "p": one_by_one, "c": chats}
            names = {"m": "memories-000.zip", "p": "projects-000.zip", "c": "conversations-000.zip"}
            paths = [zipped(tmp_path / names[key], members) for key, members in archives.items()]
        case "folder":
            for name, data in new.items():
                (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "data" / name).write_text(json.dumps(data))
            paths = [tmp_path / "data"]
        case _:
            paths = [zipped(tmp_path / "data.zip", old if how == "old" else new)]
    before = rows(store)
    report = import_files(*paths)
    check_claude(store, report)
    there = rows(store)
    again = import_files(*paths)
    assert rows(store) == there
    undo(store, again)
    undo(store, report)
    assert rows(store) == before


@pytest.mark.parametrize("data", [{"a": "b c"}, [], [{"name": "x y"}], "x"])
def test_other_files_of_these_names_hide_no_chat(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, data: Any
) -> None:
    path = zipped(
        tmp_path / "data.zip", {"conversations.json": [CLAUDE_CHAT], "projects.json": data, "projects/a.json": data}
    )
    report = import_files(path)
    assert [chat.title for chat in store.conversations()] == ["Wind"]
    ((left_out,)) = report.without
    assert left_out.parts.startswith("2 files: ")


def test_an_empty_memory_is_nothing(store: ConversationStore, import_json: ImportJson) -> None:
    report = import_json("memories.json", [{"conversations_memory": "", "project_memories": {}}])
    assert report.is_complete
    assert report.files[0].chats == report.files[0].folders == report.files[0].notes == []


def test_projects_and_notes_of_a_file_are_limited(
    store: ConversationStore, import_json: ImportJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.chat.transfer.transfer_process._MAX_SHARED", 4)
    report = import_json("theirs.json", ours(*(project_entry(("Work",), kind) for kind in ("rhymes", "drums"))))
    assert len(report.folders) == 1
    assert [each.reason for each in report.not_taken] == ["The file has more than 4 projects and notes."]
