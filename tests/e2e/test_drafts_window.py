"""A drafted reply of the real model, looked into as a person does."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.inference.api.requests import Mode, SamplingParams
from rdchat.services.engine.engine_events import EngineState
from tests.e2e.windows import WAIT_MS, ask, running_app

pytestmark = pytest.mark.slow


def test_a_drafted_reply_shows_its_tokens_and_trees(qapp: QApplication, qtbot: QtBot, default_model: Path) -> None:
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: controller.state is EngineState.IDLE, timeout=WAIT_MS)
        controller.preferences.change(
            replace(controller.preferences.settings, sampling=SamplingParams(temperature=0, max_tokens=48))
        )
        controller.drafting.change(replace(controller.drafting.settings, mode=Mode.RECURRENT))
        reply = ask(qtbot, app, "Explain in two sentences why leaves are green.")
        assert reply.drafting is not None
        assert reply.drafting.mode is Mode.RECURRENT
        app.window.actions_.tokens.trigger()
        trace = app.window.windows.drafts.tokens._trace
        assert "".join(token.text for token in trace.tokens) == reply.text
        assert all(token.log_prob is not None and token.log_prob < 0.01 for token in trace.tokens)
        assert reply.statistics is not None
        assert len(trace.rounds) == reply.statistics.rounds
        for number, traced in enumerate(trace.rounds, start=1):
            assert traced.tree is not None
            app.window.windows.drafts.tokens.move_to(traced.first)
            assert app.window.windows.drafts.heading.text().startswith(f"Round {number} of {len(trace.rounds)}")
        assert {token.drafter for token in trace.tokens} > {""}
