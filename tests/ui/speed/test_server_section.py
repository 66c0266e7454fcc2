"""The section of the server in the speed panel."""

import pytest

from rdchat.server.server_settings import Phase, RequestFacts, ServerFacts
from rdchat.services.server_control import ServerControl
from rdchat.ui.speed.speed_panel import ServerSection
from rdchat.ui.style import formatting
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

ADDRESS = "http://127.0.0.1:8817"
RUNNING = RequestFacts(7, "/v1/messages", "agent/1", "tiny", Phase.WRITING, 412, 38.24, 0.64)
NEXT = RequestFacts(8, "/v1/messages", "", "tiny", Phase.WAITING)


def tell(server: ServerControl, facts: ServerFacts) -> None:
    """Tell the views of facts that a server would have."""
    server.facts = facts
    server.facts_changed.emit(facts)
    server.changed.emit()


@pytest.fixture
def section(window: MainWindow, chat: Chat) -> ServerSection:
    chat.start()
    return window.panel.server


def test_it_is_there_while_the_server_runs(section: ServerSection, chat: Chat) -> None:
    assert not section.isVisible()
    tell(chat.controller.server, ServerFacts(ADDRESS, answered=3))
    assert section.isVisible()
    assert (section.client.text(), section.doing.text()) == ("No requests", "3 requests answered")
    assert section.speed.value.text() == formatting.NONE
    assert not section.stop.isVisible()
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING))
    tell(chat.controller.server, ServerFacts(ADDRESS, answered=4))
    assert (section.client.text(), section.doing.text()) == ("agent/1", "4 requests answered")
    assert section.speed.value.text() == "38.2"
    tell(chat.controller.server, ServerFacts(""))
    assert not section.isVisible()


def test_who_is_answered_and_how_many_wait(section: ServerSection, chat: Chat) -> None:
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING, (NEXT, NEXT)))
    assert (section.client.text(), section.doing.text()) == ("agent/1", "Writing  ·  412 tokens")
    figures = (section.speed, section.accepted, section.waiting)
    assert [row.value.text() for row in figures] == ["38.2", formatting.percent(0.64), "2"]


def test_stop_ends_the_request(section: ServerSection, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    monkeypatch.setattr(chat.controller.server, "cancel_request", stopped.append)
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING))
    section.stop.click()
    assert stopped == [7]


def test_a_reply_in_the_window_holds_a_client_s_up(section: ServerSection, chat: Chat) -> None:
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING))
    chat.engine.gate.shut()
    chat.controller.send("Hi")
    chat.qtbot.waitUntil(lambda: section.doing.text() == "Waits until your reply ends  ·  412 tokens")
    chat.engine.gate.open()
    chat.qtbot.waitUntil(lambda: section.doing.text() == "Writing  ·  412 tokens")


def test_a_program_may_have_no_name(section: ServerSection, chat: Chat) -> None:
    tell(chat.controller.server, ServerFacts(ADDRESS, NEXT))
    assert section.client.text() == "A program without a name"
