"""Stores made by hand: invalid trees of messages, and values that rdchat never writes."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.chat.conftest import OpenStore
from tests.stores import change_by_hand, connect_by_hand

type MakeChat = Callable[..., int]

WRONG_PLACE = "Some messages were moved"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture
def make_chat(database: Path) -> MakeChat:
    """Writes a chat of messages with these parents, by id and whatever they are, into the closed store."""

    def make(parents: dict[int, int | None], **columns: object) -> int:
        with closing(ConversationStore(database)) as store:
            chat_id = store.create_conversation("made by hand").id
        row = {"role": "user", "status": "complete", "created_at": 1.0} | columns
        marks = ", ?" * len(row)
        with closing(connect_by_hand(database)) as by_hand, by_hand:
            by_hand.executemany(
                f"INSERT INTO messages (id, conversation_id, parent_id, activated, text, {', '.join(row)})"
                f" VALUES (?, ?, ?, ?, ?{marks})",
                [
                    (number, chat_id, parent, place, f"m{number}", *row.values())
                    for place, (number, parent) in enumerate(parents.items())
                ],
            )
        return chat_id

    return make


@pytest.mark.parametrize(
    ("parents", "shown"),
    [
        ({1: 1}, ["m1"]),
        ({1: 2, 2: 1}, ["m1", "m2"]),
        ({1: 3, 2: 1, 3: 2}, ["m1", "m2", "m3"]),
        ({3: 2, 2: 1, 1: 3}, ["m1"]),
        ({1: 2, 2: 1, 3: 2, 4: 3}, ["m1", "m2", "m3", "m4"]),
        ({1: None, 2: 1, 3: 4, 4: 3}, ["m3", "m4"]),
        ({1: 99}, ["m1"]),
        ({1: None, 2: 99, 3: 2}, ["m2", "m3"]),
        ({9: None, 4: 9, 7: 4}, ["m4", "m7"]),
    ],
)
def test_a_tree_that_is_none_is_shown_as_far_as_it_goes_and_told_of_once(
    open_store: OpenStore, make_chat: MakeChat, parents: dict[int, int | None], shown: list[str]
) -> None:
    chat_id = make_chat(parents)
    store = open_store()
    assert texts(store.messages(chat_id)) == shown
    assert store.notice is not None
    assert store.notice.title == WRONG_PLACE
    reached = {message.text for number in parents for message in store.select_sibling(number, 0)}
    assert reached == {f"m{number}" for number in parents}  # nothing is lost
    last = store.messages(chat_id)[-1]
    store.add_message(chat_id, last.id, Role.ASSISTANT, "answer")
    assert texts(store.messages(chat_id))[-1] == "answer"
    store.delete_conversation(chat_id)
    store.close()
    again = open_store()
    assert again.notice is None
    assert again.conversations() == []


def test_a_parent_in_another_chat_shows_nothing_of_that_chat_and_keeps_neither_from_being_deleted(
    open_store: OpenStore, make_chat: MakeChat
) -> None:
    first = make_chat({1: None, 2: 1})
    second = make_chat({3: 2, 4: 3})
    store = open_store()
    assert store.notice is not None
    assert (texts(store.messages(first)), texts(store.messages(second))) == (["m1", "m2"], ["m3", "m4"])
    store.delete_conversation(first)
    store.close()
    assert texts(open_store().messages(second)) == ["m3", "m4"]


def test_a_deleted_chat_with_a_stray_message_does_not_keep_the_store_from_opening(
    open_store: OpenStore, make_chat: MakeChat, database: Path
) -> None:
    first = make_chat({1: None})
    second = make_chat({2: 1})
    change_by_hand(database, f"UPDATE conversations SET deleted_at = 1 WHERE id = {first}")
    assert texts(open_store().messages(second)) == ["m2"]


def test_a_cycle_that_another_program_makes_while_the_store_is_open_ends_too(
    open_store: OpenStore, make_chat: MakeChat, database: Path
) -> None:
    chat_id = make_chat({1: None, 2: 1, 3: 2})
    store = open_store()
    change_by_hand(database, "UPDATE messages SET parent_id = 3 WHERE id = 1")
    assert texts(store.messages(chat_id)) == ["m1", "m2", "m3"]
    assert sorted(texts(store.select_sibling(2, 1))) == ["m1", "m2", "m3"]


@pytest.mark.slow
@pytest.mark.parametrize("last_parent", [None, 10_000])
def test_a_path_of_10_000_messages_opens(
    open_store: OpenStore, make_chat: MakeChat, last_parent: int | None, record_property: Callable[[str, object], None]
) -> None:
    chat_id = make_chat({1: last_parent} | {number: number - 1 for number in range(2, 10_001)})
    began = time.perf_counter()
    store = open_store()
    opened = time.perf_counter()
    messages = store.messages(chat_id)
    record_property("opened in s", f"{opened - began:.2f}, read in s {time.perf_counter() - opened:.2f}")
    assert (len(messages), messages[0].text, messages[-1].text) == (10_000, "m1", "m10000")
    assert (store.notice is None) == (last_parent is None)


@pytest.mark.parametrize("word", ["", "tools", "USER", "system", "0"])
def test_words_that_rdchat_never_wrote_leave_the_text_to_be_read(
    open_store: OpenStore, make_chat: MakeChat, word: str
) -> None:
    chat_id = make_chat({1: None, 2: 1}, role=word, status=word, finish_reason=word)
    store = open_store()
    first, second = store.messages(chat_id)
    assert (first.role, first.status, first.finish_reason) == (Role.ASSISTANT, MessageStatus.COMPLETE, None)
    assert (first.text, second.text) == ("m1", "m2")
    assert store.select_sibling(1, 1) == [first, second]


def test_of_a_title_of_megabytes_the_beginning_is_shown(
    open_store: OpenStore, make_chat: MakeChat, database: Path
) -> None:
    """Laying it out held the window for four seconds."""
    chat_id = make_chat({1: None})
    change_by_hand(database, "UPDATE conversations SET title = hex(zeroblob(1000000))")
    assert open_store().conversation(chat_id).title == "0" * 1000


@pytest.mark.parametrize("date", [1e300, -1e300, -1.0, float("inf"), float("-inf"), 2.6e11])
def test_dates_that_no_calendar_has_are_unknown_and_come_last(
    open_store: OpenStore, make_chat: MakeChat, database: Path, date: float
) -> None:
    chat_id = make_chat({1: None}, created_at=date)
    change_by_hand(
        database, "UPDATE conversations SET (created_at, updated_at) = (SELECT created_at, created_at FROM messages)"
    )
    store = open_store()
    known = store.create_conversation("known")
    assert [chat.id for chat in store.conversations()] == [known.id, chat_id]
    chat = store.conversation(chat_id)
    assert (chat.created_at, chat.updated_at, store.message(1).created_at) == (None, None, None)
    store.add_message(chat_id, 1, Role.USER, "again")
    assert store.conversation(chat_id).updated_at is not None


@pytest.mark.parametrize(
    "statistics",
    ["[" * 100_000, '{"decode_ms": NaN, "ttft_ms": 1e999}', '{"generated_tokens": 1' + "0" * 400 + "}", "1e400", "{}"],
)
def test_counters_that_are_none_do_not_keep_a_chat_from_opening(
    open_store: OpenStore, make_chat: MakeChat, database: Path, statistics: str
) -> None:
    chat_id = make_chat({1: None}, statistics=statistics, drafting=statistics)
    change_by_hand(database, "UPDATE conversations SET sampling = (SELECT statistics FROM messages)")
    store = open_store()
    (message,) = store.messages(chat_id)
    if message.statistics is not None:
        assert (message.statistics.decode_ms, message.statistics.generated_tokens) == (0.0, 0)
    assert len(store.conversations()) == 1
