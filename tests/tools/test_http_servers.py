"""Servers over HTTP: answers, headers, redirects and limits."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from rdchat.errors import RdchatError
from rdchat.tools.definitions import ServerLimits, ToolServer
from rdchat.tools.streams import _limit_response
from rdchat.work.child_process import ChildProcess
from tests.serving import in_background
from tests.tools.http_server import HttpToolServer
from tests.tools.running import Run, tools_child

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[HttpToolServer]:
    with in_background(HttpToolServer()) as server:
        yield server


@pytest.fixture(scope="module")
def child() -> Iterator[ChildProcess]:
    with tools_child() as child:
        yield child


@pytest.mark.parametrize("mode", ["good", "events", "slash"])
def test_answers(child: ChildProcess, server: HttpToolServer, mode: str) -> None:
    run = Run(child, ToolServer("web", url=server.url(mode)))
    assert run.call()["text"] == "done"
    run.stop()


def test_a_key_goes_to_its_server_in_a_header(child: ChildProcess, server: HttpToolServer) -> None:
    run = Run(child, ToolServer("web", url=server.url("key")), Authorization="Bearer sesame")
    assert run.call()["text"] == "done"
    run.stop()
    with pytest.raises(RdchatError) as refused:
        Run(child, ToolServer("web", url=server.url("key")), Authorization="Bearer wrong").job.result()
    assert str(refused.value) == "The server web refused the connection: it needs a valid key (HTTP 401)."


def test_another_host_is_refused_and_gets_nothing(child: ChildProcess, server: HttpToolServer) -> None:
    server.headers.clear()
    with pytest.raises(RdchatError) as refused:
        Run(child, ToolServer("web", url=server.url("elsewhere")), Authorization="Bearer sesame").job.result()
    assert str(refused.value) == "The server web leads to another host, localhost, which is refused."
    assert len(server.headers) == 1


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("large", "The tool do was refused: Failed to parse JSON response: its answer has more than 32 MB."),
        ("list", "The tool do gave an answer that is not valid."),
        ("large event", "The tool do broke off its answer, or it was too long."),
        ("flood", "The server web sent too much, so it was ended."),
        ("packed", "The server web sent a compressed answer, which is refused."),
        ("breaks", "The tool do broke off its answer, or it was too long."),
        ("page", "The tool do was refused: Unexpected content type: text/html."),
        ("half", "The tool do gave an answer that is not valid."),
        ("half event", "The tool do gave an answer that is not valid."),
        ("own error", "The tool do was refused: No such city: 7."),
        ("own error event", "The tool do was refused: No such city: 7."),
        ("leaves", "The server web cannot be reached."),
        ("closed event", "The tool do was refused: Connection closed."),
        ("400", "The tool do was refused: it answered with HTTP 400: No such city."),
        ("403", "The tool do was refused: it does not allow this (HTTP 403)."),
        ("429", "The tool do was refused: it gets too many requests, so try again later (HTTP 429)."),
        ("500", "The tool do was refused: it answered with HTTP 500."),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    child: ChildProcess, server: HttpToolServer, mode: str, problem: str
) -> None:
    run = Run(child, ToolServer("web", url=server.url(mode)))
    with pytest.raises(RdchatError) as refused:
        run.call()
    assert str(refused.value) == problem
    run.stop()


def test_a_session_that_ended_is_begun_again_and_the_call_repeated(child: ChildProcess, server: HttpToolServer) -> None:
    run = Run(child, ToolServer("web", url=server.url("ends")))
    run.listed()
    begun = server.session
    server.calls = 0
    assert [run.call()["text"] for _ in range(3)] == ["done"] * 3
    assert (server.session - begun, server.calls, len(run.tools)) == (2, 3, 2)
    run.stop()


def test_calls_at_once_begin_one_session(child: ChildProcess, server: HttpToolServer) -> None:
    run = Run(child, ToolServer("web", url=server.url("ends")))
    run.listed()
    server.calls = 0
    run.call()
    ended = server.session
    calls = [run.submit("do") for _ in range(5)]
    assert [call.result()["text"] for call in calls] == ["done"] * 5
    assert (server.session - ended, server.calls) == (1, 6)
    run.stop()


def test_a_tool_that_changed_with_the_session_is_not_run(child: ChildProcess, server: HttpToolServer) -> None:
    run = Run(child, ToolServer("web", url=server.url("ends with other tools")))
    (shown,) = run.listed()
    server.calls = 0
    run.call()
    request = {"server": "web", "tool": shown, "arguments": "{}"}
    with pytest.raises(RdchatError, match="not what it was when it was shown"):
        child.submit("call", request).result()
    assert server.calls == 1
    assert run.listed(2)[0]["description"] != shown["description"]
    assert run.call()["text"] == "done"
    run.stop()


@pytest.mark.parametrize(
    ("mode", "problem", "calls"),
    [
        ("ends at each call", "The server web ended its session.", 2),
        ("no such session", "The tool do was refused: Session not found: 7.", 1),
        ("ends for good", "The server web refused the connection: it does not allow this (HTTP 403).", 1),
    ],
)
def test_a_call_is_repeated_once_and_only_where_a_session_ended(
    child: ChildProcess, server: HttpToolServer, mode: str, problem: str, calls: int
) -> None:
    server.session = 0
    run = Run(child, ToolServer("web", url=server.url(mode)))
    run.listed()
    server.calls = 0
    if mode == "ends for good":
        assert run.call()["text"] == "done"
    with pytest.raises(RdchatError) as refused:
        run.call()
    assert (str(refused.value), server.calls) == (problem, calls)
    run.stop()


@pytest.mark.parametrize(
    ("message", "noted"),
    [
        ({"id": 3, "method": "tools/call"}, {3: ""}),
        ({"id": 3, "result": {}}, {None: ""}),
        ({"method": "notifications/initialized"}, {None: ""}),
    ],
)
def test_the_refusal_of_an_answer_is_not_that_of_a_call_of_its_number(
    message: dict[str, Any], noted: dict[int | None, str]
) -> None:
    connection = SimpleNamespace(refusals={}, limits=ServerLimits())
    request = httpx2.Request("POST", "http://localhost", json=message, headers={"mcp-session-id": "1"})
    asyncio.run(_limit_response(connection, httpx2.Response(404, request=request)))  # type: ignore[arg-type]
    assert connection.refusals == noted


def test_a_first_answer_that_cannot_be_parsed_is_not_quoted(child: ChildProcess, server: HttpToolServer) -> None:
    with pytest.raises(RdchatError, match=r"^The server web gave an answer that is not valid\.$"):
        Run(child, ToolServer("web", url=server.url("half at start"))).job.result()


def test_a_server_that_is_not_there_is_named(child: ChildProcess, server: HttpToolServer) -> None:
    with pytest.raises(RdchatError) as failed:
        Run(child, ToolServer("web", url="http://127.0.0.1:9/mcp")).job.result()
    assert str(failed.value) == "The server web cannot be reached."
