"""Servers over HTTP: answers, headers, redirects and limits."""

from collections.abc import Iterator

import pytest

from rdchat.errors import RdchatError
from rdchat.tools.definitions import ToolServer
from rdchat.work.child_process import ChildProcess
from tests.tools.http_server import HttpToolServer, http_tool_server
from tests.tools.running import Run, tools_child

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[HttpToolServer]:
    with http_tool_server() as server:
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
    assert str(refused.value) == "The server web refused the connection: Server returned an error response."


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
        ("large event", "The server web broke off its answer, or it was too long."),
        ("flood", "The server web sent too much, so it was ended."),
        ("packed", "The server web sent a compressed answer, which is refused."),
        ("breaks", "The server web broke off its answer, or it was too long."),
        ("page", "The tool do was refused: Unexpected content type: text/html."),
        ("half", "The tool do gave an answer that is not valid."),
        ("half event", "The tool do gave an answer that is not valid."),
        ("500", "The tool do was refused: Server returned an error response."),
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


def test_a_first_answer_that_cannot_be_parsed_is_not_quoted(child: ChildProcess, server: HttpToolServer) -> None:
    with pytest.raises(RdchatError, match=r"^The server web gave an answer that is not valid\.$"):
        Run(child, ToolServer("web", url=server.url("half at start"))).job.result()


def test_a_server_that_is_not_there_is_named(child: ChildProcess, server: HttpToolServer) -> None:
    with pytest.raises(RdchatError) as failed:
        Run(child, ToolServer("web", url="http://127.0.0.1:9/mcp")).job.result()
    assert str(failed.value) == "The server web cannot be reached."
