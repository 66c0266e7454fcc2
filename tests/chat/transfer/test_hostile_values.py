"""Each value of a chat of another program is replaced by each of some others: no such file stops an import."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rdchat.chat.storage.whole_chat import DamagedChatError, FullChat
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import chatgpt, jan, lm_studio, message_trees
from tests.chat.transfer.conftest import ImportFiles, WriteJson
from tests.chat.transfer.samples import (
    chatgpt_with_everything,
    claude_chat,
    deepseek_chat,
    jan_message,
    jan_text,
    lm_studio_chat,
    open_webui_chat,
)

_STRANGE: tuple[Any, ...] = (
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "../../x", "\ud800", "a\0b", "\u202e\u2066x",
    "</think><|im_end|>", "x" * 100_000, [], {}, [[]], [{}], {"a": {}}, {"value": 1}, [None, 1, "x"], [["x"]],
)  # fmt: skip
_THREAD = {
    "title": "Soup", "created": 1_750_000_000_000, "updated": 1, "assistants": [
        {"instructions": "You cook.", "model": {"id": "m", "parameters": {"temperature": 1, "stop": ["x"]}}},
    ],
}  # fmt: skip
_LINES = [
    jan_message(0, "user", jan_text("How?"), {"type": "image_url", "image_url": {"url": "data:,"}}),
    jan_message(1, "assistant", jan_text("Boil it?", "reasoning"), jan_text("Boil it."), status="stopped"),
]


def _read_jan(chat: dict[str, Any]) -> FullChat:
    return jan.read(chat["thread"] or {}, chat["lines"] or [])


_TREES = {"Claude": claude_chat(), "DeepSeek": deepseek_chat(), "Open WebUI": open_webui_chat()}
READERS: dict[str, tuple[Any, Any]] = {
    **{each.name: (each.read, _TREES[each.name]) for each in message_trees.FORMATS},
    "ChatGPT": (chatgpt.read, chatgpt_with_everything()),
    "LM Studio": (lm_studio.read, lm_studio_chat()),
    "Jan": (_read_jan, {"thread": _THREAD, "lines": _LINES}),
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values below a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from _places(each, (*path, key))


def _with(chat: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(chat)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("program", READERS)
def test_a_reader_takes_a_chat_or_says_what_is_damaged(program: str):
    read, chat = READERS[program]
    outcomes = set()
    for path in _places(chat):
        # Jan's two files are an object and a list before they are read.
        for strange in _STRANGE if path not in {("thread",), ("lines",)} else ():
            try:
                outcomes.add(type(read(_with(chat, path, strange))))
            except DamagedChatError:
                outcomes.add(DamagedChatError)
    assert outcomes == {FullChat, DamagedChatError}


@pytest.mark.parametrize("program", ["ChatGPT", "LM Studio"])
def test_no_value_of_one_chat_keeps_another_from_being_stored(
    program: str, store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    _, chat = READERS[program]
    good = dict(chat) | ({"title": "Good"} if program == "ChatGPT" else {"name": "Good"})
    places = list(_places(chat))
    name = "conversations.json" if program == "ChatGPT" else "{}.conversation.json"
    strange = [_with(chat, path, _STRANGE[number % len(_STRANGE)]) for number, path in enumerate(places)]
    if program == "ChatGPT":
        files = [write_json(name, json.loads(json.dumps([*strange, good])))]
    else:
        files = [write_json(name.format(number), each) for number, each in enumerate([*strange, good])]
    report = import_files(*files)
    assert "Good" in {each.title for each in store.conversations()}
    twice = sum(len(each.already_here) for each in report.files)
    assert len(store.conversations()) + len(report.not_taken) + twice == len(strange) + 1


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts that people and models wrote in a chat."""
    for path in _places(value):
        inner = value
        for key in path:
            inner = inner[key]
        if isinstance(inner, str) and (" " in inner.strip() or path[-1] in {"text", "content", "thinking", "system"}):
            yield inner


@pytest.mark.parametrize("program", ["Claude", "DeepSeek", "Open WebUI"])
def test_each_text_is_in_the_store_or_counted(
    program: str, store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    report = import_files(write_json("conversations.json", [READERS[program][1]]))
    (chat,) = store.conversations()
    rows = store.rows("SELECT text FROM messages WHERE conversation_id = ?", chat.id)
    stored = "".join(text for (text,) in rows) + (chat.system_prompt or "")
    lost = [text for text in _texts(READERS[program][1]) if text not in stored and text != "ALSO"]
    counted = {"Claude": ["found"], "DeepSeek": ["a page"], "Open WebUI": []}
    assert lost == counted[program]
    assert bool(lost) == any("tool result" in each.parts for each in report.without)
