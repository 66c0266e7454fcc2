"""The server in the window, with the real model: a client's reply is paused by the window's, and is the same."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from httpx2 import HTTPError
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import SamplingParams
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import running_app
from tests.late_module import LateModule
from tests.services.ports import any_port  # noqa: F401  a fixture of each test
from tests.slow_replies import slow_replies

pytestmark = pytest.mark.slow
openai_module = LateModule("openai")
_TOKENS = 40
_PROMPT = "Write a story about the sea."


class Client:
    """OpenAI's client on a thread; `text` grows as the reply streams in."""

    def __init__(self, app: App, max_tokens: int = _TOKENS) -> None:
        self._max_tokens = max_tokens
        server = app.controller.server
        self._client = openai_module.OpenAI(
            base_url=f"{server.address}/v1", api_key=server.key, max_retries=0, timeout=120
        )
        self._model = app.controller.model_slot.name or ""
        self.text = ""
        self.done = False
        self.problem = ""
        self._thread = threading.Thread(target=self._ask)

    def start(self) -> "Client":
        self._thread.start()
        return self

    def _ask(self) -> None:
        chunks = self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": _PROMPT}],
            max_tokens=self._max_tokens,
            temperature=0.8,
            seed=5,
            stream=True,
        )
        try:
            for chunk in chunks:
                self.text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            self.done = True
        except (openai_module.OpenAIError, HTTPError) as error:
            self.problem = str(error)
        self._client.close()

    def wait(self, qtbot: QtBot) -> str:
        qtbot.waitUntil(lambda: not self._thread.is_alive(), timeout=180_000)
        assert self.done, self.problem
        return self.text


def test_a_prompt_in_the_window_pauses_a_client_s_reply_which_goes_on_with_the_same_text(
    qapp: QApplication, qtbot: QtBot, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=16)
    settings = Settings(sampling=sampling, titles_by_model=False, server_at_start=True)
    SettingsStore(paths.settings_path()).save_settings(settings)
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: bool(controller.server.address), timeout=120_000)
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=120_000)
        alone = Client(app).start().wait(qtbot)
        slow_replies(monkeypatch, 0.05)
        paused = Client(app).start()
        qtbot.waitUntil(lambda: len(paused.text) > 20, timeout=120_000)
        controller.send("What is the capital of France?")
        qtbot.waitUntil(lambda: bool(controller.chat.path) and bool(controller.chat.path[-1].text), timeout=120_000)
        assert not paused.done  # the window's reply is written in between
        assert app.window.panel.server.doing.text().startswith("Waits until your reply ends")
        assert paused.wait(qtbot) == alone
        qtbot.waitUntil(lambda: controller.chat.streaming_id is None, timeout=120_000)
        assert "Paris" in controller.chat.path[-1].text
        control = controller.settings
        control.change(replace(control.values, server_at_start=False))
        last = Client(app, 400).start()  # more than it is given time for
        qtbot.waitUntil(lambda: len(last.text) > 5, timeout=120_000)
    qtbot.waitUntil(lambda: bool(last.problem), timeout=60_000)  # quitting ended it, and says so
