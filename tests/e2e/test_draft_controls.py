"""Draft modes chosen from the menu of the real window: the same text, other figures, and a ledger of both."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.conversation import Message
from rdchat.chat.reply_trace import ReplyTrace
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Mode, SamplingParams
from rdchat.services.chat.reply_recorder import TraceRecorder
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import WAIT_MS, ask, running_app

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]


def check_tokens_and_trees(app: App, trace: ReplyTrace | None, reply: Message) -> None:
    """Look into a drafted reply as a person does."""
    assert trace is not None
    app.window.actions_.tokens.trigger()
    drafts = app.window.windows.drafts
    assert "".join(token.text for token in trace.tokens) == reply.text
    assert all(token.log_prob is not None and token.log_prob < 0.01 for token in trace.tokens)
    assert reply.drafting is not None
    assert reply.drafting.mode is Mode.DRAFTER
    assert reply.statistics is not None
    assert len(trace.rounds) == reply.statistics.rounds
    for number, traced in enumerate(trace.rounds, start=1):
        assert traced.tree is not None
        drafts.tokens.move_to(traced.first)
        assert drafts.heading.text().startswith(f"Draft {number} of {len(trace.rounds)}")
    assert {token.drafter for token in trace.tokens} > {""}


def test_a_mode_from_the_menu_drafts_the_next_reply(qapp: QApplication, qtbot: QtBot, default_model: Path) -> None:
    store = ConversationStore(paths.database_path())
    with running_app(qapp, qtbot, store) as app:
        controller = app.controller
        window = app.window
        sampling = SamplingParams(temperature=0, max_tokens=24)
        controller.settings.change(replace(controller.settings.values, sampling=sampling, seed=7))
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: controller.drafting.option(Mode.DRAFTER) is not None, timeout=WAIT_MS)
        option = controller.drafting.option(Mode.DRAFTER)
        assert option is not None
        assert option.available, option.reason

        texts = []
        for mode in (Mode.OFF, Mode.DRAFTER):
            getattr(window.actions_, f"draft_{mode.value}").trigger()
            window.actions_.new_chat.trigger()
            reply = ask(qtbot, app, "Name three colours of the rainbow.")
            assert reply.statistics is not None
            assert bool(reply.statistics.rounds) == (mode is Mode.DRAFTER)
            texts.append(reply.text)
        assert texts[0] == texts[1]

        drafts = window.panel.drafts
        drafts.fold(False)
        assert drafts.rows["Steps with a draft"].value.text() == str(reply.statistics.rounds)
        assert sum(int(bar.value) for bar in drafts.lengths.bars) == reply.statistics.rounds
        qtbot.waitUntil(lambda: store.trace(reply.id) is not None, timeout=WAIT_MS)
        check_tokens_and_trees(app, TraceRecorder(store).trace(reply.id), reply)
        rows = {row.name: row for row in controller.time_ledger.rows}
        assert rows["reply"].calls == 2
        assert rows["checking"].percent_of_parent is not None
        times = [rows[name].total_ms for name in ("checking", "without draft", "drafting", "other")]
        assert sum(times[:2]) > sum(times[2:]), "the model takes most of the time"
