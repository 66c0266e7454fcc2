"""Benchmarks as CSV, there and back."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.errors import RdchatError
from rdchat.inference.api.benchmark import BenchRun, Difference
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Dtype
from rdchat.inference.benchmark.csv_file import COLUMNS, PLAIN_COLUMNS, RECURRENT_COLUMNS, read_csv
from rdchat.inference.benchmark.result import BenchResult
from tests.inference.benchmark.csv_samples import result, written
from tests.inference.benchmark.runs import LOOKUP, beam, plan, run


def test_what_is_read_back_comes_to_the_same_figures(tmp_path: Path) -> None:
    before = result()
    after = read_csv(written(tmp_path / "runs.csv", before))
    reports = [each.as_json() for each in (before, after)]
    for report in reports:
        report["settings"] = None  # the texts and the number of prompts that were not reached are not in the file
    assert reports[0] == reports[1]
    assert [one.token_ids for one in after.runs] == [one.token_ids for one in before.runs]
    assert after.plan.cells[1].draft == before.plan.cells[1].draft


def test_texts_that_a_spreadsheet_would_take_for_formulas_are_guarded_and_come_back_whole(tmp_path: Path) -> None:
    texts = ["=1+1", "+x", "-", "@SUM(A1)", "\tx", "\rx", "'", "'=x", "a,b", 'a"b', "a\nb", "a\r\nb", ""]
    asked = plan(*[LOOKUP] * len(texts), groups=("=group", "-"))
    runs = [
        run(asked, 1 + cell, 9, difference=Difference(0, 1, text, text[::-1], None), chosen=text)
        for cell, text in enumerate(texts)
    ] + [run(asked, 0, 10, prompt=1, mode_reason="@once")]
    path = written(tmp_path / "runs.csv", BenchResult(asked, tuple(runs), {"model": "=m", "cores": 2}))
    with path.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    found = read_csv(path)
    assert [(one.difference, one.chosen, one.group) for one in found.runs] == [
        (one.difference, one.chosen, one.group) for one in runs
    ]
    assert (found.runs[-1].mode_reason, found.environment["model"]) == ("@once", "=m")


def test_a_mode_that_could_not_run_has_no_figures(tmp_path: Path) -> None:
    """Zeros in Apple's columns would go into Apple's averages."""
    asked = plan(LOOKUP)
    missing = BenchRun(1, 0, "", 0, (), (), (), Statistics(), "It cannot.", dtype="float32")
    path = written(tmp_path / "runs.csv", BenchResult(asked, (run(asked, 0, 10), missing), {"cores": 2}))
    with path.open(newline="") as file:
        plain, row = csv.DictReader(file)
    names = ("steps", "prompt_length", "prompt_and_generated_length", "comprehension_and_generation_time", "decode_ms")
    assert [row[name] for name in names] == [""] * 5
    assert all(plain[name] for name in names)
    found = read_csv(path)
    assert found.runs[1] == missing
    assert [report.mode_reason for report in found.reports] == ["It cannot."]


def test_plain_decoding_of_a_precision_that_was_not_compared_is_left_out(tmp_path: Path) -> None:
    """A benchmark that was stopped between two settings could be exported, but not opened."""
    asked = plan(beam(2, 3, Dtype.FLOAT32), beam(2, 3, Dtype.FLOAT16))
    compared = (run(asked, 0, 10, dtype="float32"), run(asked, 2, 20, dtype="float32"))
    alone = replace(run(asked, 1, 10, baseline=1, dtype="float16"), prompt=1, trial=1)
    found = read_csv(written(tmp_path / "runs.csv", BenchResult(asked, (*compared, alone), {"cores": 2})))
    assert [one.dtype for one in found.runs] == ["float32", "float32"]
    assert [report.cell.dtype for report in found.reports] == [Dtype.FLOAT32]
    assert (len(found.plan.prompts), found.plan.trials) == (1, 1), "its prompt and trial do not count"


def test_a_reply_as_long_as_a_context_can_be_read_back(tmp_path: Path) -> None:
    asked = plan(LOOKUP)
    times = tuple(float(10_000 + n) for n in range(20_000))
    long = replace(run(asked, 1, 10), times_ms=times)
    path = written(tmp_path / "runs.csv", BenchResult(asked, (run(asked, 0, 10), long), {"cores": 2}))
    assert read_csv(path).runs[1].times_ms == times


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", result())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_csv(path).runs) == len(result().runs)


def test_apples_columns_mean_what_theirs_do(tmp_path: Path) -> None:
    with written(tmp_path / "runs.csv", result()).open(newline="") as file:
        rows = list(csv.DictReader(file))
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no runs"),
        ("a,b\n1,2\n", "is not a benchmark: line 1 has other columns"),
        ("some text\nand, well, more\n", "is not a benchmark: line 1 has other columns"),
        ("part,mode\ncell,off\n", "is not a benchmark: line 1 has other columns"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(text)
    with pytest.raises(RdchatError) as found:
        read_csv(path)
    assert words.format(path=path) in found.value.message


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("mode", "magic", "mode is 'magic'"),
        ("part", "whole", "part is 'whole'"),
        ("token_ids", "1 b", "token_ids is '1 b'"),
        ("token_ids", "1 nan", "token_ids is '1 nan'"),
        ("token_ids", "1 -2", "token_ids is '1 -2'"),
        ("rounds", "-1", "rounds is '-1'"),
        ("decode_ms", "inf", "decode_ms is 'inf'"),
        ("run", "x", "run is 'x'"),
        ("run", "9" * 5000, "run is '9999"),
        ("asked_dtype", "float12", "asked_dtype is 'float12'"),
        ("overhead", "nan", "overhead is 'nan'"),
        ("temperature", "11", "temperature is '11'"),
        ("prompt", "999999999999", "prompt is 999999999999, and the file has 20 lines"),
    ],
)
def test_a_broken_line_of_ours_is_named(column: str, value: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", result())
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[1][column] = value
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(RdchatError, match="Line 3 of") as found:
        read_csv(path)
    assert words in found.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", result())
    with pytest.raises(RdchatError, match="cannot be read: No such file"):
        read_csv(tmp_path / "none.csv")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(RdchatError, match="not UTF-8"):
        read_csv(path)


@pytest.mark.parametrize(
    "column", ["temperature", "draft_tokens", "lookup_branch", "rounds", "decode_ms", "seed", "cell", "mode"]
)
def test_an_empty_cell_that_needs_a_value_is_refused(column: str, tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", result())
    with path.open(newline="") as file:
        first, *rows = csv.reader(file)
    rows[0][first.index(column)] = ""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([first, *rows])
    with pytest.raises(RdchatError, match=f"Line 2 of .*{column} is ''"):
        read_csv(path)
