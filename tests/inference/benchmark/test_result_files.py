"""Runs come back from their file as they were stored, without texts, and a file can be shown later."""

import csv
import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import (
    AutoChoice,
    BenchResult,
    BenchRun,
    Difference,
    DraftSettings,
    Dtype,
    LedgerEntry,
    Mode,
    Prompt,
    Statistics,
)
from rdchat.inference.benchmark.result_files import (
    COLUMNS,
    PLAIN_COLUMNS,
    RECURRENT_COLUMNS,
    RunsFile,
    environment,
    read_runs,
    write_csv,
)
from tests.inference.benchmark.results import INFO, LOOKUP, beam, plan, result, run, stored

PLAN = plan(LOOKUP, groups=("qa", "rag"))
HINT = "Choose a file that `rdchat bench --results` has written."


def runs_file(folder: Path) -> closing[RunsFile]:
    return closing(RunsFile(folder / "runs", PLAN, INFO))


def test_runs_come_back_without_texts(tmp_path: Path) -> None:
    statistics = Statistics(
        generated_tokens=3,
        decode_ms=2.5,
        drafted_lengths=(0, 2),
        choice=AutoChoice("drafter", 4, 5, 2.0, 1.5, "It pays."),
        ledger=(LedgerEntry("draft", "round", 2, 1.5),),
        speeds=(20.0,),
    )
    drafted = replace(
        run(PLAN, 1, 10, difference=Difference(0, 1, "a", "b", None), chosen="drafter W4 L5", overhead=1.1),
        times_ms=(1.0, 2.5),
        statistics=statistics,
    )
    with runs_file(tmp_path) as file:
        file.add_run(replace(drafted, pieces=("some ", "text")))
        file.add_run(replace(drafted, token_ids=(), mode_reason="It cannot run."))
        file.end_turn()
        file.add_run(replace(drafted, prompt=1))  # of a turn that does not end
    assert "some " not in (tmp_path / "runs").read_text()
    with runs_file(tmp_path) as file:
        assert file.runs == [drafted]


def test_a_line_cut_by_a_crash_is_measured_again(tmp_path: Path) -> None:
    for prompt in (0, 1):
        with runs_file(tmp_path) as file:
            file.add_run(run(PLAN, 1, 10, prompt=prompt))
            file.end_turn()
    whole = (tmp_path / "runs").read_bytes()
    (tmp_path / "runs").write_bytes(whole[:-20])
    with runs_file(tmp_path) as file:
        assert [one.prompt for one in file.runs] == [0]


def test_a_device_or_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(StorageError, match="it is not a file"):
            RunsFile(path, PLAN, INFO)


def test_what_is_read_comes_to_the_same_figures(tmp_path: Path) -> None:
    measured = replace(result(), environment=environment(INFO))
    path = stored(tmp_path / "runs", measured)
    before = path.read_bytes(), path.stat().st_mtime_ns
    read = read_runs(path)
    assert (read.runs, read.plan.cells) == (measured.runs, measured.plan.cells)
    assert read.as_json() == measured.as_json()
    assert read.reports == measured.reports
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_every_setting_of_the_plan_comes_back_but_no_texts(tmp_path: Path) -> None:
    cells = (beam(2, 3, Dtype.FLOAT16, 0.7), replace(LOOKUP, draft=DraftSettings(Mode.AUTO, "d", 2, "heads/é")))
    texts = (Prompt("a secret", "qa"), Prompt("another secret"))
    earlier = ((1, 2), (12345,))
    asked = replace(plan(*cells), prompts=texts, earlier_replies=earlier, seed=2**32 - 1, mlx_lm=False, turn=3)
    path = stored(tmp_path / "runs", BenchResult(asked, (), {}))
    assert not [text for text in ("secret", "12345") if text in path.read_text()]
    without = tuple(Prompt("", prompt.group) for prompt in texts)
    assert read_runs(path).plan == replace(asked, prompts=without, earlier_replies=())


def test_thousands_of_prompts_resume_and_are_read(tmp_path: Path) -> None:
    """The first line has the group of each prompt, so it may be long."""
    asked = plan(LOOKUP, groups=tuple(f"group {number}" for number in range(4000)))
    for prompt in (0, 3999):
        stored(tmp_path / "runs", BenchResult(asked, (run(asked, 0, 10, prompt=prompt),), {}))
    read = read_runs(tmp_path / "runs")
    assert [one.group for one in read.runs] == ["group 0", "group 3999"]
    assert (len(read.plan.prompts), read.complete) == (4000, False)


def test_an_incomplete_last_line_does_not_count(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", result())
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert (len(lines), read_runs(path).complete) == (5, True)
    for end in range(len(lines[0]), len(whole), 499):
        path.write_bytes(whole[:end])
        turns = whole[:end].count(b"\n") - 1
        read = read_runs(path)
        assert (len(read.runs), read.complete) == (turns * 5, False), end
        assert path.read_bytes() == whole[:end]


def changed(path: Path, line: int, **fields: Any) -> None:
    """Change fields of a line; None removes one."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] = {name: value for name, value in (lines[line] | fields).items() if value is not None}
    path.write_text("".join(f"{json.dumps(item)}\n" for item in lines))


def test_a_file_of_before_a_cpus_kernels_were_stored_is_read(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", result())
    changed(path, 0, cpu_kernels=None)
    assert read_runs(path).environment["cpu_kernels"] is None


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (0, {"plan": None}),  # as before plans were stored
        (0, {"plan": []}),
        (0, {"plan": {"cells": [], "prompts": []}}),
        (0, {"mlx": None}),
        (1, {"runs": None}),
        (1, {"runs": 5}),
        (1, {"runs": {"cell": 1}}),
        (1, {"runs": [{"cell": 1}]}),
    ],
)
def test_a_foreign_or_older_file_is_refused(line: int, fields: dict[str, Any], tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", result())
    changed(path, line, **fields)
    check_refused(path, "is not a benchmark, or an older one without its settings.")


def check_refused(path: Path, words: str) -> None:
    """Check that a file is refused in one line that says what to do, and stays as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(RdchatError) as found:
        read_runs(path)
    assert words in found.value.message
    assert found.value.hint == HINT
    assert "\n" not in str(found.value)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"{}\n", b"[]\n", b"null\n", b'"plan"\n', b"run\n0\n", b"\xff\xfe\n", b"[" * 9999 + b"\n"],
)
def test_any_other_content_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(content)
    check_refused(tmp_path / "runs", "is not a benchmark, or an older one without its settings.")


def test_what_is_no_file_is_refused_and_none_is_made(tmp_path: Path) -> None:
    check_refused(tmp_path / "none", "cannot be read: No such file or directory.")
    assert not (tmp_path / "none").exists()
    check_refused(tmp_path, "is a folder, not a file.")
    os.mkfifo(tmp_path / "pipe")
    check_refused(tmp_path / "pipe", "is a named pipe, not a file.")


def test_impossible_counts_of_a_file_are_shown_without_a_figure(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", result())
    runs = json.loads(path.read_text().splitlines()[1])["runs"]
    runs[2]["statistics"] |= {"target_calls": 0, "rounds": 50}
    changed(path, 1, runs=runs)
    figure = read_runs(path).reports[1].figures["host_syncs_per_round"]
    assert figure is not None
    assert figure.n == 3, "of four runs"


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
