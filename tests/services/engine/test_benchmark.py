from collections.abc import Callable
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import BenchProgress
from rdchat.services.engine.benchmark import Benchmark
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState, Failure
from tests.services.bench_runs import EVENTS, PLAN
from tests.services.fakes import Gate, ScriptedEngine
from tests.services.window import Window


@pytest.fixture
def client(make_client: Callable[..., EngineClient]) -> EngineClient:
    return make_client()


def test_a_benchmark_keeps_what_it_found_out(qtbot: QtBot, client: EngineClient, engine: ScriptedEngine) -> None:
    engine.bench_events = EVENTS
    benchmark = Benchmark(client)
    with qtbot.waitSignal(benchmark.ended) as ended:
        benchmark.run_plan(PLAN)
        assert benchmark.running
        assert client.measuring
    assert ended.args == [False]
    assert engine.plans == [PLAN]
    assert (benchmark.progress, tuple(benchmark.runs)) == (EVENTS[0], EVENTS[1:])
    assert not benchmark.running
    assert not client.measuring


def paused_after_one_run(qtbot: QtBot, client: EngineClient, engine: ScriptedEngine, shut_gate: Gate) -> Benchmark:
    engine.bench_events = EVENTS
    benchmark = Benchmark(client)
    benchmark.run_plan(PLAN)
    shut_gate.allow(2)
    qtbot.waitUntil(lambda: len(benchmark.runs) == 1)
    return benchmark


def test_runs_before_a_stop_are_kept(
    qtbot: QtBot, client: EngineClient, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    benchmark = paused_after_one_run(qtbot, client, engine, shut_gate)
    with qtbot.waitSignal(benchmark.ended) as ended:
        benchmark.end_runs()
    assert ended.args == [True]
    assert benchmark.runs == [EVENTS[1]]


def test_a_benchmark_that_begins_drops_the_one_before(
    qtbot: QtBot, client: EngineClient, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """Events of the first, still on their way, must not get into the second."""
    benchmark = paused_after_one_run(qtbot, client, engine, shut_gate)
    engine.bench_events = (BenchProgress(0, 1, "second"),)
    with qtbot.waitSignal(benchmark.ended) as ended:
        benchmark.run_plan(replace(PLAN, seed=1))
        shut_gate.open()
    assert ended.args == [False]
    assert benchmark.runs == []
    assert benchmark.progress == BenchProgress(0, 1, "second")


def test_two_windows_share_the_engine_but_not_their_runs(
    qtbot: QtBot, client: EngineClient, engine: ScriptedEngine
) -> None:
    engine.bench_events = EVENTS
    mine = Benchmark(client)
    other = Benchmark(client)
    with qtbot.waitSignal(mine.ended):
        mine.run_plan(PLAN)
    assert len(mine.runs) == 2
    assert (other.runs, other.progress, other.running) == ([], None, False)


def test_an_engine_that_cannot_start_fails_it(qtbot: QtBot, make_client: Callable[..., EngineClient]) -> None:
    def broken() -> ScriptedEngine:
        raise OSError("no library")

    client = make_client(broken)
    benchmark = Benchmark(client)
    with qtbot.waitSignal(benchmark.failed) as failed:
        benchmark.run_plan(PLAN)
    failure = failed.args[0]
    assert isinstance(failure, Failure)
    assert "no library" in failure.message
    assert not benchmark.running
    assert not client.measuring


def test_nothing_is_asked_of_the_model_while_it_is_measured(window: Window, engine: ScriptedEngine) -> None:
    """A prompt sent then waits, visibly, for the end of the benchmark."""
    controller = window.controller
    reply = window.ask("Hello")
    engine.bench_events = EVENTS
    engine.gate.shut()
    controller.benchmark.run_plan(PLAN)
    controller.send("And now?")
    assert [message.text for message in controller.chat.unsent.waiting] == ["And now?"]
    controller.regenerate(reply.id)
    controller.edit_message(controller.chat.path[0].id, "Hello again")
    assert [notice.title for notice in window.seen.notices] == ["A race or a benchmark is running"] * 2
    assert window.texts == ["Hello", "Hello, you!"]
    with window.qtbot.waitSignal(controller.benchmark.ended):
        engine.gate.open()
    window.qtbot.waitUntil(lambda: window.texts == ["Hello", "Hello, you!", "And now?", "Hello, you!"])


def test_waiting_benchmark_ends_at_once_when_stopped(
    qtbot: QtBot, window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """It waits for a reply; who stops it should not have to wait for that too."""
    engine.bench_events = EVENTS
    shut_gate.allow(3)
    window.controller.send("Hello")
    window.wait_for(EngineState.WRITING)
    benchmark = window.controller.benchmark
    benchmark.run_plan(PLAN)
    with qtbot.waitSignal(benchmark.ended, timeout=0) as ended:
        benchmark.end_runs()
    assert ended.args == [True]
    assert not benchmark.running
    shut_gate.open()
    window.wait_for(EngineState.IDLE)
    qtbot.waitUntil(lambda: not window.controller._engine.measuring)
    assert engine.plans == []
    with qtbot.waitSignal(benchmark.ended) as ended:
        benchmark.run_plan(PLAN)
    assert (ended.args, len(benchmark.runs)) == ([False], 2)
