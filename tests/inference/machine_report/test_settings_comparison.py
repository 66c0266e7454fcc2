"""Settings of MLX are compared in child processes, and only a GPU's figures say which is better."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat.commands.report_page import report_page
from rdchat.errors import ModelError
from rdchat.inference.machine_report import settings_comparison
from rdchat.inference.machine_report.settings_comparison import BUFFERS, SettingsComparison, compared, words_of
from rdchat.work.child_process import ChildProcess

OWN, SOME, MANY = (words_of(buffers) for buffers in BUFFERS)
QUESTION = "Why is the sky blue?"


def answer(off: float, drafted: float, memory_bytes: int = 1000, used: bool = True) -> dict[str, Any]:
    speeds = {"off": off, "drafter": drafted}
    return {"used": used, "decode_tps": speeds, "read_tps": 500.0, "peak_memory_bytes": memory_bytes}


FASTER = [answer(50, 80), answer(53, 84), answer(54, 88)]


def test_the_setting_that_is_faster_in_each_turn_and_mode_is_better() -> None:
    found = compared([FASTER, FASTER], gpu=True)
    assert (found["better"], found["turns"]) == (MANY, 2)
    assert found["verdict"] == f"Better than what MLX chooses: {MANY}."
    own, _, many = found["settings"]
    assert set(own["ratios"]) == {1.0}
    assert many["ratios"] == pytest.approx([1.08, 1.1] * 2)
    assert many["decode_tps"] == {"off": 54, "drafter": 88}


@pytest.mark.parametrize(
    "turn",
    [
        [answer(50, 80), answer(50.5, 80.5), answer(51, 81)],  # within what two equal runs differ by
        [answer(50, 80), answer(60, 79), answer(60, 79)],  # slower in a mode
        [answer(50, 80), answer(60, 90, 1200), answer(60, 90, 1200)],  # more memory
        [answer(50, 80), answer(40, 70), answer(40, 70)],
    ],
)
def test_otherwise_none_is_better(turn: list[dict[str, Any]]) -> None:
    found = compared([turn, turn], gpu=True)
    assert (found["better"], found["verdict"]) == (None, "None is better than what MLX chooses.")


def test_on_a_cpu_the_figures_claim_nothing() -> None:
    for turns in ([FASTER], []):
        found = compared(turns, gpu=False)
        assert found["better"] is None
        assert "does not apply here" in found["verdict"]
        page = report_page(
            {"machine": {}, "models": [model_with(found, [])], "left_out": []},
        )
        assert "does not apply here" in page


def test_limits_of_the_persons_own_are_not_compared() -> None:
    turn = [answer(50, 80), answer(60, 90, used=False), answer(60, 90, used=False)]
    assert compared([turn], gpu=True)["verdict"].startswith("Not compared")


def model_with(buffers: dict[str, Any], window: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": {"architecture": "llama", "dtype": "4bit", "parameters": 1},
        "capability": {"verifies": "tree", "reason": "", "errors": {}},
        "command_buffers": buffers,
        "window_speed": window,
    }


def test_the_page_compares_a_window_with_the_command_line() -> None:
    window = [{"with": "the usual threads", "decode_tps": 45.0}]
    page = report_page({"machine": {}, "models": [model_with(compared([FASTER], True), window)], "left_out": []})
    assert "<td>the usual threads</td><td>45.00</td><td>0.90</td>" in page
    assert f"<td>{OWN}</td>" in page
    page = report_page({"machine": {}, "models": [model_with({}, window)], "left_out": []})
    assert "<td>the usual threads</td><td>45.00</td><td>&ndash;</td>" in page


class Child:
    """Answers in the place of a child process, as `answers` says for its setting."""

    answers: Callable[[Any], dict[str, Any]]
    asked: list[Any]
    closed: int

    def __init__(self, name: str) -> None:
        assert name == "speed"

    def submit(self, do: str, arguments: dict[str, Any]) -> "Child":
        assert (do, arguments["question"], arguments["tokens"]) == ("measure", QUESTION, 8)
        self._buffers = arguments["buffers"]
        return self

    def result(self, waiting: Callable[[], object]) -> dict[str, Any]:
        waiting()
        Child.asked.append(self._buffers)
        return Child.answers(self._buffers)

    def close(self) -> None:
        Child.closed += 1


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> type[Child]:
    Child.answers, Child.asked, Child.closed = lambda _: answer(50, 80), [], 0
    monkeypatch.setattr(settings_comparison, "ChildProcess", Child)
    monkeypatch.setattr(settings_comparison, "on_gpu", lambda: True)
    return Child


def test_each_setting_has_a_child_of_its_own_and_the_turns_alternate(child: type[Child]) -> None:
    comparison = SettingsComparison(None, QUESTION, 8, 60, lambda: False)
    steps = list(comparison)
    assert child.asked == [*BUFFERS, *reversed(BUFFERS)]
    assert child.closed == len(child.asked) == len(steps)
    assert (comparison.found["turns"], comparison.left_out) == (2, "")


def test_without_time_it_says_so(child: type[Child]) -> None:
    comparison = SettingsComparison(None, QUESTION, 8, 0, lambda: False)
    list(comparison)
    assert (child.asked, comparison.found) == ([], {})
    assert comparison.left_out == "2 of 2 turns of command buffers: no time left"


def test_a_report_that_is_stopped_keeps_the_whole_turns(child: type[Child]) -> None:
    comparison = SettingsComparison(None, QUESTION, 8, 60, lambda: len(child.asked) > len(BUFFERS))
    list(comparison)
    assert comparison.found["turns"] == 1
    assert comparison.left_out == "1 of 2 turns of command buffers: no time left"


def test_a_failure_is_told_without_its_words(child: type[Child]) -> None:
    def fail(buffers: Any) -> dict[str, Any]:
        raise ModelError("There is no model of Mary.")

    child.answers = fail
    comparison = SettingsComparison(None, QUESTION, 8, 60, lambda: False)
    list(comparison)
    assert comparison.left_out == "command buffers: the measurement failed"
    assert comparison.found == {}


@pytest.mark.slow
@pytest.mark.parametrize("own", ["", "10"], ids=["unset", "set"])
def test_a_child_measures_a_model_and_leaves_the_persons_limits(
    own: str, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLX_MAX_OPS_PER_BUFFER", raising=False)
    monkeypatch.delenv("MLX_MAX_MB_PER_BUFFER", raising=False)
    if own:
        monkeypatch.setenv("MLX_MAX_OPS_PER_BUFFER", own)
    child = ChildProcess("speed")
    arguments = {"model": str(small_model), "question": QUESTION, "tokens": 8, "buffers": [200, 200]}
    found = child.submit("measure", arguments).result()
    child.close()
    assert found["used"] is not bool(own)
    assert set(found["decode_tps"]) == {"off", "lookup"}
    assert found["read_tps"] > 0
    assert found["peak_memory_bytes"] > 0
