"""`rdchat report` always leaves a file, without anybody's names, paths or texts, and names what it lacks."""

import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat import cli, host, machine, paths
from rdchat.commands import report, report_child
from rdchat.work import ChildProcess, Limits
from tests.commands.running import Console
from tests.services.conftest import AwakeLog

CHILD = Path(__file__).with_name("faulty_report_child.py")
PARTS = ["machine", "calls to macOS", "window", "known replies", "images"]
MODELS = ["model 1", "model 2"]


def facts_of(out: Path) -> dict[str, Any]:
    with zipfile.ZipFile(out) as file:
        assert file.namelist() == ["report.json"]
        facts: dict[str, Any] = json.loads(file.read("report.json"))
    return facts


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a report of two models whose parts all have a fault; return what is in the file."""
    out = tmp_path / "report.zip"
    hot = tmp_path / "hot"
    monkeypatch.setattr(machine, "is_hot", hot.exists)

    def report_with(fault: str, status: int = 0) -> dict[str, Any]:
        command = [sys.executable, "-P", str(CHILD), fault, str(hot), str(out)]
        monkeypatch.setattr(host, "child_command", lambda _name: command)
        assert cli.main(["report", "--out", str(out), "--models", "one", "two"]) == status
        return facts_of(out)

    return report_with


def test_the_file_is_written_after_each_part_and_nothing_is_wired(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDCHAT_WIRED", "1")
    facts = run("none")
    for number, part in enumerate([*PARTS, *MODELS]):
        assert {*[*PARTS, *MODELS][:number]} <= {*facts[part]["written"]}
        assert facts[part]["wired"] == "0"
    assert facts["left_out"] == []
    assert (facts["slowed_at_start"], facts["slowed_at_end"]) == ([], [])


@pytest.mark.parametrize(
    ("fault", "noted"),
    [
        pytest.param("kill", "ChildEndedError: This could not be done: the process for it was killed"),
        pytest.param("refusal", "ModelError", marks=pytest.mark.slow),
        pytest.param("device error", "DeviceError", marks=pytest.mark.slow),
        pytest.param("memory", "MemoryError", marks=pytest.mark.slow),
        pytest.param("abort", "ended unexpectedly (status -6)", marks=pytest.mark.slow),
        pytest.param("silence", "ChildLimitError: This took longer than 2 seconds", marks=pytest.mark.slow),
    ],
)
def test_a_fault_of_each_part_is_noted_without_paths(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, console: Console, fault: str, noted: str
) -> None:
    """Nothing was written where the engine failed, or the process was killed."""
    monkeypatch.setattr(report, "_SILENCE_S", 2.0)
    facts = run(fault)
    for part, line in zip([*PARTS, *MODELS], facts["left_out"], strict=True):
        assert line.startswith(f"{part}: ")
        assert noted in line
        assert "written" in facts[part], "what was known before is kept"
    assert f"Left out: {line}" in console.printed().out
    assert "mary" not in json.dumps(facts)


@pytest.mark.parametrize(
    ("fault", "status", "noted"), [("heat", 0, "stopped, because the machine is hot"), ("Ctrl-C", 130, "stopped")]
)
def test_it_stops_in_heat_and_at_ctrl_c(
    run: Callable[..., dict[str, Any]], fault: str, status: int, noted: str
) -> None:
    facts = run(fault, status)
    assert facts["left_out"] == [f"{part}: {noted}" for part in [*PARTS, *MODELS]]
    assert "written" in facts["machine"]
    assert facts["slowed_at_end"] == (["hot"] if fault == "heat" else [])


def test_a_hot_machine_is_told_and_not_measured(
    run: Callable[..., dict[str, Any]], tmp_path: Path, console: Console
) -> None:
    (tmp_path / "hot").touch()
    facts = run("none")
    assert facts["slowed_at_start"] == ["hot"]
    assert len(facts["left_out"]) == len([*PARTS, *MODELS])
    assert "The machine is hot: the report will lack what drafting costs and gains." in console.printed().err


def test_what_a_battery_costs_is_told_before_the_start(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    """The costs were missing, and nothing said so."""
    monkeypatch.setattr(machine, "on_battery", lambda: True)
    monkeypatch.setattr(machine, "low_power_mode", lambda: True)
    facts = run("none")
    assert facts["slowed_at_start"] == facts["slowed_at_end"] == ["on battery", "in Low Power Mode"]
    first = console.printed().err.splitlines()[0]
    assert first == "The machine is on battery: the report will lack what drafting costs and gains."


def test_the_summary_is_for_people() -> None:
    """On a busy machine it had no word of what drafting gains."""
    mode = {"mode": "auto", "temperature": 0.0, "ratio_to_plain": {"median": 2.14}}
    bench = {"modes": [mode, {**mode, "temperature": 0.7}], "hindered_runs": 0}
    facts = {
        "known replies": {"replies": [{"is_right": True}] * 5 + [{"is_right": False}]},
        "calls to macOS": {"calls": {"peer_user": "works", "is_hot": "AttributeError"}},
        "model 1": {"model": {"parameters": 8_030_000_000}, "bench": bench},
        "model 2": {"model": {"parameters": 8_030_000_000}, "bench": {**bench, "hindered_runs": 3}},
        "model 3": {
            "model": {"parameters": 8_030_000_000},
            "bench": {**bench, "modes": [{**mode, "ratio_to_plain": None}]},
        },
        "left_out": ["images: there is no GPU"],
    }
    assert [*report._summary(facts)] == [
        "model 1 (8.03 B): here Auto makes replies 2.1 times as fast.",
        "model 2 (8.03 B): here Auto could not be compared: other programs ran, or time was short.",
        "model 3 (8.03 B): here Auto could not be compared: other programs ran, or time was short.",
        "5 of 6 known replies are computed as elsewhere, up to rounding.",
        "A call to macOS, is_hot: AttributeError.",
        "Left out: images: there is no GPU",
    ]


@pytest.mark.slow
def test_the_window_is_opened_without_the_person_s_chats_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDCHAT_MODEL_WHEEL", "/gone.whl")
    child = ChildProcess("report")
    facts, failure = child.submit("window", {}, Limits(120.0)).result()
    child.close()
    assert (facts.pop("seen_after_s") > 0, facts, failure) == (True, {"status": 0}, "")
    assert not paths.database_path().exists()


def test_no_window_is_opened_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_display", lambda: False)
    facts: dict[str, Any] = {}
    report_child.open_window(facts, lambda _stage: None)
    assert facts == {"left_out": ["there is no display"]}


@pytest.mark.slow
def test_a_report_of_models_holds_no_names_and_no_paths(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    """The default model, which others test, cannot be fetched."""
    monkeypatch.setenv("RDCHAT_MODEL_WHEEL", "/gone.whl")
    model = shutil.copytree(small_model, tmp_path / "Aunt Mary's model")
    out = tmp_path / "report.zip"
    arguments = ["report", "--out", str(out), "--minutes", "0.1"]
    assert cli.main([*arguments, "--models", str(model), str(tmp_path / "none")]) == 0
    facts = facts_of(out)
    text = json.dumps(facts)
    assert facts["model 1"]["model"]["architecture"] == "llama"
    assert facts["machine"]["backend"]
    assert not any(word in text for word in (str(tmp_path), str(Path.home()), "Mary"))
    assert "Left out: model 2: ModelError" in console.printed().out


def test_the_machine_stays_awake_while_it_is_measured(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AwakeLog()
    monkeypatch.setattr(machine, "keep_awake", log)
    run("none")
    assert (log.entered, log.inside) == (1, 0)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path, console: Console) -> None:
    console.refuses(["report", "--out", tmp_path / "none" / "report.zip"], "cannot be written", 1)
