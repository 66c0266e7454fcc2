import logging
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from PySide6.QtCore import QThread
from pytestqt.qtbot import QtBot

from rdchat import machine
from rdchat.inference.api import FinishReason, GenerationRequest, LoadProgress, ModelInfo, PrefillProgress, ReplyEnd
from rdchat.services.engine import engine_client
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineEvent, Failure, ReplyProgress
from tests.services.conftest import AwakeLog
from tests.services.engine.conftest import Client, MakeClient, asked
from tests.services.fakes import Gate, Reply, ScriptedEngine, ScriptedReply


def reason_of(event: EngineEvent) -> FinishReason:
    assert isinstance(event, ReplyEnd)
    return event.finish_reason


def test_a_model_is_loaded_and_a_reply_written_on_one_other_thread(client: Client, engine: ScriptedEngine) -> None:
    client.load_model("tiny")
    client.ask(7)
    end = client.end(7)
    assert isinstance(end, ReplyEnd)
    assert (end.request_id, end.text, end.finish_reason) == (7, "Hello, you!", FinishReason.EOS)
    assert [model for model, _ in engine.loads] == ["tiny"]
    assert len(engine.threads) == 1
    assert threading.get_ident() not in engine.threads
    assert client.text("7") == "Hello, you!"
    assert client.of(PrefillProgress)[-1] == PrefillProgress(7, 8, 8, 0)
    kinds = [type(event) for _, event in client.log]
    order = [LoadProgress, ModelInfo, PrefillProgress, ReplyProgress, ReplyEnd]
    assert sorted(kinds, key=order.index) == kinds


def test_the_machine_stays_awake_for_replies_and_measurements_but_not_for_loads(
    qtbot: QtBot, client: Client, engine: ScriptedEngine, awake: AwakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Mac whose other windows are covered may slow a measurement down (App Nap)."""
    seen: list[tuple[str, int]] = []

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            seen.append((name, awake.inside))
            return call(*arguments, **named)

        return noted

    for name in ("load", "generate", "idle"):
        monkeypatch.setattr(engine, name, noting(name, getattr(engine, name)))
    engine.idle_slices = 3
    client.load_model()
    client.ask(7)
    client.end(7)
    qtbot.waitUntil(lambda: engine.idle_slices <= 0)
    assert set(seen) == {("load", 0), ("generate", 1), ("idle", 1)}
    qtbot.waitUntil(lambda: awake.inside == 0)


def test_the_engine_is_made_on_its_own_thread_and_not_before_it_is_needed(
    qtbot: QtBot, make_client: MakeClient
) -> None:
    made_on: list[int] = []

    def factory() -> ScriptedEngine:
        made_on.append(threading.get_ident())
        return ScriptedEngine()

    client = Client(make_client(factory), qtbot)
    assert not made_on
    client.load_model()
    client.end("load")
    assert len(made_on) == 1
    assert made_on != [threading.get_ident()]


def test_nothing_is_measured_while_the_window_is_hidden(qtbot: QtBot, client: Client, engine: ScriptedEngine) -> None:
    """macOS may slow a hidden app down (App Nap)."""
    engine.idle_slices = 3
    client.client.set_hidden(True)
    client.load_model()
    client.end("load")
    client.ask(1)  # behind the idle work, were there any
    client.end(1)
    assert engine.idle_slices == 3
    client.client.set_hidden(False)
    qtbot.waitUntil(lambda: engine.idle_slices <= 0)


def test_the_engine_rests_after_some_minutes(
    qtbot: QtBot, client: Client, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_REST_AFTER_MS", 0)
    client.ask(1)
    client.end(1)
    qtbot.waitUntil(lambda: engine.rests > 0)
    assert len(engine.threads) == 1


def after_a_reply(client: Client, sleep_after: int | None) -> EngineClient:
    client.client.sleep_after(sleep_after)
    client.ask(1)
    client.end(1)
    return client.client


def test_a_model_that_nobody_uses_is_unloaded_and_loaded_by_a_key_press(
    qtbot: QtBot, client: Client, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 0)
    slept = after_a_reply(client, 5)
    qtbot.waitUntil(lambda: slept.asleep and engine.naps == 1)
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 60_000)
    with qtbot.waitSignal(slept.asleep_changed):
        slept.wake()
    slept.wake()
    qtbot.waitUntil(lambda: engine.wakings == 1)
    assert not slept.asleep
    assert len(engine.threads) == 1


@pytest.mark.parametrize(("battery", "free", "sleeps"), [(False, 50, False), (True, 50, True), (False, 5, True)])
def test_unused_model_is_unloaded_on_battery_or_if_memory_is_short(
    qtbot: QtBot, client: Client, monkeypatch: pytest.MonkeyPatch, battery: bool, free: int, sleeps: bool
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 1)
    monkeypatch.setattr(machine, "on_battery", lambda: battery)
    monkeypatch.setattr(machine, "available_bytes", lambda: looks.append(1) or free)
    monkeypatch.setattr(machine, "total_bytes", lambda: 100)
    slept = after_a_reply(client, None)
    qtbot.waitUntil(lambda: slept.asleep or len(looks) > 2)
    assert slept.asleep is sleeps
    slept.sleep_after(0)
    slept.wake()
    qtbot.wait(50)
    assert not slept.asleep


def test_what_python_keeps_per_thread_outlives_a_request(qtbot: QtBot, make_client: MakeClient) -> None:
    kept = threading.local()

    class Keeper(ScriptedEngine):
        def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> ScriptedReply:
            kept.requests = [*getattr(kept, "requests", []), request.request_id]
            self.replies = [Reply(tokens=tuple(map(str, kept.requests)))]
            return super().generate(request, stopped)

    client = Client(make_client(Keeper), qtbot)
    client.ask(1)
    client.ask(2)
    client.end(2)
    assert [client.text("1"), client.text("2")] == ["1", "12"]


def test_text_is_coalesced_to_thirty_events_a_second(qtbot: QtBot, client: Client, engine: ScriptedEngine) -> None:
    engine.replies = [Reply(tokens=tuple("x" * 5000))]
    events: list[EngineEvent] = []
    moments: set[float] = set()

    def take(event: EngineEvent) -> None:
        events.append(event)
        # Counted by deliveries: a busy machine may hold up each of them, and the test.
        moments.add(client.client._delivered_at)
        # The engine writes more meanwhile.
        time.sleep(0.002)

    client.client.submit(asked(), take)
    qtbot.waitUntil(lambda: bool(events) and isinstance(events[-1], ReplyEnd))
    progress = [event for event in events if isinstance(event, ReplyProgress)]
    assert all(later - earlier >= 1 / 30 for earlier, later in pairwise(sorted(moments)))
    assert len(progress) <= len(moments)
    assert sum(len(event.tokens) for event in progress) == 5000


def test_a_late_main_thread_finds_one_event_not_many(client: Client, engine: ScriptedEngine, shut_gate: Gate) -> None:
    engine.replies = [Reply(tokens=tuple("abcdefghi"), prompt_tokens=0)]
    client.ask(1)
    shut_gate.allow(8)
    # the main thread is busy here: nothing is delivered until the event loop runs again
    while not shut_gate.is_waiting:
        time.sleep(0.001)
    assert client.client.shutdown()
    assert len(client.of(ReplyProgress)) == 1
    assert client.text("1") == "abcdefgh"
    assert len(client.of(ReplyEnd)) == 1


@pytest.mark.parametrize("permits", [0, 1, 3])
def test_a_stop_takes_effect_in_prefill_and_while_writing(
    qtbot: QtBot, client: Client, shut_gate: Gate, awake: AwakeLog, permits: int
) -> None:
    client.ask(1)
    shut_gate.allow(permits)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    client.requests["1"].cancel()
    assert reason_of(client.end(1)) is FinishReason.CANCELLED
    qtbot.waitUntil(lambda: awake.inside == 0)


def test_a_stop_before_the_start_keeps_the_engine_out_of_it(
    client: Client, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    client.ask(1)
    client.ask(2)
    client.requests["2"].cancel()
    shut_gate.open()
    assert reason_of(client.end(1)) is FinishReason.EOS
    assert reason_of(client.end(2)) is FinishReason.CANCELLED
    assert client.text("2") == ""
    assert [request.request_id for request in engine.requests] == [1]


def test_a_stop_that_comes_too_late_does_nothing(client: Client) -> None:
    client.ask(1)
    client.end(1)
    client.requests["1"].cancel()
    client.ask(2)
    assert reason_of(client.end(2)) is FinishReason.EOS


def test_a_newer_load_gives_up_the_older_one(qtbot: QtBot, client: Client, engine: ScriptedEngine) -> None:
    engine.load_gate.shut()
    client.load_model("first")
    qtbot.waitUntil(lambda: engine.load_gate.is_waiting)
    client.load_model("second")
    client.load_model("third")
    engine.load_gate.open()
    client.end("load")
    assert [info.name for info in client.of(ModelInfo)] == ["third"]
    assert [model for model, _ in engine.loads] == ["first", "third"]
    assert not client.of(Failure)


def test_a_mistake_of_ours_fails_the_reply_and_leaves_the_engine_usable(
    client: Client, engine: ScriptedEngine, awake: AwakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    engine.replies = [Reply(error=ZeroDivisionError("boom")), Reply()]
    with caplog.at_level(logging.ERROR):
        client.ask(1)
        failure = client.end(1)
    assert isinstance(failure, Failure)
    assert "rdchat.log" in failure.hint
    assert "ZeroDivisionError: boom" in caplog.text
    assert client.text("1") == "Hello, you!"
    client.qtbot.waitUntil(lambda: awake.inside == 0)  # what is idle enters it too
    client.ask(2)
    assert isinstance(client.end(2), ReplyEnd)


def test_an_engine_that_cannot_be_made_fails_every_request_at_once(qtbot: QtBot, make_client: MakeClient) -> None:
    attempts: list[int] = []

    def factory() -> ScriptedEngine:
        attempts.append(1)
        raise ImportError("No module named 'mlx'")

    client = Client(make_client(factory), qtbot)
    for submit, name in ((client.load_model, "load"), (lambda: client.ask(1), "1")):
        submit()
        failure = client.end(name)
        assert isinstance(failure, Failure)
        assert "No module named 'mlx'" in failure.message
    assert len(attempts) == 1


def test_a_thread_that_ends_by_itself_fails_open_and_later_requests(qtbot: QtBot, make_client: MakeClient) -> None:
    class Quitter(ScriptedEngine):
        def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> ScriptedReply:
            QThread.currentThread().quit()
            return super().generate(request, stopped)

    client = Client(make_client(Quitter), qtbot)
    with qtbot.waitSignal(client.client.thread_died) as died:
        client.ask(1)
        client.ask(2)  # may still be carried out, but never goes unanswered
    assert "stopped working" in died.args[0].message
    client.end(1)
    client.end(2)
    client.ask(3)
    client.load_model()
    assert isinstance(client.end(3), Failure)
    assert isinstance(client.end("load"), Failure)


@pytest.mark.parametrize("permits", [0, 3])
def test_shutdown_midway_ends_the_reply_and_closes_the_engine(
    qtbot: QtBot, client: Client, engine: ScriptedEngine, shut_gate: Gate, permits: int
) -> None:
    client.load_model()
    client.ask(1)
    client.ask(2)
    shut_gate.allow(permits)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    for _ in range(2):
        assert client.client.shutdown()
        assert [end.finish_reason for end in client.of(ReplyEnd)] == [FinishReason.CANCELLED] * 2
        assert engine.closings == 1


def test_a_slot_that_shuts_the_client_down_gets_every_event_once_and_in_order(qtbot: QtBot, client: Client) -> None:
    def take(event: EngineEvent) -> None:
        if isinstance(event, ReplyEnd):
            ends.append(event.request_id)
            client.client.shutdown()

    ends: list[int] = []
    for number in (1, 2):
        client.client.submit(asked(number), take)
    qtbot.waitUntil(lambda: len(ends) >= 2)
    qtbot.wait(10)
    assert ends == [1, 2]


def test_background_request_is_stopped_for_a_request_of_the_person(
    qtbot: QtBot, client: Client, shut_gate: Gate
) -> None:
    client.ask(1, background=True)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    client.ask(2, background=True)  # another one waits behind it
    client.ask(3)
    client.ask(4, background=True)
    shut_gate.open()
    client.end(4)
    assert client.ended == ["1", "2", "3", "4"]
    cancelled = FinishReason.CANCELLED
    ended = FinishReason.EOS
    assert [end.finish_reason for end in client.of(ReplyEnd)] == [cancelled, cancelled, ended, ended]


def test_a_background_request_waits_behind_another(qtbot: QtBot, client: Client, shut_gate: Gate) -> None:
    """A title that begins during a summary does not end it."""
    client.ask(1, background=True)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    client.ask(2, background=True)
    shut_gate.open()
    client.end(2)
    assert client.ended == ["1", "2"]
    assert {end.finish_reason for end in client.of(ReplyEnd)} == {FinishReason.EOS}
