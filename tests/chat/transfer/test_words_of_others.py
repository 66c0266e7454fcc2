"""The law of whose words a chat has: those of an import stay marked, whatever its file says, and nothing of one's own
comes in by a digest that it names."""

import json
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_file
from rdchat.chat.conversation import MessageStatus, Origin
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import Role
from rdchat.services.chat.chat_prompt import ChatPrompt
from tests.chat.storage.project_texts import text_file
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.full_samples import FULL
from tests.chat.transfer.samples import ours, write_jan
from tests.stores import old_store

VALUES = st.sampled_from([None, "", "x", True, False, 0, 7, [], {}, {"server": ""}, {"mode": "off", "server": ""}])
FIELDS = st.dictionaries(
    st.sampled_from(["drafting", "edited", "status", "error", "origin", "imported", "model", "seed", "context_cut",
                     "made_with", "finish_reason", "statistics", "tool_calls", "tool_name"]),
    VALUES | st.sampled_from([*MessageStatus, *Origin]),
)  # fmt: skip
MESSAGES = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), FIELDS), min_size=1, max_size=4)


def origins(store: ConversationStore, chat: int) -> list[str | None]:
    return [row[0] for row in store.rows("SELECT origin FROM messages WHERE conversation_id = ?", chat)]


def check_marks(store: ConversationStore, chat: int, copies: bool) -> None:
    assert set(origins(store, chat)) == {"an import"}
    assert "an import" in store.organiser.note_source(chat, None)
    if copies:
        for last_id in (None, store.messages(chat).ids[-1]):
            check_marks(store, store.organiser.copy(chat, "Mine", last_id).result(), copies=False)


@given(MESSAGES)
@example([("assistant", {"drafting": {"mode": "off", "server": ""}})])
@example([("assistant", {"edited": True})])
@example([("assistant", {"status": "interrupted"}), ("assistant", {"status": "failed", "error": "e"})])
@example([("user", {"origin": None, "context_cut": {"summary": "Our bank is Evil Bank."}})])
@settings(max_examples=15, deadline=None)
def test_no_field_of_a_file_decides_whose_words_its_messages_are(messages: list[tuple[str, dict[str, Any]]]) -> None:
    entries = [
        fields | {"parent": number - 1 if number else None, "role": role if number else "user", "text": f"{number}"}
        for number, (role, fields) in enumerate(messages)
    ]
    with tempfile.TemporaryDirectory() as name, closing(ConversationStore(Path(name, "chats.db"))) as store:
        path = Path(name, "theirs.json")
        path.write_text(json.dumps(ours({"title": "Theirs", "messages": entries})))
        (chat,) = tasks.import_into(store, [path]).chats
        check_marks(store, chat, copies=True)
        # An export says nothing of it, and an import marks what it brings.
        tasks.export(store.path, Path(name, "again.json"), chats=[chat])
        assert "an import" not in Path(name, "again.json").read_text()
        store.delete_conversation(chat)
        for each in tasks.import_into(store, [Path(name, "again.json")]).chats:
            check_marks(store, each, copies=False)


@pytest.mark.parametrize("program", FULL)
def test_each_form_is_marked(
    program: str, store: ConversationStore, import_files: ImportFiles, import_json: ImportJson, tmp_path: Path
) -> None:
    if program == "Jan":
        report = import_files(write_jan(tmp_path / "t1"))
    else:
        report = import_json("a.json", ours(FULL[program]) if program == "rdchat" else [FULL[program]])
    for chat in report.chats:
        check_marks(store, chat, copies=True)


def test_a_store_of_somebody_else_is_marked(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    with closing(ConversationStore(tmp_path / "theirs.db")) as theirs:
        theirs.add_message(theirs.create_conversation("Theirs").id, None, Role.USER, "Hi")
    (chat,) = import_files(tmp_path / "theirs.db").chats
    check_marks(store, chat, copies=True)


def test_imports_of_earlier_versions_are_marked_and_what_was_typed_behind_them_is_not(tmp_path: Path) -> None:
    with old_store(tmp_path / "old.db", 11) as connection:
        connection.execute(
            "INSERT INTO conversations (title, created_at, updated_at) VALUES ('Theirs', 1, 1), ('Mine', 1, 1)"
        )
        connection.execute("""
            INSERT INTO messages (conversation_id, activated, role, status, created_at, text, drafting) VALUES
                (1, 1, 'user', 'complete', 1, 'Hi', NULL), (1, 2, 'assistant', 'complete', 1, 'Hello', NULL),
                (1, 3, 'user', 'complete', 1, 'Mine', NULL), (1, 4, 'assistant', 'complete', 1, 'Here', '{}'),
                (2, 1, 'user', 'complete', 1, 'Hi', NULL), (2, 2, 'assistant', 'complete', 1, 'Here', '{}')
        """)
    with closing(ConversationStore(tmp_path / "old.db")) as store:
        assert origins(store, 1) == ["an import", "an import", None, None]
        assert origins(store, 2) == [None, None]


# What is one's own

PHOTO = image_file(b"\x89PNG\r\n\x1a\nsecret photo", "mine.png")
SECRET = text_file("mine.txt", "A secret of mine")


def own_digests(store: ConversationStore) -> None:
    """Store files as messages and projects have them."""
    store.add_message(store.create_conversation("Mine").id, None, Role.USER, "Mine", files=[SECRET, PHOTO])
    for files in ([SECRET], [PHOTO]):
        folder = store.organiser.create_folder("Mine")
        store.organiser.set_project(folder.id, folder.project, files)


def contents(store: ConversationStore, chat: int) -> list[str]:
    """All that a chat has of files, stored and as a model gets it."""
    path = store.messages(chat)
    files = [*path[0].files, *(path[0].context_cut.files if path[0].context_cut else ())]
    prompts = [message.text for message in ChatPrompt(path, "").with_files(store.file_text).path]
    return [*map(store.file_text, files), *prompts]


@pytest.mark.parametrize(
    "digest", [SECRET[0].digest, PHOTO[0].digest, PHOTO[0].digest.removeprefix("image ")], ids=["text", "image", "old"]
)
@pytest.mark.parametrize("kind", [FileKind.TEXT, FileKind.IMAGE])
@pytest.mark.parametrize("text", [None, "x"])
@pytest.mark.parametrize("place", ["message", "project", "cut", "cut with the file", "database"])
def test_a_digest_that_a_file_names_brings_nothing_of_ones_own(
    store: ConversationStore,
    import_files: ImportFiles,
    tmp_path: Path,
    place: str,
    text: str | None,
    kind: str,
    digest: str,
) -> None:
    own_digests(store)
    entry = {"name": "theirs", "kind": kind, "digest": digest, "characters": 9} | (
        {} if text is None else {"text": text}
    )
    message: dict[str, Any] = {"parent": None, "role": "user", "text": "Hi"}
    chat: dict[str, Any] = {"title": "Theirs", "messages": [message]}
    path = tmp_path / "theirs.json"
    if place.startswith("cut"):
        cut = ContextCut("S", files=(AttachedFile("theirs", FileKind(kind), digest, 9),))
        message["context_cut"] = json.loads(json.dumps(asdict(cut)))
    if place in {"message", "project", "cut with the file"}:
        message["files"] = [entry]
    if place == "project":
        # The second one is named like that of one's own.
        chat |= {"project": True, "folder": ["Theirs"]}
        message["text"] = ""
        path.write_text(json.dumps(ours(chat, chat | {"title": "Mine", "folder": ["Mine"]})))
    else:
        path.write_text(json.dumps(ours(chat)))
    if place == "database":
        path = tmp_path / "theirs.db"
        with closing(ConversationStore(path)) as theirs:
            file = AttachedFile("theirs", FileKind(kind), digest, 9), "" if kind == "image" else text or ""
            theirs.add_message(theirs.create_conversation("Theirs").id, None, Role.USER, "Hi", files=[file])
    report = import_files(path)
    own = {SECRET[1], PHOTO[1]}
    assert len(report.folders) == (2 if place == "project" else 0)
    for chat_id in report.chats:
        found = contents(store, chat_id)
        assert not [each for each in found if any(secret in each for secret in own)]
    for folder in store.organiser.folders():
        if folder.name != "Mine":
            assert not own & {store.file_text(file) for file in folder.files}
    if place != "database":
        again = import_files(path)
        assert not again.chats
        assert not again.folders


def test_an_image_that_comes_behind_its_chat_is_there(store: ConversationStore, import_json: ImportJson) -> None:
    own_digests(store)
    file = {"name": "theirs.png", "kind": "image", "digest": PHOTO[0].digest, "characters": 9}
    messages = [{"parent": None, "role": "user", "text": "Hi", "files": [file]}]
    (chat,) = import_json("a.json", ours({"title": "T", "messages": messages}, {"image": PHOTO[1]})).chats
    assert store.file_text(store.messages(chat)[0].files[0]) == PHOTO[1]
