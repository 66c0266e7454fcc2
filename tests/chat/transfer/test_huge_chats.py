"""A file with a chat that would need too much memory is refused in a sentence, and nothing of it is stored."""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import source_files
from rdchat.chat.transfer.chat_import import SkippedChat
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.huge_chats import HUGE, good, within, write, write_zip
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, ours
from tests.grids import share

SIZE = 3 << 20
LONG = "a" * SIZE


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MAX_BYTES", 1 << 20)


def titles(store: ConversationStore) -> set[str]:
    return {each.title for each in store.conversations()}


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("what", share(HUGE, 3))
def test_a_file_with_a_chat_that_is_too_large_is_refused(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, what: str, archived: bool
):
    parts = within(*HUGE[what], SIZE)
    path = write_zip(tmp_path / "a.zip", parts) if archived else write(tmp_path / "conversations.json", parts)
    (report,) = import_files(path).files
    words = {"one number": "a number that is too long", "lists in lists": "nested too deeply"}
    assert words.get(what, "is larger than") in report.problem
    assert not store.conversations()


def test_a_chat_longer_than_what_is_read_at_once_is_read(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    long = json.dumps(chatgpt_chat(chatgpt_node("q", None, "user", '\\"]},é' * SIZE), title="Long")).encode()
    path = write(tmp_path / "conversations.json", [b"[", good("First"), b" , ", long, b"\n,", good("Last"), b" ] "])
    assert import_files(path).is_complete
    assert titles(store) == {"First", "Long", "Last"}


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("conversations.json", {"title": "Huge", "mapping": {"a": LONG}}),
        ("messages.jsonl", {"role": "user", "content": LONG}),
        ("a.chat.json", {"messages": [{"role": "user", "content": LONG}]}),
        ("chats.json", ours({"title": "First", "messages": []}, {"title": "Huge", "messages": [{"text": LONG}]})),
    ],
)
def test_a_file_with_a_too_large_chat_in_another_form_is_refused(
    store: ConversationStore, import_json: ImportJson, name: str, content: dict[str, Any]
):
    (report,) = import_json(name, content).files
    assert "is larger than" in report.problem
    assert not store.conversations()


@pytest.mark.slow
def test_parts_that_are_too_long_together_leave_one_chat_out(store: ConversationStore, import_json: ImportJson):
    """SQLite would refuse the text, and with it the whole import."""
    node = {"message": {"author": {"role": "user"}, "content": {"parts": ["a" * 12_000_000] * 2}}}
    chats = [json.loads(good("First")), {"title": "Long", "mapping": {"a": node}}]
    assert import_json("conversations.json", chats).not_taken == (
        SkippedChat("Long", "A message is longer than 16 million characters."),
    )
    assert titles(store) == {"First"}


@pytest.mark.slow
@pytest.mark.parametrize("unit", share([b"{}", b'{"title": "", "mapping": {}}', b"[]", b"null", b"0"], 5))
def test_a_long_list_of_empty_chats_is_given_up(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, unit: bytes
):
    path = tmp_path / "conversations.json"
    (report,) = import_files(write(path, [b"[" + unit, (b"," + unit) * 300_000, b"]"])).files
    assert "is no chat export" in report.problem or "more than 10,000" in report.problem
    assert not store.conversations()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_a_file_in_another_encoding_is_read(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, encoding: str
):
    text = b"[" + good("First") + b"]"
    assert import_files(write(tmp_path / "conversations.json", [text.decode().encode(encoding)])).is_complete
    assert titles(store) == {"First"}


@pytest.mark.parametrize("kept", share([0.2, 0.6, 0.98], 3))
@pytest.mark.parametrize("kind", ["json", "zip", "gzip", "ours"])
def test_a_file_that_is_cut_off_takes_nothing_of_it(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, kind: str, kept: float
):
    whole = b"[" + b",".join(good(f"{number}") for number in range(200)) + b"]"
    if kind == "ours":
        chat = {"title": "T", "messages": [{"role": "user", "text": "a " * 50}]}
        whole = json.dumps(ours(*[chat] * 200)).encode()
    path = tmp_path / "conversations.json"
    if kind == "zip":
        path = write_zip(tmp_path / "export.zip", [whole])
    else:
        path.write_bytes(gzip.compress(whole) if kind == "gzip" else whole)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    (report,) = import_files(path).files
    assert report.problem
    assert "unexpected" not in report.problem
    assert store.rows("SELECT count(*) FROM conversations") == [(0,)]


@pytest.mark.parametrize("size", [0, 10, 1 << 20, 0xFFFFFFF0])
def test_an_archive_that_lies_about_sizes_takes_nothing_or_all(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, size: int
):
    whole = b"[" + b",".join(good(f"{number}") for number in range(20)) + b"]"
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", whole)
    lying = path.read_bytes().replace(len(whole).to_bytes(4, "little"), size.to_bytes(4, "little"))
    assert lying != path.read_bytes()
    path.write_bytes(lying)
    (report,) = import_files(path).files
    assert len(store.conversations()) == (0 if report.problem else 20)


@pytest.mark.parametrize("rest", [b"", b"]", b', "more": ', b"}}", b"} x"])
def test_what_stands_behind_our_chats_is_whole_json_too(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, rest: bytes
):
    head = b'{"format": "rdchat chats", "version": 1, "chats": ['
    chat = b'{"title": "T", "messages": [{"parent": null, "role": "user", "text": "a"}]}'
    path = write(tmp_path / "chats.json", [head, chat, b"]", rest])
    assert "damaged or incomplete" in import_files(path).files[0].problem
    assert not store.conversations()
    assert import_files(write(path, [head, chat, b'], "more": [1]} \n'])).is_complete
