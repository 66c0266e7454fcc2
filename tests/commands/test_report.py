"""`rdchat report` writes one file without anybody's names, paths or texts."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication

from rdchat import cli, host, machine
from tests.commands.running import Console
from tests.services.conftest import AwakeLog


@pytest.mark.slow
def test_a_report_of_models_holds_no_names_and_no_paths(
    qapp: QCoreApplication, small_model: Path, tmp_path: Path, console: Console
) -> None:
    model = shutil.copytree(small_model, tmp_path / "Aunt Mary's model")
    out = tmp_path / "report.zip"
    arguments = ["report", "--out", str(out), "--minutes", "0.1"]
    assert cli.main([*arguments, "--models", str(model), str(tmp_path / "none")]) == 0
    with zipfile.ZipFile(out) as file:
        assert file.namelist() == ["report.json"]
        text = file.read("report.json").decode()
    report = json.loads(text)
    assert report["models"][0]["model"]["architecture"] == "llama"
    assert report["models"][1] == {"failure": "It did not load."}
    assert not any(word in text for word in (str(tmp_path), str(Path.home()), "Mary"))
    printed = console.printed().out
    assert "Left out: model 2: it did not load" in printed
    assert "Model 1: drafts that it verifies: trees; inputs tried: 3; rows of a tree's branches are off by " in printed


def test_the_machine_stays_awake_while_it_is_measured(
    qapp: QCoreApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AwakeLog()
    out = tmp_path / "report.zip"
    monkeypatch.setattr(machine, "keep_awake", log)
    monkeypatch.setattr(machine, "is_hot", lambda: True)
    arguments = ["report", "--out", str(out), "--models", str(tmp_path / "none")]
    assert cli.main(arguments) == 0
    assert (log.entered, log.inside) == (1, 0)
    with zipfile.ZipFile(out) as file:
        facts = json.loads(file.read("report.json"))["machine"]
    assert facts["low_power_mode"] is False or host.MACOS
    assert "on_battery" in facts
    assert facts["hot"] is True
    assert facts["wired_memory"] == ("off" if host.MACOS else None)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path, console: Console) -> None:
    console.refuses(["report", "--out", tmp_path / "none" / "report.zip"], "cannot be written", 1)
