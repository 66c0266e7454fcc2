"""The law of imports: each text stands in the chat or is counted, and what is damaged hides no other message."""

import base64
import json
import marshal
from collections import Counter
from itertools import cycle, product
from typing import Any

import pytest

from rdchat.chat.attachments.attached_file import MAX_FILES, MAX_MESSAGE_CHARACTERS, FileKind, ReadFile, attached
from rdchat.chat.storage import DamagedChatError, FullChat
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.rdchat_json import plain_chat, read as read_ours
from rdchat.inference.api import MAX_ARGUMENTS, MAX_CALL_NAME, MAX_CALLS
from tests.chat.attachments.stored_files import ask
from tests.chat.transfer.conftest import ImportJson
from tests.chat.transfer.full_samples import FULL, NUMBERED, NUMBERS, READERS, Path, places
from tests.chat.transfer.samples import ours
from tests.grids import share

NO_WORDS = {
    "id": "an id", "uuid": "an id", "file_uuid": "an id", "call_id": "an id", "messageId": "an id",
    "conversationId": "an id", "conversation_id": "an id", "user_id": "an id", "toolCallId": "an id",
    "thread_id": "an id",
    "tool_call_id": "an id", "stepIdentifier": "an id", "currentId": "an id", "current_node": "an id",
    "current_leaf_message_uuid": "an id",
    "parent": "a link", "parent_message_uuid": "a link", "parentId": "a link", "parentMessageId": "a link",
    "children": "a link", "childrenIds": "a link",
    "type": "a kind", "content_type": "a kind", "object": "a kind", "kind": "a kind", "fileType": "a kind",
    "file_type": "a kind", "file_kind": "a kind", "mimeType": "a kind", "endpoint": "a kind", "direction": "a kind",
    "role": "a kind", "sender": "a kind, or the model's name in LibreChat", "recipient": "a kind", "status": "a kind",
    "created_at": "a time", "updated_at": "a time", "inserted_at": "a time", "createdAt": "a time",
    "exportAt": "a time",
    "asset_pointer": "an address", "url": "an address", "filepath": "an address", "fileIdentifier": "an address",
    "key": "the name of a setting", "stopReason": "a kind",
}  # fmt: skip
"""Keys of texts that carry no words, with the reason."""
OF_ONE_FORMAT = {
    "ChatGPT": {"mapping.recap.message.content.content": "how long it thought, in words of the app",
        "mapping.t.message.content.thoughts.0.chunks.0": "a copy of the thought",
        "mapping.t.message.content.thoughts.0.chunks.1": "a copy of the thought",
        "mapping.t.message.metadata.model_slug": "the model of the reply, which its last node has as well"},
    "Claude": {
        "chat_messages.0.text": "a copy of its blocks", "chat_messages.1.text": "a copy of its blocks",
        "chat_messages.2.text": "a copy of its blocks", "chat_messages.3.text": "a copy of its blocks",
        "chat_messages.4.text": "a copy of its blocks",
        "chat_messages.4.content.1.name": "a kind: the document of this tool's call is in the chat",
    },
    "DeepSeek": {"mapping.1.message.model": "the model that was asked, not the one that wrote"},
    "Open WebUI": {
        "title": "a copy of the title", "chat.models.0": "the model chosen for the next message",
        "chat.history.messages.b.lastSentence": "a copy of the end of the text",
    },
    "LibreChat": {
        "messages.1.content.6.agent_update.agentId": "an id",
        "options.model": "the model chosen for the next message",
    },
    "LM Studio": {
        **{
            f"messages.1.versions.{step}.genInfo.predictionConfig.fields.0.value": "a copy of the chat's prompt"
            for step in ("0.steps.4", "0.steps.5", "0.steps.6", "1.steps.0")
        },
        "messages.1.versions.0.steps.4.genInfo.identifier": "the model's name, which the sender has as well",
        "messages.1.versions.0.steps.6.genInfo.identifier": "the model's name, which the sender has as well",
        "messages.1.versions.1.steps.0.genInfo.identifier": "the model's name, which the sender has as well",
        "messages.1.versions.0.steps.0.debugInfo": "what the app notes about how it named the chat",
        "messages.1.versions.0.steps.1.statusState.text": "what the app was doing",
        "messages.1.versions.0.steps.4.style.title": "how long it thought, in words of the app",
    },
    "Jan": {
        "thread.assistants.0.name": "of the assistant, in no chat",
        "thread.assistants.0.description": "of the assistant, in no chat",
    },
    "rdchat": {"messages.1.tool_calls.0.refusal": "a kind"},
}  # fmt: skip

CONTAINERS: dict[str, Path] = {
    "ChatGPT": ("mapping",),
    "Claude": ("chat_messages",),
    "DeepSeek": ("mapping",),
    "Open WebUI": ("chat", "history", "messages"),
    "LibreChat": ("messages",),
    "LM Studio": ("messages",),
    "Jan": ("lines",),
    "rdchat": ("messages",),
}
"""Where the messages of a chat are."""
SENDERS = {"author", "role", "recipient", "sender", "isCreatedByUser", "fragments"}
"""Without these it is not known who wrote a message, so it goes, and is counted."""

GOOD_VALUES = (
    ("rdchat", "activated", (7,)), ("rdchat", "parent", (None,)),
    ("Open WebUI", "parentId", (None,)), ("Open WebUI", "parentId", ()),
)  # fmt: skip
"""Values that say something else: any number, and no parent, which another version of the first question has."""


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(chat: Any, path: Path, *values: Any) -> Any:
    """Return a copy with another value at a path, or without that value."""
    result = copied(chat)
    inner = at(result, path[:-1])
    if values:
        inner[path[-1]] = values[0]
    else:
        del inner[path[-1]]
    return result


def copied(chat: Any) -> Any:
    """Return a copy of a chat, in which no two values are the same one: readers take it apart."""
    return marshal.loads(marshal.dumps(chat, 2))  # later versions keep what is shared


def read(program: str, chat: Any) -> FullChat:
    return READERS[program](copied(chat))


def stored(chat: FullChat) -> str:
    return json.dumps(plain_chat(chat), ensure_ascii=False)


def leaves_of(program: str, chat: Any) -> list[Path]:
    """Return the paths of all texts with words."""
    exempt = OF_ONE_FORMAT[program]
    return [
        path
        for path in places(chat)
        if isinstance(at(chat, path), str)
        and next(key for key in reversed(path) if isinstance(key, str)) not in NO_WORDS
        and ".".join(map(str, path)) not in exempt
    ]


def lowers_a_count(program: str, chat: Any, path: Path) -> bool:
    """Return whether the report counts less without the value at a path."""
    without = Counter(read(program, changed(chat, path)).without)
    return bool(Counter(read(program, chat).without) - without)


@pytest.mark.parametrize("program", FULL)
def test_each_text_stands_in_the_chat_or_moves_a_count(program: str):
    chat = FULL[program]
    leaves = leaves_of(program, chat)
    assert len(leaves) > 10
    left_out: dict[Path, Any] = {}
    for number, path in enumerate(leaves):
        word = f"zebra quokka {number}"
        text = at(chat, path)
        # What is written in a form keeps it.
        value = text.replace("Dear Sam", word) if text.startswith("{") else word
        value = (
            text.replace("old boats", word).replace("b c", word).replace("New York", word) if value == text else value
        )
        with_word = changed(chat, path, value)
        if word not in stored(read(program, with_word)):
            left_out[path] = with_word
    lost = []
    for path, with_word in left_out.items():
        # The nearest part around it that stands nowhere is what is counted.
        around = [path[: len(path) - up] for up in range(len(path))]
        whole = [part for part in around if all(each in left_out for each in leaves if each[: len(part)] == part)]
        if not any(lowers_a_count(program, with_word, part) for part in whole):
            lost.append(".".join(map(str, path)))
    assert lost == []


def path_to(chat: FullChat, message: int | None) -> list[int]:
    path: list[int] = []
    while message is not None:
        path.insert(0, message)
        message = chat.messages[message].parent_id
    return path


@pytest.mark.parametrize("form", NUMBERED)
def test_what_is_missing_or_damaged_hides_no_other_message(form: str):
    """The chat is a row of six: whatever is wrong in one place, the other five are above each other as before."""
    program, chat = NUMBERED[form]
    wrong = []
    for path in places(chat):
        words = words_below(program, chat, path)
        if SENDERS & set(path):
            words |= words_below(program, chat, path[: len(CONTAINERS[program]) + 1])
        others = [word for word in NUMBERS if word not in words]
        for damage in ((), (None,), (7,), (["x"],), ({},), ("ghost of a value",)):
            if (program, path[-1], damage) in GOOD_VALUES:
                assert all(word in stored(read(program, changed(chat, path, *damage))) for word in NUMBERS)
                continue
            seen = words_seen(program, changed(chat, path, *damage))
            if others and seen not in (others, list(NUMBERS)):
                wrong.append(f"{'.'.join(map(str, path))} = {damage[0] if damage else 'missing'!r}: {seen}")
    assert wrong == []


def words_below(program: str, chat: Any, path: Path) -> set[str]:
    return {at(chat, each) for each in leaves_of(program, chat) if each[: len(path)] == path}


def words_seen(program: str, chat: Any) -> list[str] | str:
    """Return the numbers on the path that is shown, or why the chat is refused; it is taken apart."""
    try:
        full = READERS[program](chat)
    except DamagedChatError as error:
        return str(error)
    shown = max(full.messages, key=lambda message: message.activated, default=None)
    texts = [full.messages[each].text for each in path_to(full, shown.id)] if shown else []
    return [word for text in texts for word in NUMBERS if word in text.split()]


@pytest.mark.parametrize(("program", "first"), share(product(FULL, range(3))))
def test_damage_loses_no_text_of_other_messages_and_is_counted(program: str, first: int):
    """Of a chat with branches: a damaged field may cost texts of its own message, and the report counts that."""
    chat = FULL[program]
    base = read(program, chat)
    # Names of models go with a message that has no text.
    text = stored(base)
    kept = [path for path in leaves_of(program, chat) if " " in at(chat, path) and at(chat, path) in text]
    container = CONTAINERS[program]
    wrong = []
    for number, path in enumerate(places(chat)):
        if path == container[: len(path)]:
            continue
        message = path[: len(container) + 1]
        damage: tuple[Any, ...] = ((), (7,), ([3],))[(first + number) % 3]
        now = READERS[program](changed(chat, path, *damage))
        text = stored(now)
        lost = {each for each in kept if each[: len(path)] != path and at(chat, each) not in text}
        own = {each for each in lost if each[: len(message)] == message}
        if lost - own or (lost and not Counter(now.without) - Counter(base.without)):
            wrong.append(f"{'.'.join(map(str, path))} = {damage[0] if damage else 'missing'!r}: {lost}")
    assert wrong == []


PNG = b"\x89PNG\r\n\x1a\n"


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
        ({"files": [image(PNG + b"\0" * 11_000_000)] * 10}, {"file": 1}),
        ({"files": [image(b"no image"), image()]}, {"damaged file": 1}),
        ({"tool_calls": [call("n" * 65), call()]}, {"tool call": 1}),
        ({"tool_calls": [call("f", "x" * MAX_ARGUMENTS), call()]}, {"tool call": 1}),
        ({"tool_calls": [call("f", "x" * (MAX_ARGUMENTS // 2))] * 3}, {"tool call": 2}),
        ({"tool_calls": [call()] * 130}, {"tool call": 2}),
        ({"tool_calls": [call("n" * 1_000_000, "x" * 5_000_000)]}, {"damaged part": 1}),
        ({"text": "a " * 1_000_001}, {"too long text": 1}),
        ({"text": f"<think>\n{'a ' * 1_000_001}\n</think>\n\nso"}, {"too long text": 1}),
        ({"context_cut": {"summary": "a " * 1_000_001}}, {"damaged part": 1}),
        ({"made_with": {"sampling": {"stop": ["a " * 50_001]}}}, {"too long option": 1}),
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
    chat = FULL[program]
    texts = {message.text for message in read(program, chat).messages if len(message.text.split()) > 1}
    long = f"long {'w' * MAX_MESSAGE_CHARACTERS}"
    for path in places(chat):
        text = at(chat, path)
        if not isinstance(text, str) or " " not in text:
            continue
        now = READERS[program](changed(chat, path, long))
        assert_within_limits(now)
        assert len(texts - {message.text for message in now.messages}) <= 2


def test_bytes_of_an_image_never_stand_for_a_text(store: ConversationStore, import_json: ImportJson) -> None:
    # Letters that begin as an image, and are a text.
    words = "GIF89a\0\x01 is how it begins.\n"
    import_json("foreign.json", ours(chat_of(files=[image(words.encode())])))
    text = attached(ReadFile("a.txt", FileKind.TEXT, (words,)), words)
    asked = ask(store, (text, words))
    assert store.file_text(asked.files[0]) == words


_STRANGE: tuple[Any, ...] = (
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "../../x", "\ud800", "a\0b", "\u202e\u2066x",
    "</think><|im_end|>", "x" * 100_000, [], {}, [[]], [{}], {"a": {}}, {"value": 1}, [None, 1, "x"], [["x"]],
)  # fmt: skip
# The first value, and the step to the next one of the same field.
_SHARES = (0, 22), (0, 11), (5, 11)


@pytest.mark.parametrize(("program", "values"), share(product(READERS, _SHARES)))
def test_a_reader_takes_a_chat_or_says_what_is_damaged(program: str, values: tuple[int, int]):
    first, step = values
    chat = FULL[program]
    outcomes = set()
    for number, path in enumerate(places(chat)):
        # Each value meets fields of each kind; all values in all fields would take minutes.
        for strange in _STRANGE[(first + number) % step :: step]:
            try:
                outcomes.add(type(READERS[program](changed(chat, path, strange))))
            except DamagedChatError:
                outcomes.add(DamagedChatError)
    assert outcomes == {FullChat, DamagedChatError}


@pytest.mark.parametrize("program", ["ChatGPT", "rdchat"])
def test_no_value_of_one_chat_keeps_another_from_being_stored(
    program: str, store: ConversationStore, import_json: ImportJson
):
    chat = FULL[program]
    # One place in five, each with another value.
    strange = [changed(chat, path, value) for path, value in zip([*places(chat)][::5], cycle(_STRANGE), strict=False)]
    chats = [*strange, chat | {"title": "Good"}]
    (report,) = import_json("conversations.json", ours(*chats) if program == "rdchat" else chats).files
    assert "Good" in {each.title for each in store.conversations()}
    assert len(store.conversations()) + len(report.not_taken) + len(report.already_here) == len(chats)
