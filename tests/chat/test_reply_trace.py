import tracemalloc
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.reply_trace import ReplyTrace, TracedRound, decode, encode, packed_trace, plain_trace
from rdchat.chat.storage import Database
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Mode, NodeSource, Role, TokenEvent
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.decoding.rounds import _drafters
from rdchat.inference.verification.verifier import PackedTree
from tests.chat.traces import drafted_events, drafted_trace, events_of_round, round_tree


def plain_events(*texts: str) -> list[TokenEvent]:
    return [TokenEvent(1, index, index, text, log_prob=-1.0) for index, text in enumerate(texts)]


def test_tokens_are_told_apart_by_round() -> None:
    trace = ReplyTrace()
    tree = round_tree([" a", " b"], " c")
    trace.append_tokens(plain_events("Zero"))
    trace.append_tokens(events_of_round(1, 1, tree))
    trace.append_tokens(plain_events(" plain"))  # the automatic mode may stop drafting for a while
    trace.append_tokens(events_of_round(2, 5, round_tree([], " d")))
    assert [token.round for token in trace.tokens] == [0, 1, 1, 1, 0, 2]
    assert [token.drafter for token in trace.tokens] == ["", "drafter", "drafter", "", "", ""]
    assert [(each.first, each.count) for each in trace.rounds] == [(1, 3), (5, 1)]
    assert trace.rounds[0].tree == tree
    assert trace.round_of(2) is trace.rounds[0]
    assert trace.round_of(0) is None


def test_a_round_may_come_in_pieces() -> None:
    whole = ReplyTrace()
    pieces = ReplyTrace()
    whole.append_tokens(drafted_events(6))
    for event in drafted_events(6):
        pieces.append_tokens([event])
    assert pieces == whole


def test_what_a_stop_string_cuts_is_not_in_it() -> None:
    for kept in range(1, 12):
        trace = drafted_trace(4)
        texts = [token.text for token in trace.tokens]
        trace.cut_tokens(kept, "!")
        assert [token.text for token in trace.tokens] == [*texts[: kept - 1], texts[kept - 1] + "!"]
        assert max(token.round for token in trace.tokens) == len(trace.rounds)
        assert sum(each.count for each in trace.rounds) == kept - 1
    trace.cut_tokens(0)
    assert (trace.tokens, trace.rounds) == ([], [])


def test_what_is_stored_is_read_back() -> None:
    trace = drafted_trace(9)
    trace.append_tokens(plain_events(" plain", "", " and so on"))
    assert decode(encode(trace)) == trace


def test_log_probabilities_are_kept_to_a_thousandth() -> None:
    trace = ReplyTrace()
    trace.append_tokens([TokenEvent(1, 0, 0, "a", log_prob=-1.23456), TokenEvent(1, 1, 1, "b")])
    read = decode(encode(trace))
    assert read is not None
    assert [token.log_prob for token in read.tokens] == [-1.235, None]


def test_an_open_round_is_kept_without_its_tree() -> None:
    trace = ReplyTrace()
    trace.append_tokens(events_of_round(1, 0, round_tree([" a", " b"], " c"))[:2])
    read = decode(encode(trace))
    assert read is not None
    assert read.rounds == [TracedRound(0, 2, None)]


def test_a_continued_reply_is_stored_behind_what_was_there() -> None:
    first = drafted_trace(3)
    second = drafted_trace(2)
    second.begins_at = sum(len(token.text) for token in first.tokens)
    read = decode(encode(first) + encode(second))
    assert read is not None
    assert [token.text for token in read.tokens] == [token.text for token in first.tokens + second.tokens]
    assert [token.round for token in read.tokens[len(first.tokens) :]] == [0, 4, 4, 5, 5, 5]
    assert read.round_of(len(first.tokens) + 3) is read.rounds[4]
    assert read.rounds[4].first == len(first.tokens) + 3
    assert read.missing == 0


def test_characters_without_a_trace_are_counted() -> None:
    onward = drafted_trace(1)
    onward.begins_at = 40
    read = decode(encode(onward))
    assert read is not None
    assert read.missing == 40


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b[:-1],
        lambda b: b"{}" + b,
        lambda b: b + b"x",
        lambda b: b[: len(b) // 2],
        lambda _: zlib.compress(b"[" * 100_000),
    ],
)
def test_damage_counts_as_not_recorded(spoil: object) -> None:
    assert decode(spoil(encode(drafted_trace(5)))) is None  # type: ignore[operator]


def spoilt(**changes: object) -> dict[str, Any]:
    """Return the trace of a round as JSON, with changes by names such as `tree__path`."""
    trace = ReplyTrace()
    trace.append_tokens(events_of_round(1, 0, round_tree([" a"], " b")))
    streams = plain_trace(encode(trace))
    assert streams is not None
    parts = {
        "token": streams[0]["tokens"][0],
        "round": streams[0]["rounds"][0],
        "tree": streams[0]["rounds"][0]["tree"],
    }
    for name, value in changes.items():
        part, _, field = name.partition("__")
        (parts[part] if field else streams[0])[field or part] = value
    return streams[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"token__token_id": "1"},
        {"token__drafter": "ghost"},
        {"token__position": 1.5},
        {"token__log_prob": 1e300},
        {"token__round": 2},
        {"token__round": 0},
        {"round__first": -2},
        {"round__count": 10**12},
        {"round__count": 1},
        {"tree__parents": [-1, 5]},
        {"tree__path": [0, 7]},
        {"tree__texts": ["root"]},
        {"tree__drafters": ["", "ghost"]},
        {"tree__log_probs": [0.0, 10**400]},
        {"tree__log_probs": [0.0]},
        {"tree__correction_log_prob": 2},
        {"tokens": 1},
        {"rounds": [1]},
        {"version": 2},
    ],
)
def test_what_a_stranger_wrote_as_a_trace_counts_as_not_recorded(changes: dict[str, object]) -> None:
    assert packed_trace([spoilt()]) is not None
    assert packed_trace([spoilt(**changes)]) is None


@pytest.mark.parametrize("streams", [None, {}, [], [None], [{}], [[{"version": 1}]]])
def test_json_that_is_no_trace_counts_as_not_recorded(streams: object) -> None:
    assert packed_trace(streams) is None


@pytest.mark.slow
def test_a_few_bytes_that_unpack_to_gigabytes_count_as_not_recorded() -> None:
    packer = zlib.compressobj()
    bomb = packer.compress(b"{") + b"".join(packer.compress(b" " * (1 << 20)) for _ in range(100)) + packer.flush()
    tracemalloc.start()
    try:
        assert decode(bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_a_trace_is_small() -> None:
    """A reply of 2,000 drafted tokens takes less room than a photograph's thumbnail."""
    assert len(encode(drafted_trace(800))) < 60_000


def add_reply(store: ConversationStore) -> int:
    chat = store.create_conversation("chat")
    prompt = store.add_message(chat.id, None, Role.USER, "Hi")
    return store.add_message(chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING).id


def test_the_store_keeps_traces_until_the_chat_is_gone(store: ConversationStore, database: Path) -> None:
    message_id = add_reply(store)
    assert store.trace(message_id) is None
    store.save_trace(message_id, b"old", onward=False)
    store.save_trace(message_id, b"one", onward=False)
    store.save_trace(message_id, b"two", onward=True)
    assert store.trace(message_id) == b"onetwo"
    chat_id = store.message(message_id).conversation_id
    store.delete_conversation(chat_id)
    store.organiser.schedule_erase([chat_id])
    store.organiser.erase().result()
    store.close()
    with closing(Database(database)) as reopened:
        assert reopened.rows("SELECT count(*) FROM message_traces") == [(0,)]


def emitted_names() -> list[str]:
    """Return every name of a drafter that the engine can give a token, from each mode and each source of a node.

    The automatic mode names the mode that it chose.
    """
    drafts = [Draft(PackedTree.chain(mx.zeros(2, mx.int32)), sources=[source, source]) for source in NodeSource]
    drafting = [mode for mode in Mode if mode not in {Mode.OFF, Mode.AUTO}]
    return sorted({"", *(name for mode in drafting for draft in drafts for name in _drafters(draft, mode.value))})


@pytest.mark.parametrize("name", emitted_names())
def test_every_drafter_that_the_engine_names_is_stored(name: str) -> None:
    """A drafter without a code poisoned the traces of all later replies."""
    trace = ReplyTrace()
    tree = replace(round_tree([" a"], " b"), drafters=("", name))
    trace.append_tokens(events_of_round(1, 0, tree))
    assert decode(encode(trace)) == trace
    assert name in {token.drafter for token in trace.tokens}
