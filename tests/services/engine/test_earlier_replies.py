"""Earlier replies to draft from: those that are stored, without what was deleted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.errors import StorageError
from rdchat.inference.api import Role
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers, tokenizer_key
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window

WAIT_MS = 60_000  # a child process starts
SOUP = "Boil the soup slowly, then serve it warm."
TEA = "Pour the tea into the small white cups."
COFFEE = "Grind the beans and wait for a minute."


def add_reply(window: Window, reply: str) -> tuple[int, int]:
    """Store a chat with a reply; return the ids of both."""
    chat = window.store.create_conversation(reply[:8])
    question = window.store.add_message(chat.id, None, Role.USER, "How?")
    added = window.store.add_message(chat.id, question.id, Role.ASSISTANT, reply, status=MessageStatus.COMPLETE)
    return chat.id, added.id


@pytest.fixture
def app(window_on: Callable[[Path], Window], tmp_path: Path) -> Window:
    """An app without a model, with one chat about soup and one about tea."""
    window = window_on(tmp_path)
    add_reply(window, SOUP)
    add_reply(window, TEA)
    return window


def load(window: Window, folder: Path) -> None:
    """Load a model with the tokenizer of a folder, and wait for the index."""
    window.load(str(folder))
    window.wait_until(lambda: window.earlier.index is not None)


def check(window: Window) -> None:
    """Check whether the index is up to date, and wait for the end."""
    with window.qtbot.waitSignal(window.earlier.changed):
        window.earlier.check_index()


def indexed(window: Window, folder: Path) -> list[str]:
    """Return the replies that are drafted from."""
    index = window.earlier.index
    found = []
    for reply in (SOUP, TEA, COFFEE):
        tokens = shared_tokenizers().encode_text(folder, reply)
        matches = index.matches(tokens[:4]) if index else []
        if any(match.length == 4 and list(match.following) == tokens[4:] for match in matches):
            found.append(reply)
    return found


def stored(window: Window) -> set[int]:
    """Return the ids of the messages whose token ids are stored."""
    return {row[0] for row in window.store.rows("SELECT message_id FROM reply_tokens")}


def chat_about(window: Window, reply: str) -> int:
    return next(chat.id for chat in window.store.conversations() if chat.title == reply[:8].strip())


def test_a_deleted_message_is_not_drafted_from_until_that_is_undone(app: Window, default_model_folder: Path) -> None:
    message = add_reply(app, COFFEE)[1]
    load(app, default_model_folder)
    deleted = app.store.message_trash.delete(message)
    check(app)
    assert indexed(app, default_model_folder) == [SOUP, TEA]
    app.store.message_trash.restore(deleted)
    check(app)
    assert indexed(app, default_model_folder) == [SOUP, TEA, COFFEE]


def test_a_deleted_or_unlisted_chat_is_not_drafted_from(app: Window, default_model_folder: Path) -> None:
    app.store.delete_conversation(add_reply(app, COFFEE)[0])
    app.store.execute("UPDATE conversations SET unlisted = 2 WHERE id = ?", chat_about(app, SOUP))
    load(app, default_model_folder)
    assert indexed(app, default_model_folder) == [TEA]


def test_token_ids_go_with_their_message_and_with_another_text(app: Window, default_model_folder: Path) -> None:
    (_, coffee), (_, tea) = add_reply(app, COFFEE), add_reply(app, TEA)
    load(app, default_model_folder)
    assert {coffee, tea} <= stored(app)
    app.store.execute("DELETE FROM messages WHERE id = ?", coffee)
    app.store.execute("UPDATE messages SET text = 'Other' WHERE id = ?", tea)
    assert not {coffee, tea} & stored(app)


def test_an_index_that_is_up_to_date_stays(app: Window, default_model_folder: Path) -> None:
    load(app, default_model_folder)
    index = app.earlier.index
    check(app)
    assert app.earlier.index is index


def test_replies_are_cleared_for_good_and_not_used_where_that_is_off(app: Window, default_model_folder: Path) -> None:
    settings = app.settings
    earlier = app.earlier
    load(app, default_model_folder)
    assert earlier.bytes > 0
    settings.change_values(earlier_replies=False)
    assert earlier.index is None
    app.wait_until(lambda: not stored(app))
    check(app)
    assert earlier.index is None
    settings.change_values(earlier_replies=True)
    app.wait_until(lambda: earlier.index is not None)
    assert indexed(app, default_model_folder) == [SOUP, TEA]
    earlier.forget_replies()
    assert earlier.index is None
    app.wait_until(lambda: earlier.index is not None)
    assert (indexed(app, default_model_folder), stored(app)) == ([], set())
    _, later = add_reply(app, TEA)
    check(app)
    assert (indexed(app, default_model_folder), stored(app)) == ([TEA], {later})


def test_a_reply_that_ends_is_stored_and_drafted_from_at_once(
    app: Window, engine: ScriptedEngine, default_model_folder: Path
) -> None:
    engine.replies = [Reply(("Boil", " it.")), Reply(("Boil", " it."))]
    load(app, default_model_folder)
    index = app.earlier.index
    assert index is not None
    reply = app.ask("How do I cook soup?")
    assert engine.last_request.earlier is index
    assert reply.id in index.messages
    assert reply.id in stored(app)
    check(app)
    assert app.earlier.index is index, "it has all replies"
    assert app.chat.id is not None
    app.chats.delete_conversation(app.chat.id)
    check(app)
    assert app.earlier.index is not None
    assert reply.id not in app.earlier.index.messages


def test_a_reply_in_no_chat_or_a_temporary_one_is_not_drafted_from(app: Window, default_model_folder: Path) -> None:
    load(app, default_model_folder)
    index = app.earlier.index
    assert index is not None
    before = set(index.messages)
    app.chat.start_temporary()
    app.ask("Anything?")
    app.controller.quick.ask_question("And quickly?")
    app.wait_until_idle()
    assert app.controller.quick.path[-1].text
    assert (set(index.messages), stored(app)) == (before, before)


def test_chats_that_cannot_be_read_are_not_drafted_from(
    app: Window, default_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise StorageError("The disk is broken.", "Buy another one.")

    load(app, default_model_folder)
    monkeypatch.setattr(app.store.reply_tokens, "newest", fail)
    check(app)
    assert app.earlier.index is None


def test_token_ids_of_another_tokenizer_or_beyond_the_vocabulary_are_not_used(
    app: Window, default_model_folder: Path
) -> None:
    (_, other), (_, beyond) = add_reply(app, COFFEE), add_reply(app, "Hi")
    app.store.reply_tokens.save_tokens(other, "another", [1, 2, 3])
    app.store.reply_tokens.save_tokens(beyond, tokenizer_key(default_model_folder), [1, 2**31])
    load(app, default_model_folder)
    index = app.earlier.index
    assert index is not None
    assert indexed(app, default_model_folder) == [SOUP, TEA, COFFEE]
    assert index.matches([1]) == []


def test_without_a_model_there_is_no_index_and_the_token_ids_stay(app: Window, default_model_folder: Path) -> None:
    load(app, default_model_folder)
    app.slot.unload_model()
    app.wait_for(EngineState.NO_MODEL)
    check(app)
    assert app.earlier.index is None
    assert len(stored(app)) == 2
