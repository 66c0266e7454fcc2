"""Each text and list of an imported chat in turn is huge: it stands in the chat, or it is shortened with a word."""

import json

import pytest

from rdchat.chat.storage import FullChat
from rdchat.chat.transfer.rdchat_json import plain_chat, read
from tests.chat.grown_chats import LONG, full_chat, grown

PLAIN = plain_chat(full_chat())
GROWN = dict(grown(PLAIN))
# The longest option as JSON, with the rest of the chat.
_LONGEST = 110_000
# What the person or a model wrote or was to read is never cut; a summary and calls are stored with their names.
_TEXTS = (".messages[]", ".text", ".title", ".system_prompt", ".context_cut", ".tool_call", ".answer_shape")
# Words of the format and offsets; names and descriptions, which are cut with a mark, or at 1,000 characters.
_NO_WORD = (".kind", ".status", ".note", ".taken", ".name", ".tool_name", ".model", ".control_offsets[]", ".parts[]")


def size(chat: FullChat) -> int:
    return len(json.dumps(plain_chat(chat)))


def test_the_usual_chat_lacks_nothing() -> None:
    assert not any(read(PLAIN).without.values())


@pytest.mark.parametrize("path", GROWN)
def test_a_huge_value_is_kept_or_named(path: str) -> None:
    chat = read(json.loads(json.dumps(GROWN[path])))
    is_text = any(each in path for each in _TEXTS) and "made_with" not in path
    is_whole = size(chat) > size(read(PLAIN)) + 2500
    assert is_whole or any(chat.without.values()) or path.endswith(_NO_WORD)
    assert is_text or size(chat) < _LONGEST


def test_an_error_is_shortened() -> None:
    assert read(GROWN[".messages[3].error"]).messages[3].error == LONG[:2000]


def test_a_long_name_has_a_mark() -> None:
    name = read(GROWN[".messages[1].model"]).messages[1].model or ""
    assert len(name) <= 200
    assert name.endswith("word…")
