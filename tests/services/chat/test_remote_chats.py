"""Chats that go to a remote server: once the person has agreed, and only then."""

from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.notes import Note
from rdchat.chat.projects import Project
from rdchat.errors import InvalidSettingError, ModelError, RdchatError
from rdchat.inference.api import RemoteServer, ServerState
from rdchat.inference.remote import server_keys
from rdchat.inference.remote.server_keys import key_of
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.chat.reply_recorder import Reply as Waiting
from rdchat.services.servers.remote_servers import RemoteServers
from tests.server.fakes import KEY
from tests.server.lying_server import answer, lying_server
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, collected, text_file

REMOTE = "remote:studio/qwen"
OTHER = "remote:mini/qwen"


@pytest.fixture
def asked(window: Window) -> list[Waiting]:
    return collected(window.replies.sending_asked)


def wait_for_question(window: Window, asked: list[Waiting], count: int = 1) -> Waiting:
    window.wait_until(lambda: len(asked) == count)
    return asked[-1]


def test_a_chat_with_replies_goes_to_a_server_once_the_person_agrees(
    window: Window, engine: ScriptedEngine, asked: list[Waiting]
) -> None:
    window.ask("Hi")
    window.load(REMOTE)
    window.send("And you?")
    question = wait_for_question(window, asked)
    assert [each.text for each in question.prompt.path] == ["Hi", "Hello, you!", "And you?"]
    assert (question.conversation.id, len(engine.requests)) == (window.chat.id, 1)
    window.replies.agree(question, "https://studio.local")
    window.wait_until_idle()
    assert engine.last_contents == ["Hi", "Hello, you!", "And you?"]
    window.ask("Well?")
    assert len(engine.requests) == 3
    # It is stored with the chat; another server asks again.
    chat = window.chat
    chat.open_chat(chat.conversation.id)
    assert chat.conversation.own.sent_to == ("https://studio.local",)
    window.load(OTHER)
    window.send("Here too?")
    wait_for_question(window, asked, 2)
    window.stop_reply()
    window.wait_until_idle()
    last = window.last
    assert (last.status, last.text, len(engine.requests)) == (MessageStatus.COMPLETE, "", 3)
    # A model on this machine answers it without a question.
    window.load(None)
    window.regenerate(last.id)
    assert (len(asked), len(engine.requests)) == (2, 4)


def test_a_new_chat_whose_project_has_another_model_is_not_allowed_to_the_loaded_server(
    window: Window, engine: ScriptedEngine, tmp_path: Path
) -> None:
    folder = window.make_project(Project(model=str(tmp_path)))
    window.load(REMOTE)
    window.chat.start_new(folder.id)
    window.send("Hi")
    window.wait_until(lambda: window.texts[1:] == ["Hello, you!"])
    assert engine.loads[-1][0] == str(tmp_path)
    assert window.chat.conversation.own.sent_to == ()


@pytest.mark.parametrize("other", [None, OtherModel(REMOTE, "qwen")])
def test_a_first_prompt_that_is_answered_again_or_edited_asks(
    other: OtherModel | None, window: Window, engine: ScriptedEngine, asked: list[Waiting]
) -> None:
    window.ask("Hi")
    if other is None:
        window.load(REMOTE)
    window.controller.regenerate(window.last.id, other=other)
    assert wait_for_question(window, asked).prompt.path[0].text == "Hi"
    window.replies.stop_replies()
    if other is None:
        window.edit_message(window.chat.path[0].id, "Hello")
        wait_for_question(window, asked, 2)
        window.stop_reply()
    assert len(engine.requests) == 1


def test_files_of_a_project_go_to_a_server_only_after_a_question_that_counts_them(
    window: Window, engine: ScriptedEngine, asked: list[Waiting]
) -> None:
    """Also a new chat asks, where one without files does not; other files ask again, and so does another chat."""
    order = window.chats.order
    files = [text_file(name, name) for name in ("Alpha", "Beta")]
    folder = window.make_project(Project(), files[0])
    window.load(REMOTE)
    chat = window.chat

    def ask(number: int, words: str) -> None:
        sent = len(engine.requests)
        window.send(words)
        question = wait_for_question(window, asked, number)
        assert len(engine.requests) == sent
        assert [file.name for file in question.prompt.files] == [file.name for file in order.folders[0].files]
        window.replies.agree(question, "https://studio.local")
        window.wait_until_idle()
        assert all(file.name in engine.last_request.messages[0].content for file in order.folders[0].files)

    chat.start_new(folder.id)
    ask(1, "One")
    window.ask("Two")
    assert len(asked) == 1
    order.set_project(order.folders[0], Project(), files)
    ask(2, "Three")
    chat.start_new(folder.id)
    ask(3, "One")
    # A chat that may go there, and is moved into the project.
    chat.start_new()
    window.ask("Plain")
    assert len(asked) == 3
    stored = chat.stored_conversation
    assert stored is not None
    order.move(stored, folder.id)
    ask(4, "Now with files")


def test_the_quick_windows_exchange_asks_where_a_model_here_began_it(
    window: Window, engine: ScriptedEngine, asked: list[Waiting]
) -> None:
    quick = window.controller.quick
    window.load(REMOTE)
    quick.ask_question("Hi")
    window.wait_until_idle()
    quick.forget_exchange()
    window.load(None)
    quick.ask_question("Secret")
    window.wait_until_idle()
    window.load(REMOTE)
    quick.ask_question("And?")
    assert len(wait_for_question(window, asked).prompt.path) == 3
    assert len(engine.requests) == 2
    window.replies.agree(asked[-1], "https://studio.local")
    window.wait_until_idle()
    quick.ask_question("More?")
    window.wait_until_idle()
    assert (len(asked), len(engine.requests)) == (1, 4)


def test_the_permission_is_for_what_the_question_counted(
    window: Window, engine: ScriptedEngine, asked: list[Waiting]
) -> None:
    """A file or a note that comes while the question is shown asks again."""
    organiser = window.store.organiser
    folder = organiser.create_folder("Work")
    files = [text_file(name, name) for name in ("shown", "later")]
    organiser.set_project(folder.id, Project(), files[:1])
    window.load(REMOTE)
    window.chat.start_new(folder.id)
    window.send("Hi")
    question = wait_for_question(window, asked)
    organiser.set_project(folder.id, Project(), files)
    window.replies.agree(question, "https://studio.local")
    window.wait_until_idle()
    assert "later" not in str(engine.last_request.messages)
    window.send("Go on")
    question = wait_for_question(window, asked, 2)
    organiser.keep_note(Note("It is new", folder.id, None))
    window.replies.agree(question, "https://studio.local")
    window.wait_until_idle()
    assert "later" in str(engine.last_request.messages)
    assert "It is new" not in str(engine.last_request.messages)
    window.send("Go on")
    wait_for_question(window, asked, 3)
    window.stop_reply()
    assert len(engine.requests) == 2


def test_a_summary_is_asked_of_no_server_that_did_not_get_the_chat(window: Window, engine: ScriptedEngine) -> None:
    notices = window.seen.notices
    window.ask("Hi")
    window.load(REMOTE)
    window.context.start_anew()
    window.wait_until(lambda: bool(notices))
    assert "was not sent to the model's server yet" in notices[0].title
    assert len(engine.requests) == 1


# Adding and removing servers


@pytest.fixture
def remote(window: Window, monkeypatch: pytest.MonkeyPatch) -> RemoteServers:
    monkeypatch.setattr(server_keys, "_KEYS", {})
    return window.controller.remote


def test_a_server_that_answers_is_stored_with_its_key(window: Window, remote: RemoteServers) -> None:
    with lying_server(answer(b'{"data": [{"id": "org/m"}]}')) as (address, requests):
        server = RemoteServer("studio", address)
        remote.add_server(server, KEY, lambda problem: None)
        window.wait_until(lambda: bool(remote.cards))
        assert f"Bearer {KEY}".encode() in requests[0]
        assert remote.states == (ServerState(server, ("org/m",)),)
        card = remote.cards[0]
        assert (card.name, card.model, card.origin) == ("org/m", "remote:studio/org/m", "studio")
        with pytest.raises(InvalidSettingError, match="There is a server named studio"):
            remote.add_server(server, KEY, lambda problem: None)
    with window.qtbot.waitSignal(remote.changed):
        remote.ask_servers()
    assert "cannot be reached" in remote.states[0].problem
    remote.remove_server(server)
    window.wait_until(lambda: not key_of(server))
    assert window.settings.values.remote_servers == remote.states == ()


def test_a_server_that_does_not_answer_is_not_stored(window: Window, remote: RemoteServers) -> None:
    problems: list[RdchatError | None] = []
    with lying_server(answer(b"<html>")) as (address, _):
        remote.add_server(RemoteServer("studio", address), KEY, problems.append)
        window.wait_until(lambda: bool(problems))
    assert isinstance(problems[0], ModelError)
    assert not key_of(RemoteServer("studio", address))
    assert window.settings.values.remote_servers == ()
