"""The engine on a device whose rounding depends on the number of rows: only near-ties differ."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rdchat.inference.api import BenchCell, BenchPlan, BenchResult, BenchRun, DraftSettings, Mode, Prompt
from rdchat.inference.benchmark.runner import InterleavedRunner
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.hooks import ModelHooks
from tests.grids import share
from tests.inference.fakes import lenient, shared_family, shared_llama
from tests.inference.near_ties import CASES, near_ties
from tests.inference.rounding import coarse_rounding_by_rows, rounding_by_rows


@pytest.fixture(autouse=True)
def rounding() -> Iterator[None]:
    """Every product rounds by its number of rows, in its own precision."""
    with rounding_by_rows():
        yield


@pytest.mark.parametrize(("family", "dtype", "mode", "temperature"), share(CASES, 18))
def test_drafted_replies_leave_plain_decoding_at_near_ties_alone(
    family: str, dtype: str, mode: Mode, temperature: float
) -> None:
    found = near_ties(shared_family(family, dtype), mode, temperature)
    assert not found.others(dtype), str(found)


@pytest.mark.slow
def test_near_ties_are_found() -> None:
    with coarse_rounding_by_rows():
        counts = [near_ties(shared_llama(), Mode.DRAFTER, 0.7, 40, seed) for seed in range(6)]
    found = [difference for count in counts for difference in count.found]
    assert found
    assert all(difference.near_tie("bfloat16") for difference in found), [str(count) for count in counts]


@pytest.mark.slow
def test_a_mistake_is_no_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were trees verified at wrong positions, what came of it must not pass for rounding."""
    model = shared_llama()
    packed = ModelHooks.packed
    assert model.capability.reason == ""
    monkeypatch.setattr(
        ModelHooks, "packed", lambda self, depths: packed(self, depths if depths is None else 2 * depths)
    )
    with coarse_rounding_by_rows():
        counts = [near_ties(model, Mode.SPECULATIVE, 0.0, 40, seed) for seed in range(2)]
    assert any(count.others("bfloat16") for count in counts), [str(count) for count in counts]


@pytest.mark.slow
def test_a_benchmark_and_a_race_call_near_ties_so_and_blame_nobody() -> None:
    model = lenient(shared_llama())
    model = replace(model, info=replace(model.info, dtype="bfloat16"))
    cells = tuple(BenchCell(DraftSettings(mode)) for mode in (Mode.OFF, Mode.LOOKUP))
    plan = BenchPlan(cells, (Prompt("abc abc abc"),), max_tokens=40, trials=1, mlx_lm=False, overhead=False)
    with coarse_rounding_by_rows():
        session = ChatSession(model)
        runs = [event for event in InterleavedRunner(plan, lambda _: session) if isinstance(event, BenchRun)]
    assert [run.difference for run in runs if run.cell == 1] == [None], "plain decoding again"
    parted = [run for run in runs if run.difference is not None]
    assert parted, "rounding by rows lets some replies part"
    for run in parted:
        assert run.difference.near_tie(run.dtype)
    assert [report.identical_text for report in BenchResult(plan, tuple(runs), {}).reports] == [True, False]
