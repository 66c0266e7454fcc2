"""Runs come back from their file as they were stored, without texts."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.errors import StorageError
from rdchat.inference.api.benchmark import Difference
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.reply_statistics import AutoChoice, LedgerEntry, Statistics
from rdchat.inference.benchmark.runs_file import RunsFile
from tests.inference.benchmark.runs import LOOKUP, plan, run

PLAN = plan(LOOKUP, groups=("qa", "rag"))
INFO = ModelInfo("m", Path("m"), "llama", "float32", "CPU", 512, 30, 0, 0, 0.0)


def test_runs_come_back_without_texts(tmp_path: Path) -> None:
    statistics = Statistics(
        generated_tokens=3,
        decode_ms=2.5,
        drafted_lengths=(0, 2),
        choice=AutoChoice("drafter", 4, 5, 2.0, 1.5, "It pays."),
        ledger=(LedgerEntry("draft", "round", 2, 1.5),),
        speeds=(20.0,),
    )
    stored = replace(
        run(PLAN, 1, 10, difference=Difference(0, 1, "a", "b", None), chosen="drafter W4 L5", overhead=1.1),
        times_ms=(1.0, 2.5),
        statistics=statistics,
    )
    with closing(RunsFile(tmp_path / "runs", PLAN, INFO)) as file:
        file.add(replace(stored, pieces=("some ", "text")))
        file.add(replace(stored, token_ids=(), mode_reason="It cannot run."))
        file.end_turn()
        file.add(replace(stored, prompt=1))  # of a turn that does not end
    assert "some " not in (tmp_path / "runs").read_text()
    with closing(RunsFile(tmp_path / "runs", PLAN, INFO)) as file:
        assert file.runs == [stored]


def test_a_line_cut_by_a_crash_is_measured_again(tmp_path: Path) -> None:
    for prompt in (0, 1):
        with closing(RunsFile(tmp_path / "runs", PLAN, INFO)) as file:
            file.add(run(PLAN, 1, 10, prompt=prompt))
            file.end_turn()
    whole = (tmp_path / "runs").read_bytes()
    (tmp_path / "runs").write_bytes(whole[:-20])
    with closing(RunsFile(tmp_path / "runs", PLAN, INFO)) as file:
        assert [stored.prompt for stored in file.runs] == [0]


def test_a_device_or_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(StorageError, match="it is not a file"):
            RunsFile(path, PLAN, INFO)
