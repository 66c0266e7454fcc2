"""The memory of the KV caches of earlier chats: shown, and limited by the settings."""

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.vision.image_process import shared_images
from tests.services.fakes import ScriptedEngine
from tests.services.window import WAIT_MS, Window


def test_the_engine_s_own_limit_is_shown_until_the_person_sets_one(
    window: Window, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    kept = window.controller.memory_caches
    settings = window.controller.settings
    qtbot.waitUntil(lambda: kept.facts is not None, timeout=WAIT_MS)
    assert kept.facts is not None
    assert kept.facts.limit_bytes == engine.cache_bytes
    settings.change(replace(settings.values, prefix_cache_bytes=5_000_000))
    qtbot.waitUntil(lambda: kept.facts is not None and kept.facts.limit_bytes == 5_000_000, timeout=WAIT_MS)
    assert engine.cache_bytes == 5_000_000


def test_the_limit_of_the_settings_holds_from_the_start(
    unstarted: Window, engine: ScriptedEngine, qtbot: QtBot
) -> None:
    settings = unstarted.controller.settings
    settings.change(replace(settings.values, prefix_cache_bytes=7_000_000))
    unstarted.controller.open_last_chat()
    qtbot.waitUntil(lambda: unstarted.controller.memory_caches.facts is not None, timeout=WAIT_MS)
    assert engine.cache_bytes == 7_000_000


def test_chat_that_is_discarded_leaves_no_pixels_behind(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = list[bool]()
    monkeypatch.setattr(shared_images(), "forget_images", lambda: forgotten.append(True))
    window.controller.chat.discarded.emit()
    assert len(forgotten) == 1
