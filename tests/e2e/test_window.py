"""The app as a person uses it: the real window, the real model, keys and clicks."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.reply_trace import ReplyTrace
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, Mode, Role, SamplingParams
from rdchat.services.chat.reply_recorder import TraceRecorder
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import WAIT_MS, ask, assert_usable, running_app, shown_messages, start_with, type_and_send
from tests.listed_chats import listed
from tests.slow_replies import slow_replies

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


@pytest.mark.slow
def test_a_person_asks_stops_restarts_finds_both_and_loses_nothing_by_closing_while_it_writes(
    qapp: QApplication, qtbot: QtBot, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_replies(monkeypatch, 0.05)
    short = SamplingParams(temperature=0, max_tokens=12)
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

        # It would take 20 s, so that it does not end before it is stopped.
        controller.settings.change_values(sampling=replace(short, max_tokens=400))
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


@pytest.mark.slow
def test_the_engine_thread_never_takes_widgets_apart(
    qapp: QApplication, qtbot: QtBot, small_model: Path, collected_on: set[int]
) -> None:
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        ask(qtbot, app, "Hello")
        assert_usable(qtbot, app, small_model)
        collected_on.discard(threading.get_ident())
        assert not collected_on


@pytest.mark.slow
def test_a_reply_that_a_sigkill_cuts_is_there_up_to_its_last_half_second_and_can_be_continued(
    qapp: QApplication, qtbot: QtBot, small_model: Path
) -> None:
    start_with(small_model, max_tokens=400)
    seen = ""
    settled = ""
    with subprocess.Popen([sys.executable, "-c", WRITING_APP], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        began = 0.0
        while not began or time.monotonic() - began < 4:  # a busy machine saves late
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


@pytest.mark.slow
@pytest.mark.across_rows
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

        details = window.panel.details
        details.fold(False)
        steps = f"{reply.statistics.rounds} of {reply.statistics.target_calls}"
        assert details.rows["Steps with a draft"].value.text() == steps
        assert sum(int(bar.value) for bar in details.lengths.bars) == reply.statistics.rounds
        qtbot.waitUntil(lambda: store.trace(reply.id) is not None, timeout=WAIT_MS)
        check_tokens_and_trees(app, TraceRecorder(store).trace(reply.id), reply)
        rows = {row.name: row for row in controller.time_ledger.rows}
        assert rows["reply"].calls == 2
        assert rows["checking"].percent_of_parent is not None
        times = [rows[name].total_ms for name in ("checking", "without draft", "drafting", "other")]
        assert sum(times[:2]) > sum(times[2:]), "the model takes most of the time"


WORD = "zeppelin"


def say(qtbot: QtBot, app: App, text: str) -> None:
    """Ask, and wait for the whole reply."""
    controller = app.controller
    controller.send(text)
    qtbot.waitUntil(
        lambda: controller.replies.state is EngineState.IDLE and controller.chat.streaming_id is None, timeout=240_000
    )
    assert controller.chat.path[-1].status is MessageStatus.COMPLETE


def wait_for_caches(qtbot: QtBot, app: App, count: int) -> None:
    """Wait until the engine says that it has so many caches in memory."""
    caches = app.controller.memory_caches
    caches.ask_for_caches()
    qtbot.waitUntil(lambda: caches.facts is not None and caches.facts.count == count)


def kept_caches() -> list[Path]:
    return [path for path in paths.chat_caches_dir().rglob("*") if path.is_file()]


@pytest.mark.slow
def test_its_caches_are_in_memory_alone_and_go_with_it(
    qapp: QApplication, qtbot: QtBot, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=120_000)
        controller.chat.start_temporary()
        say(qtbot, app, f"{WORD} " * 40)
        wait_for_caches(qtbot, app, 1)
        controller.chat.discard()
        wait_for_caches(qtbot, app, 0)
        controller.chat.start_temporary()
        say(qtbot, app, f"{WORD} " * 40)
        qtbot.wait(2000)  # what is kept on disk is written while nothing happens
        assert kept_caches() == []
        folders = (paths.data_dir(), paths.cache_dir(), tmp_path / "temporary")
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if WORD.encode() in path.read_bytes()]
        controller.chat.keep_temporary()
        say(qtbot, app, "Once more.")
        qtbot.waitUntil(lambda: bool(kept_caches()), timeout=60_000)
