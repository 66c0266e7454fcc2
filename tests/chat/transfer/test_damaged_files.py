"""Damaged, hostile and foreign files give one sentence, and nothing of them is stored."""

import json
import os
import shutil
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.storage import FullChat
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import chatgpt, transfer_process
from rdchat.chat.transfer.chat_import import ImportReport, ImportWriter, SkippedChat, TaskProgress
from rdchat.chat.transfer.foreign_chats import ForeignChat
from rdchat.chat.transfer.transfer_process import read_files
from rdchat.inference.api import Role
from rdchat.work.job import CancelledError, Job, StopWork
from tests.chat.transfer.conftest import ImportFiles, ImportJson, WriteJson
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, write_jan
from tests.stores import connect_by_hand

GOOD = chatgpt_chat(chatgpt_node("q", None, "user", "Fine"), title="Good")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (json.dumps([GOOD]).encode()[:-40], "damaged or incomplete"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"\x80abc", "is no chat export"),
        (json.dumps([GOOD]).encode().replace(b"null", b"nil"), "damaged or incomplete"),
        (b'{"id": ' + b"1" * 5000 + b"}", "has a number that is too long"),
        (b"# Report\n", "chats.json is no chat export. rdchat imports rdchat's own JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "is no chat export"),
        (b'{"type": "session"}\n{"type": "message"}\n', "or no file that rdchat reads"),
        (b'{"chats": 3}', "is no chat export. rdchat imports rdchat's own JSON"),
        (b"[]", "has no chats"),
        (b'{"format": "rdchat chats", "version": 3, "chats": []}', "newer version of rdchat"),
        (b'{"format": "rdchat chats", "version": 1, "chats": 4}', "is damaged"),
        (b"PK\x03\x04" + b"\0" * 40, "damaged archive"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_a_sentence(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, content: bytes, words: str
):
    (tmp_path / "chats.json").write_bytes(content)
    report = import_files(tmp_path / "chats.json")
    assert not report.is_complete
    assert words in report.files[0].problem
    assert not store.conversations()


def test_a_chat_of_which_every_message_is_damaged_is_refused(import_json: ImportJson):
    chat = chatgpt_chat(chatgpt_node("q", None, "user", "Q"))
    chat["mapping"]["q"]["message"]["author"] = 3
    (not_taken,) = import_json("conversations.json", [chat]).not_taken
    assert "has the wrong type" in not_taken.reason


@pytest.mark.parametrize(
    "value", [1e300, -5, "never", float("nan"), 10**30, pytest.param(10**400, id="huge"), True, [], "2024-13-99"]
)
def test_a_date_that_no_calendar_has_is_unknown(store: ConversationStore, import_json: ImportJson, value: object):
    nodes = (chatgpt_node("q", None, "user", "Q"), chatgpt_node("a", "q", "assistant", "A"))
    chat = chatgpt_chat(*nodes) | {"create_time": value}
    chat["mapping"]["q"]["message"]["create_time"] = value
    assert import_json("conversations.json", [chat]).is_complete
    (conversation,) = store.conversations()
    assert conversation.created_at is not None, "the other messages or the file have a date"
    assert store.messages(conversation.id)[0].created_at is None


@pytest.mark.parametrize("error", [TypeError, ValueError, OverflowError, KeyError, RecursionError])
def test_damage_that_no_reader_foresaw_leaves_one_chat_out(
    store: ConversationStore,
    import_json: ImportJson,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
):

    def fail(chat: ForeignChat, fields: dict[str, Any]) -> FullChat:
        if fields["title"] == "Odd":
            raise error
        return chatgpt.FORMAT.convert(chat, fields)

    monkeypatch.setattr(transfer_process, "FORMATS", (replace(chatgpt.FORMAT, convert=fail),))
    report = import_json("conversations.json", [GOOD | {"title": "Odd"}, GOOD])
    assert [each.title for each in store.conversations()] == ["Good"]
    assert report.not_taken == (SkippedChat("Odd", "It is damaged."),)


def test_odd_letters_are_kept_as_far_as_they_can_be_stored(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    text = "a\ud800b\0c \u202e עברית 👩‍👩‍👧 \U0010ffff"
    assert import_files(
        write_json("conversations.json", [chatgpt_chat(chatgpt_node("q", None, "user", text), title="\ud83d\n\t")])
    ).is_complete
    (conversation,) = store.conversations()
    assert store.messages(conversation.id)[0].text == "a?bc \u202e עברית 👩‍👩‍👧 \U0010ffff"


def test_a_line_of_jan_that_is_cut_off_costs_that_message(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    messages = write_jan(tmp_path / "t1") / "messages.jsonl"
    messages.write_bytes(b"{damaged\n" + messages.read_bytes()[:-30])
    report = import_files(tmp_path / "t1")
    (conversation,) = store.conversations()
    assert [each.text for each in store.messages(conversation.id)] == ["How?"]
    assert "2 damaged messages" in report.without[0].parts


def test_a_thread_of_jan_without_a_whole_line_is_refused(import_files: ImportFiles, tmp_path: Path):
    (write_jan(tmp_path / "t1") / "messages.jsonl").write_bytes(b"\x80\x81\n{")
    (not_taken,) = import_files(tmp_path / "t1").not_taken
    assert not_taken.reason == "All lines of messages.jsonl are damaged."


def test_what_is_no_file_is_not_opened(import_files: ImportFiles, tmp_path: Path):
    os.mkfifo(tmp_path / "conversations.json")
    report = import_files(tmp_path / "conversations.json", tmp_path / "nowhere.json", tmp_path)
    assert ["not a file" in each.problem or "cannot be read" in each.problem for each in report.files] == [True] * 3


def test_a_damaged_part_of_an_archive_takes_nothing_of_it(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations-000.json", json.dumps([GOOD]))
        archive.writestr("conversations-001.json", "[{")
    report = import_files(tmp_path / "export.zip")
    assert "conversations-001.json is not valid JSON" in report.files[0].problem
    assert not store.conversations()
    assert store.rows("SELECT count(*) FROM messages")[0][0] == 0


def test_an_import_that_is_stopped_takes_back_what_it_wrote(store: ConversationStore, write_json: WriteJson):
    path = write_json("conversations.json", [GOOD, GOOD | {"title": "Other"}, GOOD | {"title": "Third"}])
    job = Job[ImportReport]()
    writer = ImportWriter(store)
    sent = list[object]()

    def send(frame: dict[str, Any]) -> None:
        writer.store_frame(frame)
        sent.append(frame)
        if len(sent) == 2:
            job.cancel()

    with pytest.raises(StopWork):
        read_files(store.path, [path], send, TaskProgress(job))
    assert store.rows("SELECT count(*) FROM conversations")[0][0] == 2
    assert not store.conversations()
    writer.end_import(CancelledError(), job.set_outcome)
    report = job.result()
    assert report.cancelled
    assert not report.chats
    assert store.rows("SELECT count(*) FROM conversations")[0][0] == 0


def test_a_database_is_copied_no_further_once_its_import_is_stopped(tmp_path: Path):
    ConversationStore(tmp_path / "other.db").close()
    job = Job[Any]()
    job.cancel()
    with pytest.raises(StopWork):
        next(transfer_process._stored_chats(tmp_path / "other.db", TaskProgress(job)))


@pytest.mark.slow
def test_one_chat_that_cannot_be_read_costs_no_other_one_and_nothing_is_left_beside_the_file(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    paths = [tmp_path / "one" / "chats.db", tmp_path / "two" / "chats.db"]
    for path in paths:
        with closing(ConversationStore(path)) as other:
            for title in ("First", "Second"):
                other.add_message(
                    other.create_conversation(title).id, None, Role.USER, f"{title} of {path.parent.name}"
                )
        path.with_name("chats.db.lock").unlink()
    with closing(connect_by_hand(paths[0], autocommit=True)) as by_hand:
        (trigger,) = by_hand.execute("SELECT sql FROM sqlite_schema WHERE name = 'messages_changed'").fetchone()
        by_hand.execute("DROP TRIGGER messages_changed")
        by_hand.execute("UPDATE messages SET text = printf('%.*c', ?, 'x') WHERE id = 1", (65 << 20,))
        by_hand.execute(trigger)
    report = import_files(*paths)
    assert [(each.title, each.reason) for each in report.not_taken] == [("First", "It cannot be read.")]
    assert len(store.conversations()) == 3
    assert [list(path.parent.iterdir()) for path in paths] == [[path] for path in paths]


def test_a_database_that_another_tool_left_in_the_midst_of_writing_is_not_read_half(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    path = tmp_path / "whole" / "chats.db"
    left = tmp_path / "left"
    with closing(ConversationStore(path)) as other:
        for number in range(50):
            chat = other.create_conversation(f"Chat {number}")
            other.add_message(chat.id, None, Role.USER, "committed " * 3000)
    left.mkdir()
    with closing(connect_by_hand(path, autocommit=True)) as by_hand:
        by_hand.executescript("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2; BEGIN")
        by_hand.executescript("UPDATE conversations SET title = 'HALF'; DELETE FROM messages WHERE id > 5")
        for name in ("chats.db", "chats.db-journal"):
            shutil.copy(path.with_name(name), left / name)
    assert not import_files(left / "chats.db").is_complete
    assert not store.conversations()


def test_a_damaged_entry_of_a_list_leaves_the_others_and_is_counted() -> None:
    chat = ForeignChat()
    assert chat.listed({"files": [{"name": "a"}, 7, {"name": "b"}]}, "files") == [{"name": "a"}, {"name": "b"}]
    assert chat.text_of(["a", 7, "b"]) == "a\n\nb"
    assert chat.without == {"damaged part": 2}
