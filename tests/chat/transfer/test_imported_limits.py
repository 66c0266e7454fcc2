"""What holds for messages made here holds for imported ones: what is beyond is left out, and the report counts it."""

import base64
import json
from typing import Any

import pytest

from rdchat.chat.attachments.attached_file import MAX_FILES, MAX_MESSAGE_CHARACTERS, FileKind, ReadFile, attached
from rdchat.chat.storage.stored_chats import FullChat
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.rdchat_json import plain_chat
from rdchat.chat.transfer.rdchat_json import read as read_ours
from rdchat.inference.api import MAX_ARGUMENTS, MAX_CALL_NAME, MAX_CALLS
from tests.chat.attachments.stored_files import ask
from tests.chat.transfer.conftest import ImportJson
from tests.chat.transfer.full_samples import FULL, READERS, places

PNG = b"\x89PNG\r\n\x1a\n"
LICENCE = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software.\n"


def image(data: bytes = PNG) -> dict[str, Any]:
    return {"name": "a.png", "kind": "image", "text": base64.b64encode(data).decode()}


def call(name: str = "f", argument: str = "") -> dict[str, Any]:
    return {"name": name, "arguments": json.dumps({"a": argument}), "call_id": "a"}


def chat_of(**fields: Any) -> dict[str, Any]:
    return {"title": "t", "messages": [{"parent": None, "role": "assistant", "text": "x"} | fields]}


def assert_within_limits(chat: FullChat) -> None:
    for message in chat.messages:
        assert len(message.text) <= MAX_MESSAGE_CHARACTERS
        assert len(message.files) <= MAX_FILES
        assert sum(file.characters for file in message.files if file.kind is not FileKind.IMAGE) <= 2_000_000
        assert sum(file.characters for file in message.files) * 3 // 4 <= 104_000_000
        assert len(message.tool_calls) <= MAX_CALLS
        assert all(len(each.name) <= MAX_CALL_NAME for each in message.tool_calls)
        assert sum(len(each.arguments) for each in message.tool_calls) <= MAX_ARGUMENTS


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"files": [image()] * 10_000}, {"file": 10_000 - MAX_FILES}),
        ({"files": [{"name": "a", "kind": "text", "text": "y" * 700_000}] * 3}, {"file": 1}),
        ({"files": [image(PNG + b"\0" * 11_000_000)] * 12}, {"file": 3}),
        ({"files": [image(b"no image")]}, {"damaged file": 1}),
        ({"files": [image(LICENCE.encode()), image()]}, {"damaged file": 1}),
        ({"tool_calls": [call("n" * 65), call()]}, {"tool call": 1}),
        ({"tool_calls": [call("f", "x" * MAX_ARGUMENTS), call()]}, {"tool call": 1}),
        ({"tool_calls": [call("f", "x" * (MAX_ARGUMENTS // 2))] * 3}, {"tool call": 2}),
        ({"tool_calls": [call()] * 130}, {"tool call": 2}),
        ({"tool_calls": [call("n" * 1_000_000, "x" * 5_000_000)]}, {"damaged part": 1}),
        ({"text": "a " * 1_000_001}, {"too long text": 1}),
        ({"text": f"<think>\n{'a ' * 1_000_001}\n</think>\n\nso"}, {"too long text": 1}),
        ({"context_cut": {"summary": "a " * 1_000_001}}, {"damaged part": 1}),
        ({"made_with": {"sampling": {"stop": ["a " * 1_000_001]}}}, {"damaged part": 1}),
    ],
    ids=" ".join,
)
def test_what_is_beyond_the_limits_is_left_out_and_counted(fields: dict[str, Any], left_out: dict[str, int]) -> None:
    chat = read_ours(chat_of(**fields))
    assert_within_limits(chat)
    assert {name: count for name, count in chat.without.items() if count} == left_out
    again = read_ours(plain_chat(chat))
    assert again.messages == chat.messages
    assert not any(again.without.values())


@pytest.mark.parametrize("program", READERS)
def test_no_text_of_any_format_is_longer_than_one_made_here(program: str) -> None:
    """Each text becomes a very long one: it is left out, and every other message stays."""
    # Readers take what they read out of the data.
    chat = FULL[program]
    base = READERS[program](json.loads(json.dumps(FULL[program])))
    texts = {message.text for message in base.messages if len(message.text.split()) > 1}
    for path in places(chat):
        changed = json.loads(json.dumps(chat))
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        if not isinstance(inner[path[-1]], str) or " " not in inner[path[-1]]:
            continue
        inner[path[-1]] = "long words " * 200_000
        read = READERS[program](changed)
        assert_within_limits(read)
        assert len(texts - {message.text for message in read.messages}) <= 2


def test_bytes_of_an_image_never_stand_for_a_text(store: ConversationStore, import_json: ImportJson) -> None:
    # Letters that begin as an image, and are a text.
    words = "GIF89a\0\x01 is how it begins.\n"
    chats = [chat_of(files=[image(words.encode())])]
    import_json("foreign.json", {"format": "rdchat chats", "version": 1, "chats": chats})
    text = attached(ReadFile("a.txt", FileKind.TEXT, (words,)), words)
    asked = ask(store, (text, words))
    assert store.file_text(asked.files[0]) == words
