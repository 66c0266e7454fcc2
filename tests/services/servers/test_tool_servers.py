"""The state of servers, their secrets, and calls of their tools, from the main thread."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keyring
import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import RdchatError
from rdchat.services.servers.tool_servers import ToolServers
from rdchat.tools.built_in import FOLDER, TIME
from rdchat.tools.definitions import ToolDefinition, ToolResult, ToolServer
from rdchat.work.job import CancelledError
from tests.hub.keychains import Keychain, PlainText
from tests.tools.running import hostile

CLOCK = "rdchat-clock"
TIME_ON = ToolServer(CLOCK, (TIME,), enabled=True, confirmed=True)


def switched_on(behaviour: str, name: str = "hostile", *secrets: str) -> ToolServer:
    """Return a hostile server that the person has confirmed and switched on."""
    return hostile(behaviour, name, secrets=secrets, enabled=True, confirmed=True)


class Fixture:
    """Servers of tools, and what they saved."""

    def __init__(self, qtbot: QtBot) -> None:
        self._qtbot = qtbot
        self.saved: list[tuple[ToolServer, ...]] = []
        self.servers = ToolServers((), self.saved.append)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        self._qtbot.waitUntil(is_so)

    def started(self, name: str) -> tuple[ToolDefinition, ...]:
        """Start a server and return its tools."""
        self.servers.start_server(name)
        self.wait_for(lambda: self.servers.server_state(name).status != "starting")
        return self.servers.definitions([name])

    def call(self, definition: ToolDefinition, arguments: str = "{}") -> Any:
        """Return the result, or the error."""
        ends: list[Any] = []
        try:
            self.servers.call_tool(definition, arguments, ends.append)
        except RdchatError as error:
            return error
        self.wait_for(lambda: bool(ends))
        return ends[0]


@pytest.fixture
def tools(qtbot: QtBot) -> Iterator[Fixture]:
    fixture = Fixture(qtbot)
    yield fixture
    fixture.servers.end_servers()


@pytest.fixture(autouse=True)
def keychain() -> Keychain:
    keyring.set_keyring(keychain := Keychain())
    return keychain


def test_servers_that_come_with_rdchat_are_there_and_off(tools: Fixture) -> None:
    assert [server.name for server in tools.servers.servers] == ["rdchat-folder", "rdchat-clock"]
    tools.servers.start_server(CLOCK)
    assert tools.servers.server_state(CLOCK).status == "stopped"


def test_servers_of_old_settings_that_come_with_rdchat_get_their_names(qtbot: QtBot) -> None:
    old = ToolServer("folder", (FOLDER, "/notes"), enabled=True), ToolServer("time", (TIME,), enabled=True)
    servers = ToolServers((*old, ToolServer("files", ("npx",))), lambda _servers: None)
    assert [each.name for each in servers.servers] == ["rdchat-folder", "rdchat-clock", "files"]
    assert [each.command for each in servers.servers] == [(FOLDER, "/notes"), (TIME,), ("npx",)]
    assert all(each.enabled for each in servers.servers[:2])
    servers.put(ToolServer("time", ("uvx", "mcp-server-time")))
    assert len(servers.servers) == 4
    servers.end_servers()


def test_a_tool_is_called_as_it_was_shown(tools: Fixture, tmp_path: Path) -> None:
    tools.servers.put(TIME_ON)
    (definition,) = tools.started(CLOCK)
    assert (definition.full_name, definition.read_only, definition.remote) == (f"{CLOCK}__current_time", True, False)
    result = tools.call(definition, json.dumps({"zone": "Asia/Kathmandu"}))
    assert isinstance(result, ToolResult)
    assert result.text.endswith("+05:45")
    assert tools.servers.server_state(CLOCK).status == "running"
    assert tools.call(definition, json.dumps({"zone": 5})).is_error
    for changed in (replace(definition, description="Other."), replace(definition, origin="other")):
        error = tools.call(changed)
        assert isinstance(error, RdchatError)
        assert "is not what it was" in str(error)
    assert tools.saved == [(TIME_ON,)]
    (tmp_path / "plan.md").write_text("Buy milk.")
    tools.servers.put(ToolServer("rdchat-folder", (FOLDER, str(tmp_path)), enabled=True, confirmed=True))
    read = {each.name: each for each in tools.started("rdchat-folder")}["read_file"]
    assert tools.call(read, '{"path": "plan.md"}') == ToolResult("Buy milk.")
    tools.servers.remove_server("rdchat-folder")
    assert "is not what it was" in str(tools.call(read))


def test_secrets_are_in_the_keychain_alone(tools: Fixture, keychain: Keychain) -> None:
    tools.servers.put(switched_on("environment", "spy", "KEY"), {"KEY": "sesame"})
    (definition,) = tools.started("spy")
    assert json.loads(tools.call(definition).text)["KEY"] == "•••", "the program has it"
    assert list(keychain.kept.values()) == ['{"KEY": "sesame"}']
    assert "sesame" not in repr(tools.saved) + repr(tools.servers.server_state("spy"))
    tools.servers.remove_server("spy")
    tools.wait_for(lambda: keychain.kept == {})
    assert tools.saved[-1] == ()


@pytest.mark.parametrize("backend", [Keychain, PlainText])
@pytest.mark.parametrize("edited", [False, True])
def test_another_server_of_the_same_name_gets_no_key(tools: Fixture, backend: type[Keychain], edited: bool) -> None:
    """One in a restored backup got it, once it was confirmed; Undo brings one's own server back, with its key."""
    keyring.set_keyring(backend())
    mine = switched_on("environment", "spy", "KEY")
    theirs = replace(mine, environment={"SEND_TO": "them"})
    tools.servers.put(replace(mine, environment={"SITE": "a"}), {"KEY": "sesame"})
    tools.servers.put(mine)
    tools.servers.replace_servers([theirs])
    if edited:
        tools.servers.put(replace(theirs, enabled=False))
        tools.servers.put(theirs)
    assert not tools.started("spy")
    assert tools.servers.server_state("spy").problem.startswith("The keychain has no KEY for the server spy.")
    tools.servers.replace_servers([mine])
    (definition,) = tools.started("spy")
    assert json.loads(tools.call(definition).text)["KEY"] == "•••", "its own key, also after its edit"


def test_a_secret_that_is_missing_is_named(tools: Fixture) -> None:
    tools.servers.put(switched_on("good", "hostile", "KEY"))
    tools.started("hostile")
    problem = "The keychain has no KEY for the server hostile. Enter it again in Settings > Tools."
    assert tools.servers.server_state("hostile").problem == problem


@pytest.mark.slow
def test_without_a_keychain_a_secret_is_kept_until_the_end(tools: Fixture) -> None:
    keyring.set_keyring(PlainText())
    tools.servers.put(switched_on("environment", "spy", "KEY"), {"KEY": "sesame"})
    (definition,) = tools.started("spy")
    assert json.loads(tools.call(definition).text)["KEY"] == "•••", "the program has it"


def test_imported_servers_wait_for_the_person(tools: Fixture, keychain: Keychain) -> None:
    env = {"KEY": "sesame", "SITE": "https://a.test", "DB": "postgres://me:hidden@a.test/db"}
    text = json.dumps({"mcpServers": {"time": {"command": "uvx", "env": env, "cwd": "/"}}})
    imported = tools.servers.read_servers(text)
    assert imported.problems == ("time: these were ignored: cwd.",)
    assert imported.optional == [("time", "KEY"), ("time", "SITE")], "an address with a password is always a key"
    tools.servers.import_servers(imported, {("time", "SITE")})
    expected = ToolServer("time", ("uvx",), environment={"SITE": env["SITE"]}, secrets=("KEY", "DB"), keys_chosen=True)
    assert tools.servers.servers[-1] == expected
    kept = {name: env[name] for name in ("KEY", "DB")}
    tools.wait_for(lambda: list(keychain.kept.values()) == [json.dumps(kept)])
    tools.started("time")
    assert tools.servers.server_state("time").status == "stopped"


@pytest.mark.slow
def test_a_server_that_breaks_says_so_and_can_start_again(tools: Fixture) -> None:
    tools.servers.put(switched_on("dies"))
    for _ in range(2):
        (definition,) = tools.started("hostile")
        assert str(tools.call(definition)) == "The server hostile ended by itself (status 3)."
        tools.wait_for(lambda: tools.servers.server_state("hostile").status == "failed")
        assert tools.servers.server_state("hostile").problem == "The server hostile ended by itself (status 3)."
        assert str(tools.call(definition)) == "The server hostile ended by itself (status 3)."
    tools.servers.put(switched_on("ends at once"))
    tools.started("hostile")
    tools.wait_for(lambda: tools.servers.server_state("hostile").error_output == "I cannot.")
    assert tools.servers.definitions(["hostile", "nobody"]) == ()


@pytest.mark.slow
def test_a_call_is_stopped_while_its_server_goes_on_and_ends_with_its_server(tools: Fixture) -> None:
    tools.servers.put(switched_on("hang in a call"))
    (definition,) = tools.started("hostile")
    ends: list[Any] = []
    tools.servers.call_tool(definition, "{}", ends.append).cancel()
    tools.wait_for(lambda: bool(ends))
    assert isinstance(ends.pop(), CancelledError)
    assert tools.servers.server_state("hostile").status == "running"
    tools.servers.call_tool(definition, "{}", ends.append)
    tools.wait_for(tools.servers._child._last_sent.is_set)
    tools.servers.put(hostile("hang in a call"))
    tools.wait_for(lambda: bool(ends))
    assert str(ends[0]) == "The server hostile was stopped."


def test_the_login_path_is_read(tools: Fixture) -> None:
    assert tools.servers.login_path == ""
    tools.servers.read_login_path()
    tools.wait_for(lambda: tools.servers.login_path.startswith("/"))
