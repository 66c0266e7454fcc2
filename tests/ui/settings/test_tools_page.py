"""The page of servers of tools, through its widgets: add, confirm, edit, remove, import."""

import json
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QListWidget
from pytestqt.qtbot import QtBot

from rdchat.services.servers.tool_servers import ServerState, ToolServers
from rdchat.tools.definitions import ToolServer
from rdchat.ui.settings.tools_page import ToolServerSheet, ToolsPage, state_text
from rdchat.ui.style import CodeField, Sheet, Theme
from tests.hub.keychains import Keychain
from tests.ui.shown_widgets import answer_question, choose_files, click_on, focus_on, press_key, shown_child
from tests.ui.transcript.conftest import button

CHECKED = Qt.CheckState.Checked


@pytest.fixture
def servers(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolServers]:
    """Servers whose starts are only noted, with a keychain of their own."""
    keyring.set_keyring(Keychain())
    monkeypatch.setattr(ToolServers, "read_login_path", lambda servers: setattr(servers, "login_path", "/bin:/usr/bin"))
    usable = lambda servers, name: [each.name for each in servers.usable if each.name == name]  # noqa: E731
    monkeypatch.setattr(
        ToolServers, "start_server", lambda servers, name: servers.started.extend(usable(servers, name))
    )
    servers = ToolServers((), lambda _servers: None)
    servers.started = []  # type: ignore[attr-defined]
    yield servers
    servers.end_servers()


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, servers: ToolServers) -> ToolsPage:
    page = ToolsPage(theme, lambda **_values: None, servers)
    qtbot.addWidget(page)
    page.show()
    return page


def named(servers: ToolServers, name: str) -> ToolServer:
    return next(each for each in servers.servers if each.name == name)


def shown_text(sheet: Sheet) -> str:
    (field,) = sheet.findChildren(CodeField)
    return field.toPlainText()


def add(qtbot: QtBot, page: ToolsPage, name: str, target: str, values: str = "") -> ToolServerSheet:
    click_on(button(page, "Add Tools…"))
    sheet = page.findChildren(ToolServerSheet)[-1]
    qtbot.keyClicks(sheet.name, name)
    sheet.target.setText(target)
    sheet.values.setPlainText(values)
    press_key(sheet.target, "Return")
    return sheet


def test_what_comes_with_rdchat_is_there_and_off(page: ToolsPage) -> None:
    texts = [page.list.item(row).text() for row in range(page.list.count())]
    assert texts == ["Folder\nOff", "Clock\nOff"]
    assert page.target.text() == "No folder is chosen."
    assert page.edit.isEnabled(), "it changes the folder"
    assert not page.remove.isEnabled()


def test_an_added_server_shows_its_command_before_it_starts(
    qtbot: QtBot, page: ToolsPage, servers: ToolServers
) -> None:
    add(qtbot, page, "files", "npx 'a b' \u202egnp", "KEY=secret")
    server = named(servers, "files")
    assert (server.command, server.secrets, server.enabled) == (("npx", "a b", "\u202egnp"), ("KEY",), False)
    sheet = page.findChildren(Sheet)[-1]
    assert shown_text(sheet) == "npx\n    'a b'\n    '⟨U+202E⟩gnp'\n\nWith KEY", "a line broke within a word"
    assert sheet.title.text() == "Start “files”?"
    assert not sheet.buttons[-1].isDefault()
    press_key(sheet, "Esc")
    assert not servers.started  # type: ignore[attr-defined]
    page.list.item(2).setCheckState(Qt.CheckState.Checked)
    assert page.list.item(2).checkState() is Qt.CheckState.Unchecked
    click_on(page.findChildren(Sheet)[-1].buttons[-1])
    assert named(servers, "files").confirmed
    assert page.list.item(2).checkState() is Qt.CheckState.Checked
    assert servers.started == ["files"]  # type: ignore[attr-defined]
    page.list.item(2).setCheckState(Qt.CheckState.Unchecked)
    assert not named(servers, "files").enabled


def test_the_buttons_stay_where_they_are_when_another_server_is_chosen(page: ToolsPage, servers: ToolServers) -> None:
    """They jumped, and Add Tools was missed."""
    servers.put(ToolServer("web", url="https://a.test/mcp"))
    places = set()
    for row in range(3):
        page.list.setCurrentRow(row)
        page.grab()
        buttons = (button(page, "Add Tools…"), page.edit, page.remove, page.output)
        assert all(each.isVisible() for each in buttons)
        places.add(tuple(each.geometry().getRect() for each in buttons))
    assert len(places) == 1


def test_what_is_wrong_is_said_in_the_sheet(qtbot: QtBot, page: ToolsPage, servers: ToolServers) -> None:
    for name, target, values, problem in (
        ("rdchat-clock", "npx a", "", "There are tools named rdchat-clock already."),
        ("a b", "npx a", "", "has another name than"),
        ("a", "npx 'a", "", "a quote that does not end"),
        ("a", "http://example.test", "", "needs an address with https://"),
        ("a", "npx a", "KEY", "KEY has no value."),
    ):
        sheet = add(qtbot, page, name, target, values)
        assert problem in sheet.status.text()
        sheet.close()
    assert len(servers.servers) == 2


def test_editing_keeps_keys_that_are_not_shown_and_asks_again(page: ToolsPage, servers: ToolServers) -> None:
    servers.put(ToolServer("web", url="https://a.test/mcp", secrets=("One", "Two"), enabled=True, confirmed=True))
    page.list.setCurrentRow(2)
    assert "Data leaves this" in page.list.item(2).text()
    click_on(page.edit)
    sheet = page.findChildren(ToolServerSheet)[-1]
    assert sheet.values.toPlainText() == "One\nTwo"
    sheet.values.setPlainText("Two")
    click_on(sheet.buttons[-1])
    assert named(servers, "web").secrets == ("Two",)
    assert named(servers, "web").confirmed
    click_on(page.edit)
    sheet = page.findChildren(ToolServerSheet)[-1]
    sheet.target.setText("https://b.test/mcp")
    click_on(sheet.buttons[-1])
    assert not named(servers, "web").confirmed
    assert shown_text(page.findChildren(Sheet)[-1]).startswith("https://b.test/mcp")


def test_a_server_is_removed_after_a_question(page: ToolsPage, servers: ToolServers) -> None:
    servers.put(ToolServer("files", ("npx",)))
    page.list.setCurrentRow(2)
    click_on(page.remove)
    answer_question(page, "Remove")
    assert len(servers.servers) == 2


def test_a_list_is_imported_and_what_is_not_understood_is_named(
    page: ToolsPage, servers: ToolServers, tmp_path: Path
) -> None:
    file = tmp_path / "mcp.json"
    entries = {"good": {"command": "npx", "args": ["x"], "cwd": "/"}, "bad": {"type": "sse", "url": "https://a.test"}}
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    page.import_file([str(file)])
    assert page.result.text().startswith("Imported the tools of 1 server, off until you switch them on.")
    assert "bad was left out." in page.result.text()
    assert "cwd" in page.result.text()
    assert not named(servers, "good").enabled
    page.import_file([str(tmp_path / "none.json")])
    assert page.result.text().startswith("none.json cannot be read")


def test_an_import_asks_which_variables_are_secret(page: ToolsPage, servers: ToolServers, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    env = {"JIRA_URL": "https://a.test", "JIRA_TOKEN": "ghp_1", "ODD": "sesame"}
    entries = {"jira": {"command": "uvx", "env": env}, "web": {"url": "https://a.test", "headers": {"Site": "a"}}}
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    page.import_file([str(file)])
    sheet = page.findChildren(Sheet)[-1]
    boxes = shown_child(sheet, QListWidget)
    texts = [(boxes.item(row).text(), boxes.item(row).checkState() is CHECKED) for row in range(boxes.count())]
    assert texts == [("jira: JIRA_URL=https://a.test", False), ("jira: JIRA_TOKEN", True), ("jira: ODD=sesame", False)]
    assert len(servers.servers) == 2, "nothing is stored yet"
    focus_on(boxes)
    for key in ("Down", "Down", "Space", "Return"):
        press_key(boxes, key)
    jira = named(servers, "jira")
    assert (jira.environment, jira.secrets) == ({"JIRA_URL": "https://a.test"}, ("JIRA_TOKEN", "ODD"))
    assert (named(servers, "web").environment, named(servers, "web").secrets) == ({}, ("Site",))
    page.list.item(2).setCheckState(CHECKED)
    assert shown_text(page.findChildren(Sheet)[-1]).endswith("With JIRA_URL=https://a.test, JIRA_TOKEN, ODD")


def test_a_variable_is_no_key_once_it_stands_under_variables(page: ToolsPage, servers: ToolServers) -> None:
    servers.put(ToolServer("jira", ("uvx",), environment={"A": " 1"}, secrets=("JIRA_URL", "TOKEN")))
    page.list.setCurrentRow(2)
    click_on(page.edit)
    sheet = page.findChildren(ToolServerSheet)[-1]
    assert (sheet.values.toPlainText(), sheet.variables.toPlainText()) == ("JIRA_URL\nTOKEN", "A= 1")
    sheet.values.setPlainText("TOKEN")
    sheet.variables.setPlainText("A= 1\nJIRA_URL")
    click_on(sheet.buttons[-1])
    assert "JIRA_URL has no value." in sheet.status.text()
    sheet.variables.setPlainText("A= 1\nJIRA_URL=https://a.test")
    click_on(sheet.buttons[-1])
    expected = {"A": " 1", "JIRA_URL": "https://a.test"}
    assert (named(servers, "jira").environment, named(servers, "jira").secrets) == (expected, ("TOKEN",))
    assert named(servers, "jira").keys_chosen


def test_the_folder_is_chosen_before_it_is_on(page: ToolsPage, servers: ToolServers, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to("notes")
    page.list.item(0).setCheckState(Qt.CheckState.Checked)
    assert not named(servers, "rdchat-folder").enabled
    choose_files(page.window(), tmp_path / "link")
    assert named(servers, "rdchat-folder").enabled
    assert page.target.text() == str((tmp_path / "notes").resolve()), "a link is the folder that it means"


def test_tools_that_cannot_be_used_are_named(page: ToolsPage, servers: ToolServers) -> None:
    problems = tuple(f"The tool {number} cannot be used: it is no object." for number in range(9))
    servers._set("rdchat-folder", status="running", tool_problems=problems)
    assert page.problem.text() == " ".join(problems[:5])


def test_the_folders_of_programs_are_listed(page: ToolsPage, servers: ToolServers) -> None:
    """A message says that this page shows where rdchat looks."""
    page.show_servers()
    joined = "Programs are looked for in /\N{WORD JOINER}bin, /\N{WORD JOINER}usr/\N{WORD JOINER}bin."
    assert page.path.text() == joined, "no line breaks within a folder"
    servers.login_path = ""
    page.show_servers()
    assert not page.path.isVisible()


def test_states_are_words() -> None:
    server = ToolServer("a", ("a",), enabled=True)
    states = [
        ServerState(),
        ServerState("starting"),
        ServerState("running", tool_problems=("a", "b")),
        ServerState("failed"),
    ]
    texts = [state_text(server, each) for each in states]
    assert texts == ["Starts when needed", "Starting…", "0 tools, 2 cannot be used", "Failed: "]
