from collections.abc import Callable
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import BenchProgress, BenchResult, Difference
from rdchat.services.engine.benchmark import Benchmark, RaceResult
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState, Failure
from tests.services.bench_runs import EVENTS, PLAN, bench_run
from tests.services.fakes import Gate, ScriptedEngine
from tests.services.window import Window


@pytest.fixture
def benchmark(make_client: Callable[..., EngineClient], engine: ScriptedEngine) -> Benchmark:
    engine.bench_events = EVENTS
    return Benchmark(make_client())


def test_a_benchmark_keeps_what_it_found_out(qtbot: QtBot, benchmark: Benchmark, engine: ScriptedEngine) -> None:
    """The first reply alternates from plan to plan."""
    for turn in range(2):
        with qtbot.waitSignal(benchmark.ended):
            benchmark.run_plan(PLAN, {"device": "here"})
            assert benchmark.running
            assert benchmark._engine.measuring
        assert engine.plans[-1] == replace(PLAN, turn=turn)
        assert benchmark.progress == EVENTS[0]
        assert benchmark.result == BenchResult(engine.plans[-1], EVENTS[1:], {"device": "here"}, complete=True)
        assert not benchmark.running
        assert not benchmark._engine.measuring


def test_runs_before_a_stop_are_kept(
    qtbot: QtBot, benchmark: Benchmark, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    benchmark.run_plan(PLAN, {})
    shut_gate.allow(2)
    qtbot.waitUntil(lambda: len(benchmark.runs) == 1)
    with qtbot.waitSignal(benchmark.ended):
        benchmark.end_runs()
    assert benchmark.result == BenchResult(engine.plans[0], EVENTS[1:2], {}, complete=False)


def test_an_engine_that_cannot_start_fails_it(qtbot: QtBot, make_client: Callable[..., EngineClient]) -> None:
    def broken() -> ScriptedEngine:
        raise OSError("no library")

    benchmark = Benchmark(make_client(broken))
    with qtbot.waitSignal(benchmark.ended):
        benchmark.run_plan(PLAN, {})
    assert benchmark.failure is not None
    assert "no library" in benchmark.failure.message
    assert not benchmark.running
    assert not benchmark._engine.measuring


def test_nothing_is_asked_of_the_model_while_it_is_measured(window: Window, engine: ScriptedEngine) -> None:
    """A prompt sent then waits, visibly, for the end of the benchmark."""
    controller = window.controller
    reply = window.ask("Hello")
    engine.bench_events = EVENTS
    engine.gate.shut()
    controller.benchmark.run_plan(PLAN, {})
    controller.send("And now?")
    assert [message.text for message in controller.chat.unsent.waiting] == ["And now?"]
    controller.regenerate(reply.id)
    controller.edit_message(controller.chat.path[0].id, "Hello again")
    assert [notice.title for notice in window.seen.notices] == ["A benchmark is running"] * 2
    assert window.texts == ["Hello", "Hello, you!"]
    with window.qtbot.waitSignal(controller.benchmark.ended):
        engine.gate.open()
    window.wait_until(lambda: window.texts == ["Hello", "Hello, you!", "And now?", "Hello, you!"])


def test_waiting_benchmark_ends_at_once_when_stopped(
    qtbot: QtBot, window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """It waits for a reply; who stops it should not have to wait for that too. Its events do not get into the next."""
    engine.bench_events = EVENTS
    shut_gate.allow(3)
    window.send("Hello")
    window.wait_for(EngineState.WRITING)
    benchmark = window.benchmark
    ends: list[bool] = []
    benchmark.ended.connect(lambda: ends.append(benchmark.complete))
    benchmark.run_plan(PLAN, {})
    benchmark.end_runs()
    assert (benchmark.running, ends) == (False, [False])
    benchmark.run_plan(replace(PLAN, seed=1), {})
    shut_gate.open()
    qtbot.waitUntil(lambda: len(ends) > 1)
    assert (ends, [plan.seed for plan in engine.plans]) == ([False, True], [1])
    assert tuple(benchmark.runs) == EVENTS[1:]


RACE = replace(PLAN, streams=True)


def test_a_race_has_a_plain_and_a_drafted_reply(qtbot: QtBot, benchmark: Benchmark) -> None:
    with qtbot.waitSignal(benchmark.ended):
        benchmark.run_plan(RACE, {})
        assert benchmark.result is None
    assert benchmark.result == RaceResult(bench_run(0, 20), bench_run(1, 10), "Prompt lookup, 3 tokens")
    assert benchmark.result.speed_text == "Prompt lookup, 3 tokens: about 2.0 times as fast at writing."
    assert benchmark.result.verdict == "Same text, token for token."


@pytest.mark.parametrize(
    ("ratio", "busy", "text"),
    [
        (2.04, False, "about 2.0 times as fast at writing"),
        (1.04, False, "about as fast at writing"),
        (0.96, False, "about as fast at writing"),
        (0.07, False, "slower, about 0.07 times as fast at writing"),
        (2.04, True, "no verdict. The computer was busy with other work"),
    ],
)
def test_the_speed_is_told_as_roughly_as_one_reply_each_allows(ratio: float, busy: bool, text: str) -> None:
    """One reply each says little of a hundredth, and "slower, 0.99 times as fast" blamed noise on drafting."""
    plain = bench_run(0, 10 * ratio)
    plain = replace(plain, statistics=replace(plain.statistics, others_share=0.8 if busy else 0.01))
    assert RaceResult(plain, bench_run(1, 10), "Auto").speed_text == f"Auto: {text}."


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (
            Difference(0, 2, " you", " all", 0.0004),
            "The texts differ from token 3 on: plain decoding wrote “ you”, drafting wrote “ all”. "
            "The two scored almost the same (0.0004 apart), so rounding in float32 decided.",
        ),
        (
            Difference(0, 2, " you", " all", 1.25),
            "The texts differ from token 3 on: plain decoding wrote “ you”, drafting wrote “ all”. "
            "Their scores are 1.2 apart, more than rounding explains. Please report this.",
        ),
        (
            Difference(0, 4, "", " all", None),
            "The texts differ from token 5 on: plain decoding had ended, drafting wrote “ all”.",
        ),
    ],
)
def test_the_first_difference_is_told_with_its_gap(
    monkeypatch: pytest.MonkeyPatch, difference: Difference, words: str
) -> None:
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    assert RaceResult(bench_run(0, 20), bench_run(1, 10, difference=difference), "Auto").verdict == words


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "4bit"])
def test_the_program_is_not_blamed_for_what_rounding_may_have_done(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 rounds float32 where a person switched it on; in 16 bits other experts may have been picked."""
    monkeypatch.delenv("MLX_ENABLE_TF32", raising=False)
    parted = replace(bench_run(1, 10, difference=Difference(0, 2, "a", "b", 1.25, 0.01)), dtype=dtype)
    result = RaceResult(bench_run(0, 20), parted, "Auto")
    assert not result.parted_by_rounding
    assert "Please report" not in result.verdict
    assert ("TF32" in result.verdict) == (dtype == "float32")


def test_near_tie_depends_on_the_rounding_measured_at_its_position() -> None:
    """At temperature 0.1 scores move ten times as far as logits do."""
    assert not Difference(0, 2, "a", "b", 0.9).near_tie("bfloat16")
    assert Difference(0, 2, "a", "b", 0.9, 0.2).near_tie("bfloat16")
    assert not Difference(0, 2, "a", "b", 0.9, 0.1).near_tie("bfloat16")
    assert not Difference(0, 2, "a", "b", 0.002, 1e-6).near_tie("float32")
    assert Difference(0, 2, "a", "b", 0.002, 1e-3).near_tie("float32"), "as TF32 makes it"


def test_a_race_ends_when_its_warm_up_shows_that_the_mode_cannot_run(
    qtbot: QtBot, benchmark: Benchmark, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """The reason came only after a whole plain reply."""
    missing = bench_run(1, 0, pieces=(), mode_reason="There is no drafter for this model.")
    engine.bench_events = (BenchProgress(0, 2, "Warming up"), missing, bench_run(0, 20))
    with qtbot.waitSignal(benchmark.ended):
        benchmark.run_plan(RACE, {})
        shut_gate.allow(2)
    assert benchmark.failure == Failure("There is no drafter for this model.", "Choose another drafting mode.")
    assert (benchmark.running, benchmark.result) == (False, None)
