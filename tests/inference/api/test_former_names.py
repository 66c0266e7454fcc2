"""The mode `drafter` was called `recurrent` in version 0.1; what it wrote, and people typed, is still read."""

import csv
import json
from pathlib import Path

import pytest

from rdchat.chat.settings import Settings
from rdchat.cli import main
from rdchat.files.plain_data import from_plain
from rdchat.inference.api.requests import Mode
from rdchat.inference.benchmark.csv_file import read_csv
from tests.inference.benchmark.csv_samples import result, written


def test_a_mode_is_read_by_its_former_name_and_written_by_its_own() -> None:
    assert Mode("recurrent") is Mode("drafter") is Mode.DRAFTER
    assert (Mode.DRAFTER.value, Mode.DRAFTER.words) == ("drafter", "Drafter head")
    assert "recurrent" not in [mode.value for mode in Mode]
    with pytest.raises(ValueError, match="repeating"):
        Mode("repeating")


def test_settings_by_the_former_name() -> None:
    stored = {"drafts": [{"model": "a", "draft": {"mode": "recurrent", "beam_width": 2}}]}
    settings, wrong = from_plain(Settings(), stored)
    assert (settings.drafts[0].draft.mode, settings.drafts[0].draft.beam_width, wrong) == (Mode.DRAFTER, 2, [])


def test_a_benchmark_by_the_former_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "runs.csv", result())
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    former = [row | {"mode": row["mode"].replace("drafter", "recurrent")} for row in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(former)
    assert former != rows
    assert read_csv([path]).plan.cells == result().plan.cells
    assert main(["bench", "--json", "--from", str(path)]) == 0
    assert [mode["mode"] for mode in json.loads(capsys.readouterr().out)["modes"]] == ["off", "drafter", "lookup"]


@pytest.mark.parametrize("arguments", [("ask", "hi", "--mode"), ("bench", "--modes")])
def test_the_command_line_takes_the_former_name(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on to look for the model; a name that is no mode is refused before."""
    model = "--model", str(tmp_path / "none")
    assert main([*arguments, "recurrent", *model]) == 1
    assert f"There is no model at {tmp_path / 'none'}" in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        main([*arguments, "repeating", *model])
    assert refused.value.code == 2
    assert "drafter" in capsys.readouterr().err
