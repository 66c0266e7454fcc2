"""The app as a person uses it: the real window, the real model, keys and clicks."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, Role, SamplingParams
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import ask, assert_usable, running_app, shown_messages, start_with, type_and_send
from tests.listed_chats import listed
from tests.slow_replies import slow_replies

pytestmark = pytest.mark.slow

WRITING_APP = """
import sys
import pytest
from PySide6.QtCore import QTimer
from rdchat import paths
from rdchat.app import App, application, make_engine
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from tests.slow_replies import slow_replies

slow_replies(pytest.MonkeyPatch(), 0.02)
qt = application()
app = App(qt, ConversationStore(paths.database_path()), SettingsStore(paths.settings_path()), make_engine)
app.controller.chat.reply_grew.connect(lambda _id, text: print(text, end="", flush=True))
app.open_window()
QTimer.singleShot(0, lambda: app.controller.send("Write a very long story about the sea."))
sys.exit(qt.exec())
"""


def begin_a_long_story(qtbot: QtBot, app: App, timeout_ms: int = 120_000) -> None:
    """Ask for one and return as it is being written."""
    controller, before = app.controller, len(app.controller.chat.path)
    type_and_send(qtbot, app, "Write a very long story about the sea.")
    qtbot.waitUntil(
        lambda: len(controller.chat.path) == before + 2 and len(controller.chat.path[-1].text) > 20, timeout=timeout_ms
    )


def test_a_person_asks_stops_restarts_finds_both_and_loses_nothing_by_closing_while_it_writes(
    qapp: QApplication, qtbot: QtBot, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_replies(monkeypatch, 0.05)
    short = SamplingParams(temperature=0, max_tokens=32)
    SettingsStore(paths.settings_path()).save_settings(Settings(sampling=short, titles_by_model=False))
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        type_and_send(qtbot, app, "Name three colours.")  # while the model is still loading
        qtbot.waitUntil(lambda: len(controller.chat.path) == 2)
        qtbot.waitUntil(lambda: controller.chat.path[-1].status is MessageStatus.COMPLETE, timeout=120_000)
        answer = controller.chat.path[-1]
        assert answer.finish_reason in {FinishReason.EOS, FinishReason.LENGTH}
        assert answer.statistics is not None
        assert answer.statistics.generated_tokens > 3
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE)

        begin_a_long_story(qtbot, app, timeout_ms=60_000)
        qtbot.keyClick(app.window.conversation.composer.field, Qt.Key.Key_Escape)
        qtbot.waitUntil(lambda: controller.chat.path[-1].finish_reason is FinishReason.CANCELLED)
        said = [(message.role, message.text) for message in controller.chat.path]

    with running_app(qapp, qtbot) as app:
        found = app.controller
        qtbot.waitUntil(lambda: len(found.chat.path) == 4)
        assert [(message.role, message.text) for message in found.chat.path] == said
        assert [role for role, _ in said] == [Role.USER, Role.ASSISTANT] * 2
        assert [conversation.title for conversation in listed(found.chats)] == ["Name three colours."]
        shown = [widget.written_text for widget in shown_messages(app)]
        assert shown == [text for _, text in said]

        begin_a_long_story(qtbot, app)
        written = found.chat.path[-1].text
    store = ConversationStore(paths.database_path())
    [conversation] = store.conversations()
    kept = store.messages(conversation.id)[-1]
    store.close()
    assert kept.text.startswith(written)
    assert kept.finish_reason is FinishReason.CANCELLED


def test_the_engine_thread_never_takes_widgets_apart(
    qapp: QApplication, qtbot: QtBot, small_model: Path, collected_on: set[int]
) -> None:
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        ask(qtbot, app, "Hello")
        assert_usable(qtbot, app, small_model)
        collected_on.discard(threading.get_ident())
        assert not collected_on


def test_a_reply_that_a_sigkill_cuts_is_there_up_to_its_last_half_second_and_can_be_continued(
    qapp: QApplication, qtbot: QtBot, default_model: Path
) -> None:
    seen = ""
    settled = ""
    with subprocess.Popen([sys.executable, "-c", WRITING_APP], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        began = 0.0
        while not began or time.monotonic() - began < 2:  # two seconds of writing
            seen += os.read(process.stdout.fileno(), 4096).decode("utf-8", "replace")
            began = began or time.monotonic()
            settled = seen if time.monotonic() - began < 1 else settled
        process.kill()
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: len(controller.chat.path) == 2)
        reply = controller.chat.path[-1]
        assert reply.status is MessageStatus.INTERRUPTED
        assert reply.text.startswith(settled)
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE)
        controller.continue_reply(reply.id)
        qtbot.waitUntil(lambda: len(controller.chat.path[-1].text) > len(reply.text) + 20)
        assert controller.chat.path[-1].text.startswith(reply.text)
