"""Each value of a chat of another program is replaced by each of some others: no such file stops an import."""

import copy
import json
from typing import Any

import pytest

from rdchat.chat.storage.stored_chats import DamagedChatError, FullChat
from rdchat.chat.store import ConversationStore
from tests.chat.transfer.conftest import ImportFiles, WriteJson
from tests.chat.transfer.full_samples import FULL, READERS, places
from tests.chat.transfer.samples import chatgpt_with_everything, lm_studio_chat

_STRANGE: tuple[Any, ...] = (
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "../../x", "\ud800", "a\0b", "\u202e\u2066x",
    "</think><|im_end|>", "x" * 100_000, [], {}, [[]], [{}], {"a": {}}, {"value": 1}, [None, 1, "x"], [["x"]],
)  # fmt: skip
_SHARE = 5


def _with(chat: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(chat)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("program", READERS)
def test_a_reader_takes_a_chat_or_says_what_is_damaged(program: str):
    chat = FULL[program]
    outcomes = set()
    for number, path in enumerate(places(chat)):
        # Each value meets fields of each kind; all values in all fields would take minutes.
        for strange in _STRANGE[number % _SHARE :: _SHARE]:
            try:
                outcomes.add(type(READERS[program](_with(chat, path, strange))))
            except DamagedChatError:
                outcomes.add(DamagedChatError)
    assert outcomes == {FullChat, DamagedChatError}


@pytest.mark.parametrize("program", ["ChatGPT", "LM Studio"])
def test_no_value_of_one_chat_keeps_another_from_being_stored(
    program: str, store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    chat = chatgpt_with_everything() if program == "ChatGPT" else lm_studio_chat()
    good = dict(chat) | ({"title": "Good"} if program == "ChatGPT" else {"name": "Good"})
    paths = list(places(chat))
    name = "conversations.json" if program == "ChatGPT" else "{}.conversation.json"
    strange = [_with(chat, path, _STRANGE[number % len(_STRANGE)]) for number, path in enumerate(paths)]
    if program == "ChatGPT":
        files = [write_json(name, json.loads(json.dumps([*strange, good])))]
    else:
        files = [write_json(name.format(number), each) for number, each in enumerate([*strange, good])]
    report = import_files(*files)
    assert "Good" in {each.title for each in store.conversations()}
    twice = sum(len(each.already_here) for each in report.files)
    assert len(store.conversations()) + len(report.not_taken) + twice == len(strange) + 1
