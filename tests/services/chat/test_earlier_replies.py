"""Earlier replies to draft from: made of what is stored, without what was deleted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.conversation import MessageStatus
from rdchat.inference.api.requests import Role
from rdchat.inference.drafting.reply_store import ReplyStore
from rdchat.inference.prompts.model_prompts import shared_tokenizers
from rdchat.services.engine.engine_events import EngineState
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window

WAIT_MS = 60_000  # two child processes start
SOUP, TEA = "Boil the soup slowly, then serve it warm.", "Pour the tea into the small white cups."


@pytest.fixture
def app(window_on: Callable[[Path], Window], tmp_path: Path) -> Window:
    """An app without a model, with one chat about soup and one about tea."""
    window = window_on(tmp_path)
    for reply in (SOUP, TEA):
        chat = window.store.create_conversation(reply[:8])
        question = window.store.add_message(chat.id, None, Role.USER, "How?")
        window.store.add_message(chat.id, question.id, Role.ASSISTANT, reply, status=MessageStatus.COMPLETE)
    return window


def load(window: Window, folder: Path) -> None:
    """Load a model with the tokenizer of a folder."""
    window.controller.model_slot.load(str(folder))
    window.wait_for(EngineState.IDLE)


def wait_until_made(window: Window, before: str = "") -> None:
    earlier = window.controller.earlier
    window.qtbot.waitUntil(lambda: earlier.request.file not in {"", before}, timeout=WAIT_MS)


def kept(window: Window, folder: Path) -> list[str]:
    """Return the replies that are drafted from."""
    file = window.controller.earlier.request.file
    if not file:
        return []
    store, found = ReplyStore(Path(file)), []
    for reply in (SOUP, TEA):
        tokens = shared_tokenizers().encode_text(folder, reply)
        if any(place.match == 4 and list(place.following) == tokens[4:] for place in store.places(tokens[:4])):
            found.append(reply)
    return found


def chat_about(window: Window, reply: str) -> int:
    return next(chat.id for chat in window.store.conversations() if chat.title == reply[:8].strip())


def test_stored_replies_are_drafted_from_until_their_chat_is_deleted(app: Window, default_model_folder: Path) -> None:
    load(app, default_model_folder)
    wait_until_made(app)
    assert kept(app, default_model_folder) == [SOUP, TEA]
    earlier, first = app.controller.earlier, app.controller.earlier.request.file
    assert (Path(first).stat().st_mode & 0o777, Path(first).parent) == (0o600, paths.replies_dir())
    assert earlier.bytes == Path(first).stat().st_size
    app.controller.chats.delete_conversation(chat_about(app, SOUP))
    earlier.check()
    wait_until_made(app, first)
    assert kept(app, default_model_folder) == [TEA]
    assert [Path(earlier.request.file)] == list(paths.replies_dir().iterdir()), "the old file is gone"


def test_a_file_that_is_true_is_used_again(app: Window, default_model_folder: Path) -> None:
    load(app, default_model_folder)
    wait_until_made(app)
    file = Path(app.controller.earlier.request.file)
    made = file.stat().st_mtime_ns
    load(app, default_model_folder)
    app.controller.earlier.check()
    app.qtbot.waitUntil(lambda: not app.controller.earlier.busy, timeout=WAIT_MS)
    assert app.controller.earlier.request.file == str(file)
    assert file.stat().st_mtime_ns == made


@pytest.mark.slow
def test_replies_are_cleared_for_good_and_not_used_where_that_is_off(app: Window, default_model_folder: Path) -> None:
    preferences, earlier = app.controller.preferences, app.controller.earlier
    load(app, default_model_folder)
    wait_until_made(app)
    preferences.change(replace(preferences.settings, earlier_replies=False))
    assert earlier.request.file == ""
    app.qtbot.waitUntil(lambda: not earlier.busy, timeout=WAIT_MS)
    assert list(paths.replies_dir().iterdir()) == []
    preferences.change(replace(preferences.settings, earlier_replies=True))
    wait_until_made(app)
    earlier.clear()
    assert earlier.request.file == ""
    app.qtbot.waitUntil(lambda: not earlier.busy, timeout=WAIT_MS)
    assert list(paths.replies_dir().iterdir()) == []
    chat = app.store.create_conversation("Later")
    question = app.store.add_message(chat.id, None, Role.USER, "How?")
    app.store.add_message(chat.id, question.id, Role.ASSISTANT, TEA, status=MessageStatus.COMPLETE)
    earlier.check()
    wait_until_made(app)
    assert kept(app, default_model_folder) == [TEA]


def test_replies_of_chats_are_asked_for_with_earlier_ones(
    app: Window, engine: ScriptedEngine, default_model_folder: Path
) -> None:
    engine.replies = [Reply(("Boil", " it."))]
    load(app, default_model_folder)
    wait_until_made(app)
    app.ask("How do I cook soup?")
    assert engine.requests[-1].earlier == app.controller.earlier.request


@pytest.mark.slow
def test_chats_that_cannot_be_read_are_not_drafted_from(
    app: Window, default_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(app, default_model_folder)
    wait_until_made(app)
    monkeypatch.setattr(app.controller.earlier, "_database", Path("missing.db"))
    app.controller.earlier.check()
    app.qtbot.waitUntil(lambda: not app.controller.earlier.busy, timeout=WAIT_MS)
    assert app.controller.earlier.request.file == ""


def test_a_reply_that_only_the_engine_has_is_forgotten_with_its_chat(
    app: Window, engine: ScriptedEngine, default_model_folder: Path
) -> None:
    engine.replies = [Reply(("Boil", " it.")), Reply(("Boil", " it."))]
    earlier = app.controller.earlier
    load(app, default_model_folder)
    wait_until_made(app)
    app.ask("How do I cook soup?")
    asked = engine.requests[-1].earlier
    earlier.check()
    app.qtbot.waitUntil(lambda: not earlier.busy, timeout=WAIT_MS)
    assert earlier.request == asked, "nothing was deleted"
    assert app.controller.chat.id is not None
    app.controller.chats.delete_conversation(app.controller.chat.id)
    earlier.check()
    app.qtbot.waitUntil(lambda: not earlier.busy, timeout=WAIT_MS)
    assert asked is not None
    assert (earlier.request.file, earlier.request != asked) == (asked.file, True)


@pytest.mark.slow
def test_the_file_outlives_a_model_that_is_unloaded_and_goes_with_a_deletion(
    app: Window, default_model_folder: Path
) -> None:
    earlier = app.controller.earlier
    load(app, default_model_folder)
    wait_until_made(app)
    file = Path(earlier.request.file)
    app.controller.model_slot.unload()
    app.wait_for(EngineState.NO_MODEL)
    for _ in range(2):
        earlier.check()
        app.qtbot.waitUntil(lambda: not earlier.busy, timeout=WAIT_MS)
        assert earlier.request.file == ""
    assert file.exists()
    app.controller.chats.delete_conversation(chat_about(app, SOUP))
    earlier.check()
    app.qtbot.waitUntil(lambda: not earlier.busy and not file.exists(), timeout=WAIT_MS)
