"""Each file of an export is imported, or the report names it, in an archive and unpacked."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.store import ConversationStore
from tests.chat.transfer.conftest import ImportFiles
from tests.chat.transfer.full_samples import FULL, IMAGE
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, claude_chat, ours

WORD = "zebra quokka"
PROJECT = {"uuid": "p1", "name": WORD, "prompt_template": WORD, "docs": [{"filename": "keel.md", "content": WORD}]}
JAN = {
    "t1/thread.json": FULL["Jan"]["thread"],
    "t1/messages.jsonl": "\n".join(map(json.dumps, FULL["Jan"]["lines"])).encode(),
}
EXPORTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ChatGPT": (
        {"conversations.json": [FULL["ChatGPT"]], "file_1-boat.png": IMAGE, "dalle/file_2.png": IMAGE},
        {"chat.html": WORD, "user.json": {"a": WORD}, "message_feedback.json": [WORD], "user-Ab/file_3.dat": IMAGE,
         "shared_conversations.json": [{"title": WORD}], "c1/audio/file_4.wav": WORD.encode()},
    ),
    "Claude": (
        {"conversations.json": [FULL["Claude"]], "projects.json": [PROJECT], "projects/p1.json": PROJECT,
         "memories.json": [{"conversations_memory": WORD, "project_memories": {"p1": WORD}}]},
        {"users.json": [WORD], "projects/p2.json": [WORD]},
    ),
    "Claude, in a folder": (
        {"data/conversations.json": [FULL["Claude"]], "data/projects.json": [PROJECT]}, {"data/memories.json": [WORD]},
    ),
    "DeepSeek": ({"conversations.json": [FULL["DeepSeek"]]}, {"user.json": {"a": WORD}}),
    "Open WebUI": ({"conversations.json": [FULL["Open WebUI"]]}, {"memories.json": [WORD], "note.md": WORD}),
    "Open WebUI, alone": ({"chat-export.json": [FULL["Open WebUI"]]}, {}),
    "LibreChat": ({"conversations.json": FULL["LibreChat"]}, {"conversation.csv": WORD}),
    "LM Studio": (
        {"conversations/1.conversation.json": FULL["LM Studio"], "user-files/a dog.png": IMAGE},
        {"user-files/an unused dog.png": IMAGE, "config-presets/a.preset.json": {"a": WORD}},
    ),
    "Jan": (JAN, {"assistants/jan/assistant.json": {"instructions": WORD}}),
    "rdchat": ({"conversations.json": ours(FULL["rdchat"])}, {"other.json": {"a": WORD}}),
}  # fmt: skip
"""By form of an export: the files that are read, and the others."""


def content_of(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def written(folder: Path, files: dict[str, Any], *, packed: bool) -> Path:
    """Write an export; return its archive or its folder."""
    if packed:
        with zipfile.ZipFile(folder / "data.zip", "w") as archive:
            archive.writestr("__MACOSX/._conversations.json", b"of the Finder")
            for name, value in files.items():
                archive.writestr(name, content_of(value))
        return folder / "data.zip"
    for name, value in files.items():
        path = folder / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of(value))
    return folder / "export"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("form", EXPORTS)
def test_each_file_of_an_export_is_read_or_named(
    form: str, packed: bool, store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    chats, others = EXPORTS[form]
    if form == "Open WebUI, alone" and not packed:
        chats = {"conversations.json": chats["chat-export.json"]}
    path = written(tmp_path, chats | others, packed=packed)
    report = import_files(path)
    assert report.is_complete
    assert len(report.chats) == len(store.conversations()) == 1
    # Of a folder, which may be any, only the files count that can be of an export.
    expected = {each for each in others if packed or each.endswith(".json")}
    parts = [each.parts.partition(": ") for each in report.without if ": " in each.parts]
    named = [name for _, _, names in parts for name in names.split(", ")]
    # A file of a folder that may have projects is named by itself.
    alone = {Path(each).name if not packed and Path(each).name in named else each for each in expected}
    assert sorted(named) == sorted(alone)
    assert sum(int(count.partition(" ")[0]) for count, _, _ in parts) == len(expected)


def test_many_files_are_counted_and_a_name_is_printable(import_files: ImportFiles, tmp_path: Path) -> None:
    others = {f"parts/\x1b[2J{number:03}.json": PROJECT for number in range(300)}
    report = import_files(written(tmp_path, {"conversations.json": [claude_chat()]} | others, packed=True))
    named = next(each.parts for each in report.without if each.title == "data.zip")
    assert named.startswith("300 files: parts/ [2J000.json, parts/ [2J001.json")
    assert named.isprintable()
    assert len(named) < 1000


def test_a_file_with_the_name_of_another_one_is_named(import_files: ImportFiles, tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    chats = json.dumps([chatgpt_chat(chatgpt_node("q", None, "user", "Q"))])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", chats)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("conversations.json", chats)
    report = import_files(path)
    assert [each.parts for each in report.without] == ["1 file: conversations.json"]


def test_an_archive_without_chats_is_refused_by_name(import_files: ImportFiles, tmp_path: Path) -> None:
    report = import_files(written(tmp_path, {f"parts/{name}.json": PROJECT for name in "ab"}, packed=True))
    assert report.not_taken[0].reason == "There are no files of chats in data.zip."
