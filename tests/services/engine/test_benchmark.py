from collections.abc import Callable
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api import BenchProgress, Difference, Prompt
from rdchat.services.engine.benchmark import Benchmark, Race, RaceResult, Replay, ReplayState
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState, Failure
from tests.services.bench_runs import EVENTS, LOOKUP, PLAN, bench_run
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


@pytest.fixture
def race(make_client: Callable[..., EngineClient]) -> Race:
    return Race(make_client())


def result_of(qtbot: QtBot, race: Race) -> RaceResult:
    with qtbot.waitSignal(race.finished) as finished:
        race.begin_race("Say hello", LOOKUP, 0.7, 7, 32)
    result = finished.args[0]
    assert isinstance(result, RaceResult)
    return result


def test_a_replay_shows_each_token_from_its_moment_on() -> None:
    replay = Replay(bench_run(0, 20))  # at 100, 120, 140 and 160 ms
    assert replay.at(99.9) == ReplayState(0, 0, 99.9, None, ended=False)
    assert replay.at(100) == ReplayState(5, 1, 100, None, ended=False)
    assert replay.at(130) == ReplayState(6, 2, 130, pytest.approx(1000 / 30), ended=False)
    assert replay.at(1000) == ReplayState(11, 4, 160, pytest.approx(50), ended=True)


def test_tokens_of_one_round_come_together() -> None:
    run = bench_run(1, 0)  # all at 100 ms
    assert Replay(run).at(100) == ReplayState(11, 4, 100, None, ended=True)


def test_a_race_is_one_prompt_with_and_without_drafting(qtbot: QtBot, race: Race, engine: ScriptedEngine) -> None:
    engine.bench_events = (bench_run(0, 20), bench_run(1, 10))
    result = result_of(qtbot, race)
    plan = engine.plans[0]
    assert plan.prompts == (Prompt("Say hello"),)
    assert [cell.draft.mode.value for cell in plan.all_cells] == ["off", "lookup"]
    assert not plan.overhead, "nothing shows it"
    assert (plan.runs, plan.seed, plan.max_tokens, plan.all_cells[1].temperature) == (2, 7, 32, 0.7)
    assert result.ratio == 2.0
    assert result.speed_text == "Prompt lookup, 3 tokens: about 2.0 times as fast at writing."
    assert result.verdict == "Same text, token for token."
    assert result.duration_ms == 160


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (2.04, "about 2.0 times as fast"),
        (1.04, "about as fast"),
        (0.96, "about as fast"),
        (0.07, "slower, about 0.07 times as fast"),
    ],
)
def test_a_ratio_of_one_reply_each_is_told_roughly(ratio: float, words: str) -> None:
    """One reply each says little of a hundredth, and "slower, 0.99 times as fast" blamed noise on drafting."""
    text = RaceResult(Replay(bench_run(0, 20)), Replay(bench_run(1, 10)), "Auto", ratio, None).speed_text
    assert text == f"Auto: {words} at writing."


def test_first_reply_alternates_from_race_to_race(qtbot: QtBot, race: Race, engine: ScriptedEngine) -> None:
    engine.bench_events = (bench_run(0, 20), bench_run(1, 10))
    for _ in range(3):
        result_of(qtbot, race)
    assert [plan.turn for plan in engine.plans] == [0, 1, 2]


@pytest.fixture
def no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")


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
    no_tf32: None, qtbot: QtBot, race: Race, engine: ScriptedEngine, difference: Difference, words: str
) -> None:
    engine.bench_events = (bench_run(0, 20), bench_run(1, 10, difference=difference))
    assert result_of(qtbot, race).verdict == words


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "4bit"])
def test_the_program_is_not_blamed_for_what_rounding_may_have_done(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 rounds float32 where a person switched it on; in 16 bits other experts may have been picked."""
    monkeypatch.delenv("MLX_ENABLE_TF32", raising=False)
    parted = replace(bench_run(1, 10, difference=Difference(0, 2, "a", "b", 1.25, 0.01)), dtype=dtype)
    result = RaceResult(Replay(bench_run(0, 20)), Replay(parted), "Auto", 1.0, parted.difference)
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


def test_unavailable_mode_fails_the_race_with_its_reason(qtbot: QtBot, race: Race, engine: ScriptedEngine) -> None:
    engine.bench_events = (
        bench_run(1, 0, pieces=(), mode_reason="There is no drafter for this model."),
        bench_run(0, 20),
    )
    with qtbot.waitSignal(race.failed) as failed, qtbot.assertNotEmitted(race.finished):
        race.begin_race("Say hello", LOOKUP, 0.7, 7, 32)
    assert failed.args[0].message == "There is no drafter for this model."


def test_race_ends_during_the_warm_up_when_its_mode_cannot_run(
    qtbot: QtBot, race: Race, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """The reason came only after a whole plain reply."""
    missing = bench_run(1, 0, pieces=(), mode_reason="There is no drafter for this model.")
    engine.bench_events = (BenchProgress(0, 2, "Warming up"), missing, bench_run(0, 20))
    with qtbot.waitSignal(race.failed) as failed, qtbot.assertNotEmitted(race.stopped):
        race.begin_race("Say hello", LOOKUP, 0.7, 7, 32)
        shut_gate.allow(2)
    assert failed.args[0].message == "There is no drafter for this model."
    assert not race.running


def test_a_race_that_is_stopped_has_no_result(
    qtbot: QtBot, race: Race, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    engine.bench_events = (BenchProgress(0, 2, "Warming up"), bench_run(0, 20), bench_run(1, 10))
    assert race.step_text == ""
    race.begin_race("Say hello", LOOKUP, 0.7, 7, 32)
    shut_gate.allow(1)
    qtbot.waitUntil(lambda: race.step_text.startswith("Preparing for "))
    with qtbot.waitSignal(race.stopped), qtbot.assertNotEmitted(race.finished):
        race.end_runs()
    assert not race.running
