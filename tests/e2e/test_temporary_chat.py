"""A temporary chat with the real model: its caches are in memory alone, and go with it."""

import tempfile
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import SamplingParams
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import running_app

pytestmark = pytest.mark.slow

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


def test_its_caches_are_in_memory_alone_and_go_with_it(
    qapp: QApplication, qtbot: QtBot, default_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    short = SamplingParams(temperature=0, max_tokens=4)
    SettingsStore(paths.settings_path()).save_settings(Settings(sampling=short, titles_by_model=False))
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=120_000)
        controller.chat.start_temporary()
        say(qtbot, app, f"{WORD} " * 400)
        wait_for_caches(qtbot, app, 1)
        controller.chat.discard()
        wait_for_caches(qtbot, app, 0)
        controller.chat.start_temporary()
        say(qtbot, app, f"{WORD} " * 400)
        qtbot.wait(2000)  # what is kept on disk is written while nothing happens
        assert kept_caches() == []
        folders = (paths.data_dir(), paths.cache_dir(), tmp_path / "temporary")
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if WORD.encode() in path.read_bytes()]
        controller.chat.keep_temporary()
        say(qtbot, app, "Once more.")
        qtbot.waitUntil(lambda: bool(kept_caches()), timeout=60_000)
