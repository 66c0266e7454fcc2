"""The window on stores made by hand: everything is shown as far as it can be, and nothing fails while it is drawn."""

import json
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, Role, Statistics
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import Theme
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.services.fakes import ScriptedEngine
from tests.stores import connect_by_hand, finish_message

MARKUP = "<img src=/dev/zero><h1>big</h1>" + "x" * 5000
_NUMBERS = ("prompt_tokens", "generated_tokens", "rounds", "drafted", "accepted", "target_calls", "peak_memory_bytes")
_TIMES = ("prefill_ms", "ttft_ms", "decode_ms", "plain_step_ms")


def counters(number: int, time: float, lengths: list[int]) -> str:
    named = dict.fromkeys(_NUMBERS, number) | dict.fromkeys(_TIMES, time)
    return json.dumps(named | {"drafted_lengths": lengths, "accepted_lengths": lengths})


ODD: dict[str, str] = {
    "dates": "UPDATE conversations SET created_at = 1e300, updated_at = 9e999",
    "dates before": "UPDATE conversations SET created_at = -1e300, updated_at = -9e999",
    "words": "UPDATE messages SET role = 'tool', status = 'odd', finish_reason = 'odd'",
    "markup": f"UPDATE messages SET model = '{MARKUP}', error = '{MARKUP}', status = 'failed'",
    "title": f"UPDATE conversations SET title = '{MARKUP}' || char(10, 0, 8238)",
    "no title": "UPDATE conversations SET title = ''",
    "negative": f"UPDATE messages SET statistics = '{counters(-7, -1e-300, [-1])}'",
    "large": f"UPDATE messages SET statistics = '{counters(2**63, 1e308, [2**63])}'",
    "small": f"UPDATE messages SET statistics = '{counters(2**63, 5e-324, [0] * 1000)}'",
    "many": f"UPDATE messages SET statistics = '{counters(3, 1.0, [2**40] * 100_000)}'",
    "drafting": """UPDATE messages SET drafting = '{"mode": "odd", "drafter": 3, "reason": "<b>why</b>"}'""",
    "sampling": """UPDATE conversations SET sampling = '{"temperature": 1e308, "max_tokens": -1, "stop": [1]}'""",
    "seed": "UPDATE messages SET seed = -1",
    "cycle": "UPDATE messages SET parent_id = 2 WHERE id = 1",
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "conversations.db"
    with closing(ConversationStore(path)) as store:
        chat = store.create_conversation("Sea")
        prompt = store.add_message(chat.id, None, Role.USER, "Tell me of the sea")
        reply = store.add_message(chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, seed=7)
        finish_message(
            store,
            reply.id,
            "It is wet.",
            MessageStatus.COMPLETE,
            finish_reason=FinishReason.EOS,
            statistics=Statistics(3, 1),
        )
    return path


@pytest.fixture
def controller(database: Path, tmp_path: Path) -> Iterator[ChatController]:
    store = ConversationStore(database)
    client = EngineClient(ScriptedEngine, nullcontext)
    controller = ChatController(store, SettingsStore(tmp_path / "settings.json"), client)
    yield controller
    controller.shut_down()
    store.close()


@pytest.fixture
def odd(database: Path, request: pytest.FixtureRequest) -> None:
    with closing(connect_by_hand(database)) as by_hand, by_hand:
        by_hand.execute(ODD[request.param])


@pytest.mark.parametrize("odd", share(ODD, 15), indirect=True)
def test_a_window_opens_on_it_and_the_chat_goes_on(
    odd: None, controller: ChatController, qtbot: QtBot, theme: Theme
) -> None:
    window = MainWindow(controller, theme, TranscriptView(theme))
    qtbot.addWidget(window)
    window.resize(1200, 800)
    window.show()
    qtbot.waitExposed(window)
    controller.open_last_chat()
    qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE)
    assert len(controller.chat.path) == 2
    window.grab()
    labels = [label for label in window.findChildren(QLabel) if "<h1>" in label.text()]
    assert not any(_is_rich(label) for label in labels)
    for reply in controller.chat.path:
        window.windows.show_tokens(reply.id)
    controller.send("And then?")
    qtbot.waitUntil(lambda: len(controller.chat.path) == 4 and controller.chat.streaming_id is None)
    assert controller.chat.path[-1].text == "Hello, you!"
    window.grab()
    for other in window.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly):
        if other.isWindow():
            other.close()


def _is_rich(label: QLabel) -> bool:
    return label.textFormat() is not Qt.TextFormat.PlainText
