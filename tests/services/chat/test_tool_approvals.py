"""Approvals of tools end with their server: whatever of it changes, the next call waits for the person."""

from collections.abc import Iterator
from dataclasses import replace

import keyring
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies as st

from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.servers.tool_servers import ToolServers
from rdchat.tools.definitions import ToolServer
from tests.grids import share
from tests.hub.keychains import Keychain
from tests.services.tool_chats import ANSWER, approve, ask
from tests.services.tool_fakes import READ, calling, read
from tests.services.window import Window

type State = tuple[ToolServer, dict[str, str]]
"""A server, and new values of its secrets."""

WORDS = st.text("abc/.", min_size=1, max_size=4)
NAMED = st.dictionaries(st.sampled_from(["KEY", "ROOT", "PATH"]), WORDS, max_size=2)
PROGRAMS = st.tuples(st.lists(WORDS, min_size=1, max_size=3).map(tuple), st.just(""))
# Of another computer, no tool can be approved for always.
ADDRESSES = st.tuples(st.just(()), WORDS.map(lambda word: f"http://localhost/{word}"))


@st.composite
def servers_of_tools(draw: st.DrawFn) -> ToolServer:
    (command, url), environment, secrets = draw(PROGRAMS | ADDRESSES), draw(NAMED), tuple(draw(NAMED))
    return ToolServer("files", command, url, environment, secrets, enabled=True, confirmed=True)


KINDS = ("removal", "target", "environment", "names of secrets", "values of secrets")


def changed(draw: st.DrawFn, server: ToolServer, kind: str) -> State | None:
    """Draw what a server is changed to; None removes it."""
    other = draw(servers_of_tools())
    match kind:
        case "removal":
            return None
        case "target":
            after = replace(server, command=other.command, url=other.url)
        case "environment":
            after = replace(server, environment=other.environment)
        case "names of secrets":
            after = replace(server, secrets=other.secrets)
            assume({*after.secrets} != {*server.secrets})
        case _:
            return replace(server, secrets=("KEY",)), {"KEY": draw(WORDS)}
    assume(after != server)
    return after, {}


class ListedServers(ToolServers):
    """Servers that list their tool as if they ran."""

    def start_server(self, name: str) -> None:
        """Start no program."""

    def change(self, state: State | None, *, runs: bool = True) -> None:
        """Put a server, which may run, or remove `files`."""
        if state is not None:
            self.put(*state)
        if state is not None and runs:
            tool = replace(READ, server=state[0].name, origin=state[0].origin)
            self._set(tool.server, status="running", definitions=(tool,))
        if state is None and self.servers[-1].name == "files":
            self.remove_server("files")


@pytest.fixture
def servers() -> Iterator[ListedServers]:
    keyring.set_keyring(Keychain())
    listed = ListedServers((), lambda _servers: None)
    yield listed
    listed.end_servers()


@pytest.mark.parametrize("kind", share(KINDS))
# A failing example is not made smaller: each takes three replies.
@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), servers_of_tools(), st.booleans(), st.sampled_from([Scope.CHAT, Scope.ALWAYS]))
def test_any_change_of_a_server_ends_the_approvals_of_its_tools(
    window: Window,
    servers: ListedServers,
    kind: str,
    data: st.DataObject,
    server: ToolServer,
    is_undone: bool,
    scope: Scope,
) -> None:
    server = replace(server, secrets=("KEY",)) if kind == "values of secrets" else server
    change = changed(data.draw, server, kind)
    servers.change(None)
    servers.change((server, {}))
    window.chat.start_new()
    window.chat.set_tools(("files",), ())
    ask(window, calling(read()), calling(read()), ANSWER)
    approve(window, scope)
    assert not window.calls.waiting, "the second call is approved"
    servers.change(change, runs=not is_undone)
    assert window.settings.values.tool_approvals == ()
    if is_undone or change is None:
        servers.change((server, {}))
    ask(window)
    assert len(window.calls.waiting) == 1


@pytest.mark.parametrize("scope", [Scope.CHAT, Scope.ALWAYS])
def test_an_approval_outlives_a_server_that_is_switched_off_and_on(
    window: Window, servers: ListedServers, scope: Scope
) -> None:
    server = ToolServer("files", ("a",), secrets=("KEY",), enabled=True, confirmed=True)
    servers.change((server, {"KEY": "sesame"}))
    window.chat.set_tools(("files",), ())
    ask(window)
    approve(window, scope)
    servers.change((replace(server, enabled=False), {}))
    servers.change((server, {}))
    servers.change((ToolServer("web", ("b",)), {"KEY": "other"}))
    ask(window)
    assert not window.calls.waiting
