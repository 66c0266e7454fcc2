"""Replies that a window draws are measured through the engine's own thread."""

import sys

import pytest
from PySide6.QtWidgets import QApplication

from rdchat import host
from rdchat.errors import ModelError
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import ChatMessage, Dtype, GenerationRequest, Role
from rdchat.ui.window_speed import measure_window_speed
from tests.services.fakes import ScriptedEngine, ScriptedReply

REQUEST = GenerationRequest((ChatMessage(Role.USER, "Hi"),))
TURNS, WARM_UP = 3, 1
SETTINGS = ["threads switch after 5 ms", "after 1 ms, as in the app"]


def test_each_setting_has_its_turns_and_pythons_own_comes_back(
    qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedReply, "statistics", Statistics(generated_tokens=4, decode_ms=100.0))
    engine, usual, seen = ScriptedEngine(), sys.getswitchinterval(), list[float]()
    generate = engine.generate
    engine.generate = lambda *a: (seen.append(sys.getswitchinterval()), generate(*a))[1]  # type: ignore[method-assign]
    found = measure_window_speed(qapp, lambda: engine, "a model", REQUEST, lambda: False)
    assert [one["with"] for one in found][:2] == SETTINGS
    assert {one["decode_tps"] for one in found} == {30.0}
    each = [round(seconds, 6) for seconds in seen[WARM_UP : WARM_UP + 2 * TURNS]]
    assert sorted(each) == [0.001] * TURNS + [0.005] * TURNS
    assert each[0] != each[2], "the order alternates"
    assert sys.getswitchinterval() == usual
    assert set(engine.loads) == {("a model", Dtype.AUTO)}
    assert engine.closings == len(engine.loads) == (2 if host.MACOS else 1)


def test_without_time_nothing_is_loaded(qapp: QApplication) -> None:
    engine = ScriptedEngine()
    assert measure_window_speed(qapp, lambda: engine, None, REQUEST, lambda: True) == []
    assert engine.loads == []


def test_a_model_that_does_not_load_has_no_figures(qapp: QApplication) -> None:
    engine = ScriptedEngine(load_errors={None: ModelError("There is no such model.")})
    assert measure_window_speed(qapp, lambda: engine, None, REQUEST, lambda: False) == []


def test_the_time_may_run_out_within_a_reply(qapp: QApplication) -> None:
    engine = ScriptedEngine()
    engine.gate.shut()
    assert measure_window_speed(qapp, lambda: engine, None, REQUEST, lambda: engine.gate.is_waiting) == []
