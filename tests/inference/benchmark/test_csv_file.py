"""Benchmarks as CSV: what is written, for spreadsheets and for Apple's analysis."""

import csv
from pathlib import Path

import pytest

from rdchat.inference.api import BenchRun, Difference, Statistics
from rdchat.inference.benchmark.csv_file import COLUMNS, PLAIN_COLUMNS, RECURRENT_COLUMNS, write_csv
from rdchat.inference.benchmark.result import BenchResult
from tests.inference.benchmark.results import result
from tests.inference.benchmark.runs import LOOKUP, plan, run


def rows_of(folder: Path, of: BenchResult) -> list[dict[str, str]]:
    """Write a result; return its rows."""
    with (folder / "runs.csv").open("w", newline="") as file:
        write_csv(file, of)
    with (folder / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_has_what_a_run_was_and_what_it_wrote(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, result())
    assert [(row["part"], row["cell"], row["mode"]) for row in rows[:5]] == [
        ("baseline", "0", "off"), ("cell", "0", "off"), ("cell", "1", "drafter"), ("cell", "2", "lookup"),
        ("mlx_lm", "0", "off"),
    ]  # fmt: skip
    assert [(row["prompt"], row["group"], row["run"]) for row in rows[::5]] == [
        ("0", "qa", "0"), ("0", "qa", "1"), ("1", "rag", "0"), ("1", "rag", "1"),
    ]  # fmt: skip
    names = ("rounds", "drafted", "accepted", "verified_nodes", "host_syncs", "overhead", "token_ids", "times_ms")
    assert [rows[2][name] for name in names] == ["50", "80", "50", "200", "75", "1.1", "1 2", "1.000 2.500"]
    difference = ("difference_index", "difference_plain", "difference_other", "difference_gap", "difference_rounding")
    assert [rows[2][name] for name in difference] == ["1", "a", '"b,\n', "0.5", ""]
    settings = {"temperature": "0.0", "asked_dtype": "auto", "seed": "0", "model": "m", "mlx_lm": "3", "cores": "2"}
    assert all(row | settings == row for row in rows)


def test_texts_that_a_spreadsheet_would_take_for_formulas_are_guarded(tmp_path: Path) -> None:
    texts = ["=1+1", "+x", "-", "@SUM(A1)", "\tx", "\rx", "'", "'=x", "a,b", 'a"b', "a\nb", "a\r\nb", ""]
    asked = plan(*[LOOKUP] * len(texts), groups=("=group", "-"))
    runs = [
        run(asked, 1 + cell, 9, difference=Difference(0, 1, text, text[::-1], None), chosen=text)
        for cell, text in enumerate(texts)
    ] + [run(asked, 0, 10, prompt=1, mode_reason="@once")]
    rows = rows_of(tmp_path, BenchResult(asked, tuple(runs), {"model": "=m", "cores": 2}))
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    guarded = [f"'{text}" for text in texts[:8]] + texts[8:]
    assert [(row["difference_plain"], row["chosen"]) for row in rows[:-1]] == [(text, text) for text in guarded]
    assert [rows[-1][name] for name in ("mode_reason", "group", "model")] == ["'@once", "'-", "'=m"]


def test_a_mode_that_could_not_run_has_no_figures(tmp_path: Path) -> None:
    """Zeros in Apple's columns would go into Apple's averages."""
    asked = plan(LOOKUP)
    missing = BenchRun(1, 0, "", 0, (), (), (), Statistics(), "It cannot.", dtype="float32")
    plain, row = rows_of(tmp_path, BenchResult(asked, (run(asked, 0, 10), missing), {"cores": 2}))
    names = ("steps", "prompt_length", "prompt_and_generated_length", "comprehension_and_generation_time", "decode_ms")
    assert [row[name] for name in names] == [""] * 5
    assert all(plain[name] for name in names)
    assert row["mode_reason"] == "It cannot."


def test_apples_columns_mean_what_theirs_do(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, result())
    assert set(RECURRENT_COLUMNS) | set(PLAIN_COLUMNS) <= set(COLUMNS) == set(rows[0])
    drafted = rows[2]
    assert {name: drafted[name] for name in RECURRENT_COLUMNS[:9]} == {
        "run": "0", "beam_width": "2", "beam_length": "3", "dtype": "mlx.core.float32", "nmax_length": "128",
        "greedy": "True", "steps": "50", "prompt_length": "7", "prompt_and_generated_length": "108",
    }  # fmt: skip
    assert float(drafted["comprehension_and_generation_time"]) == pytest.approx(20 + 5000)
    assert float(drafted["generation_ours"]) == pytest.approx(10_000)  # plain decoding of the same turn
    assert float(drafted["generation_mlx"]) == pytest.approx(100_000 / 9)
    assert (rows[0]["beam_width"], rows[0]["beam_length"]) == ("1", "1")
    assert (rows[3]["beam_width"], rows[3]["beam_length"]) == ("1", "4")
