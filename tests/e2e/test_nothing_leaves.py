"""The real app answers with the default model, and opens its windows, without any connection."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import SamplingParams
from rdchat.services.engine.engine_request import EngineState
from tests.connections import all_refused
from tests.e2e.windows import WAIT_MS, ask, running_app

pytestmark = pytest.mark.slow


def test_a_chat_with_the_default_model_asks_nobody(
    qapp: QApplication, qtbot: QtBot, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = SamplingParams(temperature=0, max_tokens=12)
    SettingsStore(paths.settings_path()).save_settings(Settings(sampling=short))
    with all_refused(monkeypatch) as refused, running_app(qapp, qtbot) as app:
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        reply = ask(qtbot, app, "Say hello.")
        assert reply.status is MessageStatus.COMPLETE
        models = app.window.windows.models
        for page in (models.installed, models.discover, models.downloads, models.drafters):
            models.show_page(page)
            qtbot.wait(300)
        app.controller.regenerate(reply.id)
        qtbot.waitUntil(lambda: app.controller.chat.streaming_id is None, timeout=WAIT_MS)
        assert refused.all() == []
