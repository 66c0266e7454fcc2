"""The runner on small real networks: what runs when, what is compared, and every way to end."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import (
    MLX_LM,
    BenchCell,
    BenchEvent,
    BenchPiece,
    BenchPlan,
    BenchProgress,
    BenchRun,
    DraftSettings,
    Dtype,
    GenerationRequest,
    Mode,
    Prompt,
)
from rdchat.inference.benchmark import runner as runner_module
from rdchat.inference.benchmark.recording import BLANK, measure_rounds, record
from rdchat.inference.benchmark.runner import InterleavedRunner, score_gap
from rdchat.inference.drafters import NO_DRAFT_MODEL
from rdchat.inference.loading import load_model
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.session import ChatSession
from tests.grids import share
from tests.inference.fakes import ask, positions, shared_llama

pytestmark = pytest.mark.across_rows

OFF = BenchCell()
LOOKUP = BenchCell(DraftSettings(Mode.LOOKUP))
SPECULATIVE = BenchCell(DraftSettings(Mode.SPECULATIVE))
PROMPTS = (Prompt("hello hello hello", "one"), Prompt("say it again", "two"))
_SLICES = 50


def plan(*cells: BenchCell, **options: object) -> BenchPlan:
    settings = {"prompts": PROMPTS, "max_tokens": 12, "trials": 2, "seed": 3, "mlx_lm": False, **options}
    return BenchPlan(cells, **settings)  # type: ignore[arg-type]


def session_of(_dtype: Dtype = Dtype.AUTO) -> ChatSession:
    return ChatSession(shared_llama())


def runs_of(events: Sequence[BenchEvent]) -> list[BenchRun]:
    return [event for event in events if isinstance(event, BenchRun)]


def measured(asked: BenchPlan) -> list[BenchRun]:
    return runs_of(list(InterleavedRunner(asked, session_of)))


def last_progress(events: Sequence[BenchEvent]) -> BenchProgress:
    return [event for event in events if isinstance(event, BenchProgress)][-1]


@pytest.mark.slow
def test_all_cells_take_turns_and_the_first_one_changes() -> None:
    events = list(InterleavedRunner(plan(OFF, LOOKUP, turn=1), session_of))
    words = [event.text.partition(", prompt")[0] for event in events if isinstance(event, BenchProgress)]
    assert words[2:5] == ["Off", "Prompt lookup, 4 tokens", "Off"]
    runs = runs_of(events)
    assert [run.cell for run in runs[::3]] == [1, 2, 0, 1]
    assert len(runs) == plan(OFF, LOOKUP).runs == 12
    assert {(run.cell, run.prompt, run.trial) for run in runs} == {
        (cell, prompt, trial) for cell in range(3) for prompt in range(2) for trial in range(2)
    }
    assert [run.group for run in runs if run.cell == 0] == ["one", "two"] * 2
    last = last_progress(events)
    assert (last.done, last.total) == (11, 12)
    assert last.left_s is not None


@pytest.mark.slow
def test_finished_turns_are_left_out() -> None:
    whole = measured(plan(LOOKUP, trials=2))
    finished = frozenset({(0, 0, 0), (0, 1, 1)})
    events = list(InterleavedRunner(plan(LOOKUP, trials=2, finished=finished), session_of))
    ids = {(run.cell, *run.turn): run.token_ids for run in runs_of(events)}
    assert ids == {(run.cell, *run.turn): run.token_ids for run in whole if run.turn not in finished}
    last = last_progress(events)
    assert (last.done, last.total) == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", share([1.0, 0.0], 2))
def test_runs_hold_the_reply_and_begin_with_empty_caches(temperature: float) -> None:
    cells = [replace(cell, temperature=temperature) for cell in (OFF, LOOKUP)]
    asked = plan(*cells)
    runs = measured(asked)
    request = GenerationRequest(ask(PROMPTS[0].text).messages, asked.sampling(cells[0]), seed=3)
    expected = record(session_of(), replace(request, draft=OFF.draft), lambda: False)
    assert expected is not None
    for run in runs:
        assert run.difference is None
        assert run.statistics.cached_prompt_tokens == 0
        assert (len(run.pieces), len(run.times_ms)) == (len(run.token_ids), len(run.token_ids))
        assert list(run.times_ms) == sorted(run.times_ms)
        assert run.dtype == "float32"
        if run.prompt == 0:
            assert run.token_ids == expected.token_ids
            assert "".join(run.pieces) == "".join(expected.pieces)
    lookups = [run for run in runs if run.cell == 2]
    assert all(len(set(run.times_ms)) == 1 + run.statistics.rounds for run in lookups)  # a round is one moment
    assert all((run.overhead is None) == (run.trial > 0) for run in lookups)
    assert all(run.overhead is None for run in runs if run.cell != 2)
    assert all(run.overhead > 0 for run in lookups if run.overhead is not None)


@pytest.mark.slow
def test_the_session_of_the_app_keeps_its_cache() -> None:
    app = session_of()
    list(app.generate(ask()))
    held = list(app.cache.tokens)
    list(InterleavedRunner(plan(LOOKUP, trials=1), lambda _: app.fork()))
    assert app.cache.tokens == held
    assert positions(app.cache) == len(held) > 0


@pytest.mark.slow
def test_a_mode_that_cannot_run_gives_one_run_with_the_reason() -> None:
    events = list(InterleavedRunner(plan(SPECULATIVE, LOOKUP), session_of))
    (missing,) = [run for run in runs_of(events) if run.cell == 1]
    assert missing.mode_reason == NO_DRAFT_MODEL
    assert (missing.token_ids, missing.baseline) == ((), 0)
    assert len(runs_of(events)) == 1 + 8
    assert last_progress(events).total == 8


def lie(
    session: ChatSession, request: GenerationRequest, _cancelled: object, blank: BenchRun = BLANK
) -> BenchRun | None:
    """Record a reply with another token in it where prompt lookup is asked for."""
    found = record(session, request, lambda: False, blank)
    if found is None or request.draft.mode is not Mode.LOOKUP:
        return found
    tokens = [*found.token_ids[:4], (found.token_ids[4] + 1) % 5 + 1, *found.token_ids[5:]]
    return replace(found, token_ids=tuple(tokens), statistics=replace(found.statistics, rounds=0))


@pytest.mark.slow
def test_what_differs_from_plain_decoding_is_told_with_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "record", lie)
    runs = measured(plan(LOOKUP, trials=1))
    plain, other = runs[:2] if runs[0].cell == 0 else runs[1::-1]
    assert plain.difference is None
    difference = other.difference
    assert difference is not None
    model = shared_llama()
    assert (difference.index, difference.prompt) == (4, 0)
    assert (difference.plain, difference.other) == tuple(model.decode([r.token_ids[4]]) for r in (plain, other))
    assert difference.gap is not None
    assert difference.gap > 1e-4


def test_a_gap_that_is_no_number_is_left_out_as_json_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "record", lie)
    monkeypatch.setattr(runner_module, "score_gap", lambda *_: (float("nan"), 0.0))
    runs = measured(plan(LOOKUP, trials=1))
    differences = [run.difference for run in runs if run.difference is not None]
    assert {(difference.index, difference.gap) for difference in differences} == {(4, None)}


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 1.0}, {"temperature": 0.8, "top_k": 2}]
)
def test_gaps_are_those_of_the_final_score(sampling: dict[str, float]) -> None:
    request = replace(ask(max_tokens=6, **sampling), draft=OFF.draft)
    session = session_of()
    found = record(session, request, lambda: False)
    assert found is not None
    others = [token for token in range(1, 6) if token != found.token_ids[3]]
    measured = [score_gap(session.model, request, found.token_ids, 3, other) for other in others]
    gaps = [gap for gap, _ in measured]
    assert all(0 <= rounding < 1e-4 for _, rounding in measured)
    assert all(0 < gap < 100 for gap in gaps)  # finite where a filter dropped the token, too
    tokens = [*session.model.encode_chat(request.messages), *found.token_ids[:3]]
    logits = session.model.network(mx.array([tokens]))[0, -1]
    if request.sampling.greedy:
        expected = [float((logits[found.token_ids[3]] - logits[other]).item()) for other in others]
        assert gaps == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_each_precision_has_its_model_and_one_follows_the_other() -> None:
    opened: list[str] = []

    def open_session(dtype: Dtype) -> ChatSession:
        opened.append(dtype.value)
        return session_of()

    cells = [replace(LOOKUP, dtype=dtype) for dtype in (Dtype.FLOAT32, Dtype.FLOAT16)]
    runs = runs_of(list(InterleavedRunner(plan(cells[0], OFF, cells[1]), open_session, lambda: opened.append("done"))))
    assert opened == ["float32", "auto", "float16", "done"]
    assert [run.baseline for run in runs] == [0] * 8 + [1] * 8 + [2] * 8


@pytest.mark.slow
def test_cancelling_keeps_what_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    runner = InterleavedRunner(plan(OFF, LOOKUP), session_of, lambda: ended.append(True))
    events = []
    for event in runner:
        events.append(event)
        if isinstance(event, BenchProgress) and event.done == 4:  # the second turn: lookup has run, plain decoding not
            assert event.text.startswith("Prompt lookup")
            runner.cancel()
    runs = runs_of(events)
    assert [run.prompt for run in runs] == [0, 0, 0]
    assert ended == [True]


def test_a_reply_ends_between_tokens_when_cancelled() -> None:
    looks = iter([False] * 6 + [True] * 50)
    assert record(session_of(), ask(max_tokens=200), lambda: next(looks)) is None


def test_rounds_are_not_made_again_once_it_is_cancelled() -> None:
    session = session_of()
    request = replace(ask(PROMPTS[0].text), draft=LOOKUP.draft)
    found = record(session, request, lambda: False)
    assert found is not None
    assert found.statistics.rounds > 2
    overhead, draft_ms = measure_rounds(session, request, found, lambda: False)
    assert overhead is not None
    assert overhead > 0
    assert draft_ms is not None
    assert draft_ms > 0
    looks: list[bool] = []

    def cancelled() -> bool:
        looks.append(len(looks) == 2)
        return looks[-1]

    assert measure_rounds(session, request, found, cancelled) == (None, None)
    assert looks == [False, False, True]


def test_rounds_are_made_again_only_where_that_is_asked_for() -> None:
    assert [run.overhead for run in measured(plan(LOOKUP, trials=1, overhead=False))] == [None] * 4


def test_closing_early_ends_in_good_order() -> None:
    ended: list[bool] = []
    runner = InterleavedRunner(plan(OFF), session_of, lambda: ended.append(True))
    next(runner)
    runner.close()
    runner.close()
    assert ended == [True]
    with pytest.raises(StopIteration):
        next(runner)


def test_a_prompt_that_does_not_fit_is_refused_before_anything_runs() -> None:
    asked = plan(OFF, prompts=(*PROMPTS, Prompt("a" * 600)))
    with pytest.raises(PromptTooLongError, match=r"Prompt 3 is 6\d\d tokens long; tiny takes 512 with a reply"):
        list(InterleavedRunner(asked, session_of))


@pytest.fixture(scope="module")
def small_session(small_model: Path) -> ChatSession:
    return ChatSession(load_model(small_model))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", share([0.9, 0.0], 2))
def test_stock_mlx_lm_runs_of_turn_on_the_same_network(small_session: ChatSession, temperature: float) -> None:
    asked = plan(replace(OFF, temperature=temperature), prompts=(Prompt("Hello"),), mlx_lm=True)
    runs = runs_of(list(InterleavedRunner(asked, lambda _: small_session.fork())))
    outside = [run for run in runs if run.cell == MLX_LM]
    assert [run.trial for run in outside] == [0, 1]
    plain = next(run for run in runs if run.cell == 0)
    for run in outside:
        assert run.statistics.generated_tokens == len(run.token_ids) == len(run.times_ms)
        assert run.statistics.prompt_tokens == plain.statistics.prompt_tokens
        assert run.statistics.decode_tps is not None
        if not temperature:
            assert run.token_ids == plain.token_ids


@pytest.mark.slow
def test_the_automatic_mode_measures_its_costs_first_and_says_what_it_chose(small_session: ChatSession) -> None:
    asked = plan(BenchCell(DraftSettings(Mode.AUTO)), prompts=(Prompt("Hello"),), trials=1)
    events = list(InterleavedRunner(asked, lambda _: small_session))
    progress = [each for each in events if isinstance(each, BenchProgress) and each.text.startswith("Measuring")]
    parts = len(progress)
    assert [(each.done, each.total) for each in progress] == [(done, parts) for done in range(parts)]
    assert parts, "how far it is can be seen"
    plain, automatic = sorted(runs_of(events), key=lambda run: run.cell)
    slices = takewhile(bool, (small_session.work_while_idle() for _ in range(_SLICES)))
    assert len(list(slices)) < _SLICES, "nothing is left to measure but plain steps that other programs disturbed"
    assert automatic.token_ids == plain.token_ids
    assert (automatic.difference, automatic.overhead) == (None, None)
    assert automatic.chosen
    assert not plain.chosen


@pytest.mark.slow
def test_the_engine_measures_another_precision_and_goes_back(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def load(model: str | None, dtype: Dtype, on_progress: object, *, anyway: bool) -> object:
        loads.append(dtype.value)
        return load_model(model, dtype)

    monkeypatch.setattr("rdchat.inference.local_engine.load_model", load)
    engine = LocalEngine()
    info = engine.load(str(small_model), Dtype.AUTO, lambda _: None)
    cells = [replace(OFF, dtype=dtype) for dtype in (Dtype.AUTO, Dtype.FLOAT16, Dtype(info.dtype))]
    runs = runs_of(list(engine.benchmark(plan(*cells, prompts=PROMPTS[:1], trials=1, max_tokens=3))))
    assert [run.dtype for run in runs] == [info.dtype] * 2 + ["float16"] * 2 + [info.dtype] * 2
    assert loads == ["auto", "float16", "auto"]
    list(engine.benchmark(plan(cells[1], prompts=PROMPTS[:1], trials=1, max_tokens=3)))
    assert loads[3:] == ["float16", "auto"]
    *_, end = engine.generate(ask("Hello", max_tokens=2))
    assert end.statistics.generated_tokens == 2  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_plan_that_streams_tells_the_text_as_it_is_written() -> None:
    events = list(InterleavedRunner(plan(OFF, streams=True), session_of))
    run = runs_of(events)[0]
    pieces = [event for event in events[: events.index(run)] if isinstance(event, BenchPiece)]
    told = "".join(piece.text for piece in pieces if piece.cell == run.cell)
    assert told
    assert "".join(run.pieces).startswith(told)
    assert not any(isinstance(event, BenchPiece) for event in InterleavedRunner(plan(OFF), session_of))
