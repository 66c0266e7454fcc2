"""Calls of tools and their results, as messages of the store."""

from contextlib import closing
from dataclasses import replace

import pytest

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Message, MessageStatus, Origin, OwnOptions, call_of
from rdchat.chat.option_order import OptionOrder
from rdchat.chat.settings import Settings
from rdchat.chat.storage import FullChat, SearchQuery, SearchReader
from rdchat.chat.storage.stored_chats import read_chat, read_messages
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import rdchat_json
from rdchat.chat.transfer.exporting import as_markdown
from rdchat.chat.transfer.rdchat_json import plain_chat
from rdchat.errors import StorageError
from rdchat.inference.api import Role, ToolCall
from tests.stores import connect_by_hand, written_by_hand

CALLS = (
    ToolCall("files__write", '{"path": "straße.txt", "text": "first\\nsecond 北京"}', "a"),
    ToolCall("files__read", "{}", "b", mended=True),
)
REFUSED = ToolCall("rm", "{}", "c", "The tool rm is not available.")
PNG = b"\x89PNG\r\n\x1a\nand so on"


@pytest.fixture
def path(store: ConversationStore) -> list[Message]:
    """A question, a reply with two calls, their results with an image, and an answer."""
    chat = store.create_conversation("Tools")
    store.set_chat_options(replace(chat, own=OwnOptions(tools=("files",), tools_off=("files__write",))))
    question = store.add_message(chat.id, None, Role.USER, "Write and read.")
    reply = store.add_message(chat.id, question.id, Role.ASSISTANT, "Yes.", tool_calls=(*CALLS, REFUSED), model="tiny")
    image = image_file(PNG, "image 1")
    named = {"tool_call_id": "a", "tool_name": "files__write"}
    wrote = store.add_message(chat.id, reply.id, Role.TOOL, "```\nwritten: quokka", files=[image], **named)
    failed = {"status": MessageStatus.FAILED, "error": "No such file."}
    read = store.add_message(chat.id, wrote.id, Role.TOOL, "", tool_call_id="b", tool_name="files__read", **failed)
    store.add_message(chat.id, read.id, Role.ASSISTANT, "Done.")
    return list(store.messages(chat.id))


@pytest.fixture
def chat(store: ConversationStore, path: list[Message]) -> FullChat:
    return store.write(lambda connection: read_chat(connection, path[0].conversation_id))


def test_calls_and_results_are_stored(store: ConversationStore, path: list[Message]) -> None:
    assert [message.role for message in path] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.ASSISTANT]
    assert path[1].tool_calls == (*CALLS, REFUSED)
    assert (path[2].tool_call_id, path[2].tool_name) == ("a", "files__write")
    assert store.conversation(path[0].conversation_id).own.tools == ("files",)
    assert [call_of(path, each) for each in path[2:4]] == list(CALLS)
    assert call_of(path[:3], path[3]) is None, "it is not on this path"


def test_texts_of_results_and_arguments_of_calls_are_found(store: ConversationStore, path: list[Message]) -> None:
    for words in ("quokka", "files__write", "STRASSE", "second", "first", "北京"):
        assert [chat.title for chat in store.conversations(words)] == ["Tools"]
        (hit,) = SearchReader(store.path).search_chats(SearchQuery(words)).hits
        assert (hit.messages, hit.snippet != "") == (1, True)


def test_the_index_follows_changes_of_calls(store: ConversationStore, path: list[Message]) -> None:
    store.finish_message(replace(path[1], tool_calls=()))
    assert not store.conversations("second")
    store.message_trash.delete(path[1].id)
    with closing(connect_by_hand(store.path)) as connection:
        connection.execute("INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)")


def test_calls_from_before_refusals_were_stored_are_read(store: ConversationStore, path: list[Message]) -> None:
    with written_by_hand(store) as connection:
        calls = '[{"name": "a", "arguments": "{}", "call_id": "x"}]'
        connection.execute("UPDATE messages SET tool_calls = ? WHERE id = ?", (calls, path[1].id))
    assert store.message(path[1].id).tool_calls == (ToolCall("a", "{}", "x"),)


def test_results_are_added_one_behind_the_other_all_or_none(store: ConversationStore, path: list[Message]) -> None:
    results = store.add_results(path[-1], CALLS)
    assert [(each.parent_id, each.status) for each in results] == [
        (path[-1].id, MessageStatus.STREAMING), (results[0].id, MessageStatus.STREAMING)
    ]  # fmt: skip
    assert [(each.tool_call_id, each.tool_name) for each in results] == [(each.call_id, each.name) for each in CALLS]
    assert store.messages(path[0].conversation_id).ids == (*(each.id for each in [*path, *results]),)
    with written_by_hand(store) as connection:
        fails = "WHEN new.tool_call_id = 'b' BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(f"CREATE TRIGGER fails BEFORE INSERT ON messages {fails}")
    with pytest.raises(StorageError):
        store.add_results(results[-1], CALLS)
    assert len(store.messages(path[0].conversation_id)) == len(path) + 2


def test_damaged_calls_leave_the_message_to_be_read(store: ConversationStore, path: list[Message]) -> None:
    wrong = '[{"name": "a", "arguments": "[]", "call_id": ""}]'
    for damaged in ("", "{", "1", "{}", "[1]", '["a"]', '[{"name": "a"}]', wrong, "[" * 100_000, '{"name": 1}'):
        with written_by_hand(store) as connection:
            connection.execute("UPDATE messages SET tool_calls = ? WHERE id = ?", (damaged, path[1].id))
        read = read_messages(store.rows, path[0].conversation_id, [path[1].id])
        assert (read[0].text, read[0].tool_calls) == ("Yes.", ())


def test_our_json_restores_calls_and_results_but_switches_no_tools_on(chat: FullChat) -> None:
    restored = rdchat_json.read(plain_chat(chat))
    assert restored.messages == tuple(replace(each, origin=Origin.IMPORT) for each in chat.messages)
    assert rdchat_json.image_digests(restored) == rdchat_json.image_digests(chat) == [*restored.texts]
    assert restored.conversation.own == OwnOptions()
    assert "files__write" not in str(plain_chat(chat)["messages"][0])


def test_markdown_shows_calls_and_results_as_code(chat: FullChat) -> None:
    text = as_markdown(chat, OptionOrder(Settings()).effective_values(chat.conversation), {}, details=True)
    assert "## tiny\n\nYes.\n\n**Calls files__write**\n\n```json\n" + CALLS[0].arguments + "\n```" in text
    assert f"**Calls rm**\n\n```json\n{{}}\n```\n\n*Not run: {REFUSED.refusal}*" in text
    assert "## Result of files__write\n\n*File: image 1.png*\n\n````\n```\nwritten: quokka\n````" in text
    assert "## Result of files__read\n\n*Failed: No such file.*" in text
    assert "iVBOR" not in text
