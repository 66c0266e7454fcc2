"""Draft modes chosen from the menu of the real window: the same text, other figures, and a ledger of both."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.inference.api.requests import Mode, SamplingParams
from rdchat.services.engine.engine_events import EngineState
from tests.e2e.windows import WAIT_MS, ask, running_app

pytestmark = pytest.mark.slow


def test_a_mode_from_the_menu_drafts_the_next_reply(qapp: QApplication, qtbot: QtBot, default_model: Path) -> None:
    with running_app(qapp, qtbot) as app:
        controller, window = app.controller, app.window
        sampling = SamplingParams(temperature=0, max_tokens=24)
        controller.preferences.change(replace(controller.preferences.settings, sampling=sampling, seed=7))
        qtbot.waitUntil(lambda: controller.state is EngineState.IDLE, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: controller.drafting.option(Mode.RECURRENT) is not None, timeout=WAIT_MS)
        option = controller.drafting.option(Mode.RECURRENT)
        assert option is not None
        assert option.available, option.reason

        texts = []
        for mode in (Mode.OFF, Mode.RECURRENT):
            window.actions_.draft_modes[mode].trigger()
            window.actions_.new_chat.trigger()
            reply = ask(qtbot, app, "Name three colours of the rainbow.")
            assert reply.statistics is not None
            assert bool(reply.statistics.rounds) == (mode is Mode.RECURRENT)
            texts.append(reply.text)
        assert texts[0] == texts[1]

        drafts = window.panel.drafts
        assert drafts.rounds.value.text() == str(reply.statistics.rounds)
        assert sum(int(bar.value) for bar in drafts.lengths.bars) == reply.statistics.rounds
        stages = {(row.parent, row.name) for row in controller.time_ledger.rows}
        assert {("", "prefill"), ("", "round"), ("round", "verify"), ("round", "draft")} <= stages
