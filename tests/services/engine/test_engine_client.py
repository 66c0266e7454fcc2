import logging
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QObject, QThread, Signal
from pytestqt.qtbot import QtBot

from rdchat import machine
from rdchat.inference.api import (
    ChatMessage,
    Dtype,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    Role,
)
from rdchat.services.engine import engine_client
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure, LoadModel, ReplyProgress
from tests.services.conftest import AwakeLog
from tests.services.fakes import Gate, Reply, ScriptedEngine, ScriptedReply

MakeClient = Callable[..., EngineClient]


def text_of(progress: ReplyProgress) -> str:
    return "".join(token.text for token in progress.tokens)


def request(request_id: int, prompt: str = "Hi") -> GenerationRequest:
    return GenerationRequest((ChatMessage(Role.USER, prompt),), request_id=request_id)


class Recorder(QObject):
    """Submits requests and notes every event in the order of arrival."""

    model_loaded = Signal(ModelInfo)
    model_failed = Signal(Failure)
    reply_finished = Signal(ReplyEnd)
    reply_failed = Signal(Failure)

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._client = client
        self._requests: dict[int, EngineRequest] = {}
        self.events: list[object] = []
        self.delivered: list[float] = []  # when each event of a reply was, as the client has it
        self.ended: list[int | None] = []  # ids of replies; None for a dead thread
        client.thread_died.connect(self._on_thread_died)

    def load_model(self, model: str | None, dtype: Dtype) -> None:
        def take(event: EngineEvent) -> None:
            self.events.append(event)
            if isinstance(event, ModelInfo):
                self.model_loaded.emit(event)
            elif isinstance(event, Failure):
                self.model_failed.emit(event)

        self._client.submit(LoadModel(model, dtype), take)

    def generate(self, request: GenerationRequest, *, background: bool = False) -> None:
        def take(event: EngineEvent) -> None:
            self.events.append(event)
            self.delivered.append(self._client._delivered_at)
            if isinstance(event, ReplyEnd | Failure):
                self.ended.append(request.request_id)
            if isinstance(event, ReplyEnd):
                self.reply_finished.emit(event)
            elif isinstance(event, Failure):
                self.reply_failed.emit(event)

        self._requests[request.request_id] = self._client.submit(request, take, background=background)

    def stop(self, request_id: int) -> None:
        self._requests[request_id].cancel()

    def of(self, kind: type) -> list:
        return [event for event in self.events if type(event) is kind]

    def _on_thread_died(self, failure: Failure) -> None:
        self.ended.append(None)
        self.model_failed.emit(failure)


@pytest.fixture
def record(make_client: MakeClient) -> Recorder:
    return Recorder(make_client())


def test_a_model_is_loaded_and_a_reply_written_on_one_other_thread(
    qtbot: QtBot, record: Recorder, engine: ScriptedEngine
) -> None:
    with qtbot.waitSignal(record.reply_finished) as finished:
        record.load_model("tiny", Dtype.FLOAT16)
        record.generate(request(7))
    end = finished.args[0]
    assert (end.request_id, end.text, end.finish_reason) == (7, "Hello, you!", FinishReason.EOS)
    assert engine.loads == [("tiny", Dtype.FLOAT16)]
    assert len(engine.threads) == 1
    assert threading.get_ident() not in engine.threads
    assert "".join(map(text_of, record.of(ReplyProgress))) == "Hello, you!"
    assert record.of(PrefillProgress)[-1] == PrefillProgress(7, 8, 8, 0)
    kinds = [type(event) for event in record.events]
    order = [LoadProgress, ModelInfo, PrefillProgress, ReplyProgress, ReplyEnd]
    assert sorted(kinds, key=order.index) == kinds


def test_the_machine_stays_awake_for_replies_and_measurements_but_not_for_loads(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine, awake: AwakeLog, monkeypatch: pytest.MonkeyPatch
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
    record = Recorder(make_client())
    with qtbot.waitSignal(record.reply_finished):
        record.load_model("tiny", Dtype.FLOAT16)
        record.generate(request(7))
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

    client = make_client(factory)
    record = Recorder(client)
    assert not made_on
    with qtbot.waitSignal(record.model_loaded):
        record.load_model(None, Dtype.AUTO)
    assert len(made_on) == 1
    assert made_on != [threading.get_ident()]


def test_nothing_is_measured_while_the_window_is_hidden(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine
) -> None:
    """macOS may slow a hidden app down (App Nap)."""
    engine.idle_slices = 3
    client = make_client()
    record = Recorder(client)
    client.set_hidden(True)
    with qtbot.waitSignal(record.model_loaded):
        record.load_model(None, Dtype.AUTO)
    record.generate(request(1))  # behind the idle work, were there any
    qtbot.waitUntil(lambda: len(record.of(ReplyEnd)) == 1)
    assert engine.idle_slices == 3
    client.set_hidden(False)
    qtbot.waitUntil(lambda: engine.idle_slices == 0)


def test_the_engine_rests_after_some_minutes(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_REST_AFTER_MS", 0)
    client = make_client()
    record = Recorder(client)
    record.generate(request(1))
    qtbot.waitUntil(lambda: len(record.of(ReplyEnd)) == 1)
    qtbot.waitUntil(lambda: engine.rests > 0)
    assert len(engine.threads) == 1


def asleep_client(qtbot: QtBot, make_client: MakeClient, minutes: int | None) -> EngineClient:
    client = make_client()
    client.sleep_after(minutes)
    record = Recorder(client)
    record.generate(request(1))
    qtbot.waitUntil(lambda: len(record.of(ReplyEnd)) == 1)
    return client


def test_a_model_that_nobody_uses_is_unloaded_and_loaded_by_a_key_press(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 0)
    client = asleep_client(qtbot, make_client, 5)
    qtbot.waitUntil(lambda: client.asleep and engine.naps == 1)
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 60_000)
    with qtbot.waitSignal(client.asleep_changed):
        client.wake()
    client.wake()
    qtbot.waitUntil(lambda: engine.wakings == 1)
    assert not client.asleep
    assert len(engine.threads) == 1


@pytest.mark.parametrize(("battery", "free", "sleeps"), [(False, 50, False), (True, 50, True), (False, 5, True)])
def test_unused_model_is_unloaded_on_battery_or_if_memory_is_short(
    qtbot: QtBot, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, battery: bool, free: int, sleeps: bool
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(engine_client, "_MINUTE_MS", 1)
    monkeypatch.setattr(machine, "on_battery", lambda: battery)
    monkeypatch.setattr(machine, "available_bytes", lambda: looks.append(1) or free)
    monkeypatch.setattr(machine, "total_bytes", lambda: 100)
    client = asleep_client(qtbot, make_client, None)
    qtbot.waitUntil(lambda: client.asleep or len(looks) > 2)
    assert client.asleep is sleeps
    client.sleep_after(0)
    client.wake()
    qtbot.wait(50)
    assert not client.asleep


def test_what_python_keeps_per_thread_outlives_a_request(qtbot: QtBot, make_client: MakeClient) -> None:
    kept = threading.local()

    class Keeper(ScriptedEngine):
        def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> ScriptedReply:
            kept.requests = [*getattr(kept, "requests", []), request.request_id]
            self.replies = [Reply(tokens=tuple(map(str, kept.requests)))]
            return super().generate(request, stopped)

    client = make_client(Keeper)
    record = Recorder(client)
    record.generate(request(1))
    record.generate(request(2))
    qtbot.waitUntil(lambda: len(record.of(ReplyEnd)) == 2)
    assert [end.text for end in record.of(ReplyEnd)] == ["1", "12"]


def test_text_is_coalesced_to_thirty_events_a_second(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine
) -> None:
    engine.replies = [Reply(tokens=tuple("x" * 20_000))]
    client = make_client()
    record = Recorder(client)
    with qtbot.waitSignal(record.reply_finished):
        record.generate(request(1))
    # Counted by deliveries: a busy machine may hold up each of them, and the test.
    moments = sorted(set(record.delivered))
    assert all(later - earlier >= 1 / 30 for earlier, later in pairwise(moments))
    assert len(record.of(ReplyProgress)) <= len(moments)
    assert sum(map(len, map(text_of, record.of(ReplyProgress)))) == 20_000


def test_a_late_main_thread_finds_one_event_not_many(
    make_client: MakeClient, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    engine.replies = [Reply(tokens=tuple("abcdefgh"), prompt_tokens=0)]
    client = make_client()
    record = Recorder(client)
    record.generate(request(1))
    shut_gate.allow(8)
    # the main thread is busy here: nothing is delivered until the event loop runs again
    assert client.shutdown()
    assert [text_of(event) for event in record.of(ReplyProgress)] in ([], ["abcdefgh"], ["abcdefg"])
    assert len(record.of(ReplyEnd)) == 1


@pytest.mark.parametrize("permits", [0, 1, 3])
def test_a_stop_takes_effect_in_prefill_and_while_writing(
    qtbot: QtBot, record: Recorder, shut_gate: Gate, awake: AwakeLog, permits: int
) -> None:
    record.generate(request(1))
    shut_gate.allow(permits)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    with qtbot.waitSignal(record.reply_finished) as finished:
        record.stop(1)
    assert finished.args[0].finish_reason is FinishReason.CANCELLED
    qtbot.waitUntil(lambda: awake.inside == 0)


def test_a_stop_before_the_start_keeps_the_engine_out_of_it(
    qtbot: QtBot, record: Recorder, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    record.generate(request(1))
    record.generate(request(2, "never seen"))
    record.stop(2)
    shut_gate.open()
    qtbot.waitUntil(lambda: len(record.of(ReplyEnd)) == 2)
    first, second = record.of(ReplyEnd)
    assert (first.request_id, first.finish_reason) == (1, FinishReason.EOS)
    assert (second.request_id, second.finish_reason, second.text) == (2, FinishReason.CANCELLED, "")
    assert [seen.request_id for seen in engine.requests] == [1]


def test_a_stop_that_comes_too_late_does_nothing(qtbot: QtBot, record: Recorder) -> None:
    with qtbot.waitSignal(record.reply_finished):
        record.generate(request(1))
    record.stop(1)
    with qtbot.waitSignal(record.reply_finished) as finished:
        record.generate(request(2))
    assert finished.args[0].finish_reason is FinishReason.EOS


def test_loading_a_model_stops_the_reply_first(qtbot: QtBot, record: Recorder, shut_gate: Gate) -> None:
    record.generate(request(1))
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    with qtbot.waitSignal(record.model_loaded):
        record.load_model("other", Dtype.AUTO)
    assert record.of(ReplyEnd)[0].finish_reason is FinishReason.CANCELLED
    assert [type(event) for event in record.events].index(ReplyEnd) < len(record.events) - 1


def test_a_newer_load_gives_up_the_older_one(qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine) -> None:
    engine.load_gate.shut()
    client = make_client()
    record = Recorder(client)
    record.load_model("first", Dtype.AUTO)
    qtbot.waitUntil(lambda: engine.load_gate.is_waiting)
    record.load_model("second", Dtype.AUTO)
    record.load_model("third", Dtype.AUTO)
    with qtbot.waitSignal(record.model_loaded):
        engine.load_gate.open()
    assert [info.name for info in record.of(ModelInfo)] == ["third"]
    assert [model for model, _ in engine.loads] == ["first", "third"]
    assert not record.of(Failure)


def test_a_mistake_of_ours_fails_the_reply_and_leaves_the_engine_usable(
    qtbot: QtBot,
    make_client: MakeClient,
    engine: ScriptedEngine,
    awake: AwakeLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine.replies = [Reply(error=ZeroDivisionError("boom")), Reply()]
    client = make_client()
    record = Recorder(client)
    with caplog.at_level(logging.ERROR), qtbot.waitSignal(record.reply_failed) as failed:
        record.generate(request(1))
    assert "rdchat.log" in failed.args[0].hint
    assert "ZeroDivisionError: boom" in caplog.text
    assert "".join(map(text_of, record.of(ReplyProgress))) == "Hello, you!"
    assert awake.inside == 0
    with qtbot.waitSignal(record.reply_finished):
        record.generate(request(2))


def test_an_engine_that_cannot_be_made_fails_every_request_at_once(qtbot: QtBot, make_client: MakeClient) -> None:
    attempts: list[int] = []

    def factory() -> ScriptedEngine:
        attempts.append(1)
        raise ImportError("No module named 'mlx'")

    client = make_client(factory)
    record = Recorder(client)
    with qtbot.waitSignal(record.model_failed) as failed:
        record.load_model(None, Dtype.AUTO)
    assert "No module named 'mlx'" in failed.args[0].message
    with qtbot.waitSignal(record.reply_failed) as refused:
        record.generate(request(1))
    assert "No module named 'mlx'" in refused.args[0].message
    assert len(attempts) == 1


def test_a_thread_that_ends_by_itself_fails_open_and_later_requests(qtbot: QtBot, make_client: MakeClient) -> None:
    class Quitter(ScriptedEngine):
        def generate(self, request: GenerationRequest, stopped: Callable[[], bool]) -> ScriptedReply:
            QThread.currentThread().quit()
            return super().generate(request, stopped)

    client = make_client(Quitter)
    record = Recorder(client)
    with qtbot.waitSignal(record.model_failed) as failed:
        record.generate(request(1))
        record.generate(request(2))  # may still be carried out, but never goes unanswered
    assert "stopped working" in failed.args[0].message
    qtbot.waitUntil(lambda: set(record.ended) == {1, 2, None})
    with qtbot.waitSignal(record.reply_failed):
        record.generate(request(3))
    with qtbot.waitSignal(record.model_failed):
        record.load_model(None, Dtype.AUTO)


@pytest.mark.parametrize("permits", [0, 3])
def test_shutdown_midway_ends_the_reply_and_closes_the_engine(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine, shut_gate: Gate, permits: int
) -> None:
    client = make_client()
    record = Recorder(client)
    record.load_model(None, Dtype.AUTO)
    record.generate(request(1))
    record.generate(request(2))
    shut_gate.allow(permits)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    assert client.shutdown()
    assert [end.finish_reason for end in record.of(ReplyEnd)] == [FinishReason.CANCELLED] * 2
    assert engine.closings == 1
    assert client.shutdown()
    assert engine.closings == 1


def test_shutdown_during_a_load_reports_a_thread_that_does_not_come_back(
    qtbot: QtBot, make_client: MakeClient, engine: ScriptedEngine
) -> None:
    engine.load_gate.shut()
    client = make_client()
    record = Recorder(client)
    record.load_model(None, Dtype.AUTO)
    qtbot.waitUntil(lambda: engine.load_gate.is_waiting)
    began = time.monotonic()
    assert not client.shutdown(timeout_s=0.1)
    assert time.monotonic() - began < 8  # the usual patience is ten seconds
    engine.load_gate.open()
    assert client.shutdown()
    assert not record.of(ModelInfo)


def test_a_slot_that_shuts_the_client_down_gets_every_event_once_and_in_order(
    qtbot: QtBot, make_client: MakeClient
) -> None:
    client = make_client()
    record = Recorder(client)
    record.reply_finished.connect(lambda _: client.shutdown())
    with qtbot.waitSignal(record.reply_finished):
        record.generate(request(1))
        record.generate(request(2))
    QCoreApplication.sendPostedEvents()
    assert [end.request_id for end in record.of(ReplyEnd)] == [1, 2]


def test_background_request_is_stopped_for_a_request_of_the_person(
    qtbot: QtBot, record: Recorder, shut_gate: Gate
) -> None:
    record.generate(request(1), background=True)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    record.generate(request(2), background=True)  # another one waits behind it
    record.generate(request(3))
    record.generate(request(4), background=True)
    shut_gate.open()
    qtbot.waitUntil(lambda: record.ended == [1, 2, 3, 4])
    cancelled = FinishReason.CANCELLED
    ended = FinishReason.EOS
    assert [end.finish_reason for end in record.of(ReplyEnd)] == [cancelled, cancelled, ended, ended]


def test_a_background_request_waits_behind_another(qtbot: QtBot, make_client: MakeClient, shut_gate: Gate) -> None:
    """A title that begins during a summary does not end it."""
    client = make_client()
    record = Recorder(client)
    record.generate(request(1), background=True)
    qtbot.waitUntil(lambda: shut_gate.is_waiting)
    record.generate(request(2), background=True)
    shut_gate.open()
    qtbot.waitUntil(lambda: record.ended == [1, 2])
    assert {end.finish_reason for end in record.of(ReplyEnd)} == {FinishReason.EOS}
