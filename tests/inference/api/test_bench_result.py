"""Figures of known runs."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given, strategies as some

from rdchat.inference.api import (
    FIGURES,
    MLX_LM,
    BenchCell,
    BenchPlan,
    BenchResult,
    BenchRun,
    CellReport,
    Difference,
    DraftSettings,
    Figure,
    Mode,
    Statistics,
    Sweep,
)
from tests.inference.benchmark.results import LOOKUP, OFF, beam, plan, run

BASE = 0  # indices where one baseline stands before the cells
FIRST = 1
SECOND = 2


def summarise(of: BenchPlan, runs: list[BenchRun]) -> tuple[CellReport, ...]:
    return BenchResult(of, tuple(runs), {}).reports


def test_a_ratio_is_taken_within_a_prompt_and_trial_and_the_median_over_all() -> None:
    asked = plan(LOOKUP, groups=("", ""), trials=2)
    speeds = {
        (0, 0): (10, 20),
        (0, 1): (40, 60),
        (1, 0): (10, 11),
        (1, 1): (100, 130),
    }  # plain, lookup: the machine drifts
    runs = []
    for (prompt, trial), (plain, lookup) in speeds.items():
        runs += [
            run(asked, BASE, plain, prompt=prompt, trial=trial),
            run(asked, FIRST, lookup, prompt=prompt, trial=trial),
        ]
    (report,) = summarise(asked, runs)
    ratio = report.figures["ratio_to_plain"]
    assert ratio is not None
    assert (ratio.median, ratio.n) == (pytest.approx((1.3 + 1.5) / 2), 4)
    assert (ratio.low, ratio.high) == (pytest.approx(1.25), pytest.approx(1.625))


def test_tokens_per_step_of_a_group_are_sums_over_sums() -> None:
    asked = plan(OFF, LOOKUP, groups=("qa", "rag", "rag"))
    plain = [run(asked, BASE, 10, prompt=prompt) for prompt in range(3)]
    few = BenchRun(2, 2, "rag", 0, (1, 2), (), (), Statistics(generated_tokens=11, target_calls=10))
    drafted = [run(asked, SECOND, 15, prompt=0), run(asked, SECOND, 15, prompt=1), few]
    off, lookup = summarise(asked, [*plain, *(replace(each, cell=FIRST) for each in plain), *drafted])
    assert off.pooled == {"qa": 1, "rag": 1, "all": 1}
    assert lookup.pooled == pytest.approx({"qa": 2, "rag": 110 / 60, "all": 210 / 110})


def test_what_speed_ups_compare_with_is_listed_once() -> None:
    asked = plan(LOOKUP)
    result = BenchResult(asked, (run(asked, BASE, 10), run(asked, FIRST, 15)), {})
    (off,) = result.baseline_reports
    speed = off.figures["decode_tps"]
    ratio = off.figures["ratio_to_plain"]
    assert off.name == "Off"
    assert speed is not None
    assert ratio is not None
    assert (speed.median, ratio.median) == (pytest.approx(10), 1)
    both = plan(OFF, LOOKUP)
    assert BenchResult(both, (run(both, BASE, 10), run(both, FIRST, 10)), {}).baseline_reports == ()


def test_every_figure_is_what_its_counters_say() -> None:
    asked = plan(OFF, LOOKUP)
    runs = [
        run(asked, BASE, 10),
        run(asked, FIRST, 11),
        run(asked, SECOND, 15, overhead=1.04, draft_ms=3.5),
        run(asked, MLX_LM, 12),
    ]
    off, lookup = summarise(asked, runs)
    assert {name: figure and figure.median for name, figure in lookup.figures.items()} == pytest.approx(
        {
            "decode_tps": 15,
            "ratio_to_plain": 1.5,
            "ratio_to_mlx_lm": 1.25,
            "tokens_per_target_call": 2,
            "acceptance_rate": 0.625,
            "nodes_per_target_call": 4,
            "draft_ms": 3.5,
            "host_syncs_per_round": 1.5,
            "overhead": 1.04,
        }
    )
    assert tuple(lookup.figures) == tuple(FIGURES)
    assert off.figures["ratio_to_plain"] == Figure(pytest.approx(1.1), pytest.approx(1.1), pytest.approx(1.1), 1)
    assert [off.figures[name] for name in ("acceptance_rate", "host_syncs_per_round", "overhead")] == [None] * 3


def test_drafters_are_told_apart_by_as_much_of_their_folders_as_it_takes() -> None:
    cells = [
        BenchCell(DraftSettings(Mode.DRAFTER, drafter=name)) for name in ("/a/small", "/b/small", "/b/large", None)
    ]
    asked = plan(LOOKUP, *cells, BenchCell(DraftSettings(Mode.AUTO, drafter="/b/large")))
    names = [report.name for report in summarise(asked, [])]
    ends = [name.rpartition(", ")[2] for name in names]
    assert ends == ["3 tokens", "a/small", "b/small", "large", "its own", "large"]
    assert [mode.get("drafter", "") for mode in BenchResult(asked, (), {}).as_json()["modes"]][1:3] == [
        "/a/small",
        "/b/small",
    ]


def test_groups_are_told_apart() -> None:
    asked = plan(LOOKUP, groups=("qa", "rag"))
    runs = [run(asked, BASE, 10, prompt=n) for n in (0, 1)]
    runs += [run(asked, FIRST, 20, prompt=0), run(asked, FIRST, 5, prompt=1)]
    (report,) = summarise(asked, runs)
    ratios = {name: figures["ratio_to_plain"] for name, figures in report.groups.items()}
    assert {name: figure and figure.median for name, figure in ratios.items()} == {"qa": 2.0, "rag": 0.5}


def test_a_mode_that_did_not_run_has_a_reason_and_no_figures() -> None:
    asked = plan(LOOKUP)
    runs = [run(asked, BASE, 10), run(asked, FIRST, 10, mode_reason="It cannot.")]
    (report,) = summarise(asked, runs)
    assert report.mode_reason == "It cannot."
    assert report.identical_text is None, "nobody can tell"
    assert set(report.figures.values()) == {None}


def test_what_the_automatic_mode_chose_is_counted() -> None:
    asked = plan(BenchCell(DraftSettings(Mode.AUTO)), trials=3)
    choices = ("off", "recurrent W4 L5", "off")
    runs = [run(asked, FIRST, 10, trial=trial, chosen=chosen) for trial, chosen in enumerate(choices)]
    (mode,) = BenchResult(asked, tuple(runs), {}).as_json()["modes"]
    assert mode["chosen"] == {"off": 2, "recurrent W4 L5": 1}


def test_json_holds_every_cell_with_its_settings_and_the_first_difference() -> None:
    asked = plan(OFF, beam(2, 3), beam(4, 3))
    difference = Difference(0, 3, "a", "b", 1e-6)
    runs = [run(asked, BASE, 10), run(asked, 1, 10), run(asked, 2, 20, difference=difference), run(asked, 3, 30)]
    report = json.loads(json.dumps(BenchResult(asked, tuple(runs), {"rdchat": "1"}, complete=False).as_json()))
    assert (report["environment"], report["complete"]) == ({"rdchat": "1"}, False)
    assert [mode["mode"] for mode in report["modes"]] == ["off", "drafter", "drafter"]
    _, narrow, wide = report["modes"]
    assert (narrow["beam_width"], wide["beam_width"]) == (2, 4)
    assert (narrow["identical_text"], wide["identical_text"]) == (False, True)
    assert narrow["first_difference"] == asdict(difference)
    assert wide["first_difference"] is None
    assert wide["ratio_to_plain"] == {"median": 3, "low": 3, "high": 3, "n": 1}
    assert wide["overhead"] is None


@pytest.mark.parametrize(
    ("gaps", "worst"),
    [
        ((1e-5, 2.5, 1e-6, 0.3), 2.5),
        ((1e-5, 2e-5), 2e-5),
        ((1e-5, None, 1e-6), None),  # one reply had ended
        ((None, 0.3), 0.3),
    ],
)
def test_a_near_tie_does_not_hide_a_difference_that_comes_later(
    gaps: tuple[float | None, ...], worst: float | None
) -> None:
    asked = plan(LOOKUP, trials=1 + len(gaps))
    runs = [run(asked, FIRST, 10, trial=0, dtype="float32")] + [
        run(asked, FIRST, 10, trial=1 + n, difference=Difference(0, n, "a", "b", gap), dtype="float32")
        for n, gap in enumerate(gaps)
    ]
    (report,) = summarise(asked, runs)
    assert report.first_difference is not None
    assert (report.first_difference.gap, report.first_difference.index) == (worst, gaps.index(worst))
    assert report.identical_text is False


def test_names_say_where_lookup_is_off() -> None:
    cell = beam(2, 3)
    alone = replace(cell, draft=replace(cell.draft, lookup_branch=False))
    names = [report.name for report in summarise(plan(alone, cell), [])]
    assert names == ["Drafter, 2 beams of 3 tokens, without lookup", "Drafter, 2 beams of 3 tokens"]


@given(
    some.lists(some.sampled_from(Mode), min_size=1),
    some.lists(some.sampled_from([0.0, 0.7]), min_size=1),
    some.lists(some.integers(1, 3), min_size=1),
)
def test_a_sweep_has_each_cell_once(modes: list[Mode], temperatures: list[float], tokens: list[int]) -> None:
    """`--modes lookup,prompt-lookup` measured one mode twice, on two equal lines."""
    cells = Sweep(tuple(modes), temperatures=tuple(temperatures), draft_tokens=tuple(tokens)).cells()
    named = [tuple(dict.fromkeys(values)) for values in (modes, temperatures, tokens)]
    assert cells == Sweep(named[0], temperatures=named[1], draft_tokens=named[2]).cells()
    assert len(cells) == len({*cells})
