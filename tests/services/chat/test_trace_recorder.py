"""Traces are packed on a thread, reach the store whole, and are read back with what is still on its way."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.reply_trace import ReplyTrace, encode
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageFullError
from rdchat.inference.api import Mode, Role
from rdchat.services.chat.reply_recorder import TraceRecorder
from tests.chat.traces import drafted_events, drafted_trace
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_midway, restarted


@pytest.fixture
def reply_id(store: ConversationStore) -> int:
    chat = store.create_conversation("chat")
    return store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING).id


@pytest.fixture
def recorder(qtbot: QtBot, store: ConversationStore) -> TraceRecorder:
    return TraceRecorder(store)


def record(recorder: TraceRecorder, message_id: int, rounds: int) -> None:
    """Record the trace of a reply that has ended."""
    recorder.begin_trace(message_id, 0)
    recorder.append_tokens(message_id, drafted_events(rounds))
    recorder.end_trace(message_id)


def texts(trace: ReplyTrace | None) -> list[str]:
    assert trace is not None
    return [token.text for token in trace.tokens]


def test_a_trace_is_there_while_it_grows_and_after_a_restart(
    qtbot: QtBot, recorder: TraceRecorder, store: ConversationStore, reply_id: int
) -> None:
    events = drafted_events(30)
    recorder.begin_trace(reply_id, 0)
    recorder.append_tokens(reply_id, events[:20])
    assert texts(recorder.trace(reply_id)) == [event.text for event in events[:20]]
    recorder.append_tokens(reply_id, events[20:])
    recorder.end_trace(reply_id)
    assert recorder.trace(reply_id) == drafted_trace(30)  # not stored yet
    qtbot.waitUntil(lambda: store.trace(reply_id) is not None)
    assert TraceRecorder(store).trace(reply_id) == drafted_trace(30)


def test_the_store_is_asked_once_whether_a_reply_has_a_trace(
    qtbot: QtBot, store: ConversationStore, reply_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refresh of the menus and each reply that was laid out asked it again."""
    asked: list[int] = []
    has_trace = store.has_trace
    monkeypatch.setattr(store, "has_trace", lambda message_id: asked.append(message_id) or has_trace(message_id))
    recorder = TraceRecorder(store)
    assert not any(recorder.has_trace(reply_id) for _ in range(3))
    assert asked == [reply_id]
    record(recorder, reply_id, rounds=3)
    assert recorder.has_trace(reply_id)
    qtbot.waitUntil(lambda: store.trace(reply_id) is not None)
    assert all(recorder.has_trace(reply_id) for _ in range(3))
    assert asked == [reply_id, reply_id]
    store.execute("DELETE FROM message_traces")
    recorder.settle()
    assert not recorder.has_trace(reply_id), "a backup was restored"


def test_a_trace_of_an_erased_chat_does_not_hold_up_those_after_it(
    qtbot: QtBot, recorder: TraceRecorder, store: ConversationStore, reply_id: int
) -> None:
    """All later traces stayed in memory, and were lost when the app quit."""
    gone = reply_id + 1000
    for message_id in (gone, reply_id):
        record(recorder, message_id, 5)
    qtbot.waitUntil(lambda: not recorder._unsaved)
    assert store.trace(reply_id) is not None
    assert store.trace(gone) is None


def test_a_long_trace_is_packed_beside_the_main_thread(
    qtbot: QtBot, recorder: TraceRecorder, store: ConversationStore, reply_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def packed(trace: ReplyTrace) -> bytes:
        threads.append(threading.get_ident())
        return encode(trace)

    monkeypatch.setattr("rdchat.services.chat.reply_recorder.encode", packed)
    record(recorder, reply_id, 5)
    assert recorder.trace(reply_id) == drafted_trace(5)
    qtbot.waitUntil(lambda: store.trace(reply_id) is not None)
    assert threads
    assert threading.get_ident() not in threads
    assert recorder.trace(reply_id) == drafted_trace(5)


def test_a_full_disk_delays_a_trace(
    qtbot: QtBot, recorder: TraceRecorder, store: ConversationStore, reply_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def refuse(*_arguments: object, **_options: object) -> None:
        tries.append(time.monotonic())
        raise StorageFullError("The disk is full.", "Free some space.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "save_trace", refuse)
        record(recorder, reply_id, 3)
        qtbot.waitUntil(lambda: len(tries) == 1)
        assert texts(recorder.trace(reply_id)) == texts(drafted_trace(3))
    recorder.save_traces()
    qtbot.waitUntil(lambda: store.trace(reply_id) is not None)


def test_a_reply_begun_anew_replaces_its_trace(recorder: TraceRecorder, reply_id: int) -> None:
    for rounds in (6, 2):
        record(recorder, reply_id, rounds)
        recorder.end_traces()
    assert recorder.trace(reply_id) == drafted_trace(2)


def test_damaged_trace_counts_as_not_recorded(recorder: TraceRecorder, store: ConversationStore, reply_id: int) -> None:
    store.save_trace(reply_id, b"no trace", onward=False)
    assert recorder.trace(reply_id) is None


def test_replies_of_the_window_are_traced(window: Window, window_on: Callable[[Path], Window]) -> None:
    reply = window.ask("Hi")
    assert texts(window.traces.trace(reply.id)) == ["Hello", ",", " you", "!"]
    assert reply.drafting is not None
    assert reply.drafting.mode is Mode.OFF
    assert window.traces.trace(reply.id - 1) is None
    again = restarted(window, window_on)
    assert texts(again.traces.trace(reply.id)) == ["Hello", ",", " you", "!"]


def test_what_is_held_back_at_the_end_belongs_to_the_last_token(window: Window, engine: ScriptedEngine) -> None:
    engine.replies = [Reply(("Hello", ""), trailing_text=" there")]
    reply = window.ask("Hi")
    assert reply.text == "Hello there"
    assert texts(window.traces.trace(reply.id)) == ["Hello", " there"]


def test_a_reply_that_is_stopped_and_continued_has_one_trace(window: Window, engine: ScriptedEngine) -> None:
    message_id = pause_midway(window, engine)
    assert window.traces.is_live(message_id)
    assert texts(window.traces.trace(message_id)) == ["Hello", ","]
    window.stop_reply()
    window.wait_until_idle()
    engine.gate.open()
    window.continue_reply(message_id)
    window.wait_until_idle()
    trace = window.traces.trace(message_id)
    assert "".join(texts(trace)) == window.texts[-1] == "Hello,Hello, you!"
    assert trace is not None
    assert trace.missing == 0


@pytest.mark.parametrize("settles", [False, True])
def test_a_trace_that_cannot_be_packed_is_dropped_alone(
    qtbot: QtBot, recorder: TraceRecorder, store: ConversationStore, reply_id: int, settles: bool
) -> None:
    """Its error stood in the place of its bytes, and no later trace was stored: save() raised TypeError."""
    other_id = store.add_message(store.message(reply_id).conversation_id, reply_id, Role.ASSISTANT, "").id
    recorder.begin_trace(reply_id, 0)
    recorder.append_tokens(reply_id, [replace(event, drafter="unheard of") for event in drafted_events(2)])
    recorder.begin_trace(other_id, 0)
    recorder.append_tokens(other_id, drafted_events(3))
    if not settles:
        recorder.end_trace(reply_id)
        recorder.end_trace(other_id)
        qtbot.waitUntil(lambda: store.trace(other_id) is not None)
    recorder.end_traces()
    assert TraceRecorder(store).trace(other_id) == drafted_trace(3)
    assert recorder.trace(reply_id) is None
