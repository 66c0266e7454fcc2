from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.events import FinishReason, LoadProgress, PrefillProgress
from rdchat.inference.statistics import Statistics
from rdchat.services.events import EngineState
from rdchat.ui import figures
from rdchat.ui.speed_panel import Figure, SpeedPanel
from rdchat.ui.theme import Theme
from tests.services.fakes import Reply
from tests.ui.conftest import Chat

_STATISTICS = Statistics(
    prompt_tokens=300,
    cached_prompt_tokens=200,
    generated_tokens=101,
    prefill_ms=500,
    ttft_ms=520,
    decode_ms=4000,
    peak_memory_bytes=812_000_000,
    context_tokens=512,
)


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme, chat: Chat) -> SpeedPanel:
    panel = SpeedPanel(chat.controller, theme)
    qtbot.addWidget(panel)
    panel.resize(280, 700)
    panel.show()
    return panel


def test_loading_shows_its_progress_and_then_the_model(chat: Chat, panel: SpeedPanel) -> None:
    assert panel.state.text() == "Loading the model…"
    chat.controller.load_progressed.emit(LoadProgress("Loading the weights", 0.4))
    assert panel.state.text().startswith("Loading the weights… 40")
    assert panel.progress.isVisible()
    assert panel.progress.value() == 400
    chat.start()
    assert panel.state.text() == "Idle"
    assert not panel.progress.isVisible()
    assert panel.model_name.text() == "tiny"
    assert panel.dtype.value.text() == "float32"
    assert panel.device.value.text() == "CPU"


def test_prefill_shows_its_progress(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.prefill_progressed.emit(PrefillProgress(1, 512, 2048, 0))
    assert panel.state.text() == "Reading the prompt 512 of 2,048"
    assert (panel.progress.value(), panel.progress.maximum()) == (512, 2048)


def test_figures_of_a_reply(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.controller.statistics_changed.emit(_STATISTICS)
    chat.qtbot.waitUntil(lambda: panel.decode.text() == "25.0")
    assert panel.prefill.value.text() == "200 tokens/s"
    assert panel.ttft.value.text() == "520 ms"
    assert panel.tokens.value.text() == "101"
    assert panel.prompt.value.text() == "300"
    assert panel.cached.value.text() == "200"
    assert panel.peak.value.text() == "812 MB"
    assert panel.context.value.text() == "512 of 2,048"
    assert panel.context_bar.value() == 250


def test_figures_change_at_most_ten_times_a_second(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.qtbot.waitUntil(lambda: not panel._timer.isActive())
    for tokens in range(1, 200):
        chat.controller.statistics_changed.emit(Statistics(generated_tokens=tokens))
    assert panel.tokens.value.text() == "1"
    chat.qtbot.waitUntil(lambda: panel.tokens.value.text() == "199")


@pytest.mark.parametrize("reason", [FinishReason.EOS, FinishReason.LENGTH, FinishReason.STOP_STRING])
def test_the_finish_reason_is_told_and_stays_with_the_chat(chat: Chat, panel: SpeedPanel, reason: FinishReason) -> None:
    chat.engine.replies = [Reply(finish_reason=reason)]
    chat.start()
    chat.say("Hello")
    words = figures.FINISH_WORDS[reason]
    chat.qtbot.waitUntil(lambda: panel.finish.value.text() == words)
    assert figures.FINISH_REASONS[reason] in panel.finish.toolTip()
    chat.controller.new_chat()
    assert panel.finish.value.text() == figures.NONE
    chat.controller.open_conversation(chat.controller.conversations()[0].id)
    assert panel.finish.value.text() == words
    assert panel.tokens.value.text() == "4"


def test_a_stopped_reply_says_so(chat: Chat, panel: SpeedPanel) -> None:
    chat.start()
    chat.engine.gate.shut()
    chat.controller.send("Hello")
    chat.engine.gate.allow(4)
    chat.wait_for(EngineState.WRITING)
    assert panel.state.text() == "Writing"
    chat.controller.stop()
    chat.qtbot.waitUntil(lambda: panel.finish.value.text() == "Stopped")


def test_a_model_that_failed_leaves_no_figures_of_it(chat: Chat, panel: SpeedPanel) -> None:
    chat.engine.load_errors = {None: RuntimeError("boom")}
    chat.controller.start()
    chat.wait_for(EngineState.NO_MODEL)
    assert panel.state.text() == "No model is loaded"
    assert panel.model_name.text() == "None"
    assert panel.weights.value.text() == figures.NONE


def test_the_context_is_shown_once_the_model_that_gives_its_length_is_there(chat: Chat, panel: SpeedPanel) -> None:
    chat.controller.statistics_changed.emit(_STATISTICS)
    assert panel.context.value.text() == figures.NONE
    chat.start()
    chat.controller.statistics_changed.emit(_STATISTICS)
    chat.qtbot.waitUntil(lambda: panel.context.value.text() == "512 of 2,048")
    chat.controller.retry_model()
    assert panel.context.value.text() == figures.NONE
    chat.wait_for(EngineState.IDLE)
    assert panel.context.value.text() == "512 of 2,048"


def test_every_figure_has_its_definition(panel: SpeedPanel) -> None:
    rows = panel.findChildren(Figure)
    assert len(rows) >= 10
    for row in rows:
        assert row.toolTip().endswith(".</p>")
        assert row.value.accessibleName().endswith(f": {figures.NONE}")


def test_prefill_of_a_token_or_two_has_no_rate(chat: Chat, panel: SpeedPanel) -> None:
    """After a regenerate one token is read, and "4.15 tokens/s" looked like a slow machine."""
    chat.start()
    chat.controller.statistics_changed.emit(replace(_STATISTICS, cached_prompt_tokens=299))
    chat.qtbot.waitUntil(lambda: panel.decode.text() == "25.0")
    assert panel.prefill.value.text() == figures.NONE
