"""Servers, names for models, fingerprints, and lists of other programs."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as some

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.tools.definitions import MAX_TOOLS, ToolDefinition, ToolServer, listed_tools
from rdchat.tools.imported_servers import read_servers
from tests.tools.damage import ODD

TOOL = ToolDefinition("files", "read", "Reads.", {"type": "object"}, True, False, "origin")


REFUSED: dict[str, tuple[Any, ...]] = {
    "name": ("", "a b", "a__b", "x" * 25, "a\n"),
    "command": ((), ("",), ("a\0b",)),
    "url": (
        "ftp://tools.example",
        "https://",
        "https://key@tools.example",
        "https://tools.example/a b",
        "https://tools.example:99999",
        "http://tools.example",
        "HTTP://tools.example",
        "http://localhost.tools.example",
        "http://127.0.0.1.tools.example",
    ),
}


@pytest.mark.parametrize(("field", "value"), [(field, each) for field, values in REFUSED.items() for each in values])
def test_what_is_no_server_is_refused(field: str, value: Any) -> None:
    command = () if field == "url" else ("npx",)
    with pytest.raises(InvalidSettingError):
        ToolServer(**{"name": "files", "command": command, field: value})


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("https://tools.example/mcp", True),
        ("https://10.0.0.1", True),
        ("http://127.0.0.1:8000/mcp", False),
        ("http://[::1]:8000", False),
        ("http://localhost", False),
    ],
)
def test_a_server_is_remote_unless_it_is_this_computer(url: str, remote: bool) -> None:
    assert ToolServer("web", url=url).is_remote is remote
    assert not ToolServer("files", ("npx",)).is_remote


def test_full_names_are_names_for_models() -> None:
    assert TOOL.full_name == "files__read"
    names = [replace(TOOL, name=name).full_name for name in ("a.b", "a b", "a/b", "x" * 64, "x" * 65, "é" * 100)]
    assert len({*names}) == len(names)
    assert all(name.isascii() and len(name) <= 64 and name.startswith("files__") for name in names)


def test_a_fingerprint_is_of_the_server_and_the_definition() -> None:
    others = [
        {"name": "write"},
        {"description": "Writes."},
        {"parameters": {}},
        {"read_only": False},
        {"remote": True},
        {"origin": "other"},
    ]
    prints = {TOOL.fingerprint, *(replace(TOOL, **other).fingerprint for other in others)}  # type: ignore[arg-type]
    assert len(prints) == len(others) + 1
    server = ToolServer("files", ("npx", "server"))
    assert server.origin == replace(server, enabled=True, confirmed=True).origin
    assert server.origin != replace(server, secrets=("KEY",)).origin
    assert server.origin != replace(server, command=("npx", "other")).origin
    assert server.origin != replace(server, environment={"A": "b"}).origin


def test_lists_of_claude_desktop_and_lm_studio_are_read() -> None:
    entries = {
        "filesystem": {"command": "npx", "args": ["-y", "server", "/Documents"]},
        "@org/Git Hub": {"command": "docker", "env": {"TOKEN": "sesame"}, "disabled": False, "alwaysAllow": ["x"]},
        "remote": {"type": "http", "url": "https://tools.example/mcp", "headers": {"Authorization": "Bearer sesame"}},
        "time": {"command": "uvx", "args": None},
    }
    imported = read_servers(json.dumps({"mcpServers": entries, "theme": "dark"}), {"time", "time-2"})
    assert imported.servers == (
        ToolServer("filesystem", ("npx", "-y", "server", "/Documents")),
        ToolServer("org_Git_Hub", ("docker",), secrets=("TOKEN",)),
        ToolServer("remote", url="https://tools.example/mcp", secrets=("Authorization",)),
        ToolServer("time-3", ("uvx",)),
    )
    assert imported.secrets["org_Git_Hub"] == {"TOKEN": "sesame"}
    assert imported.secrets["remote"] == {"Authorization": "Bearer sesame"}
    assert imported.problems == ("@org/Git Hub: these were ignored: alwaysAllow, disabled.",)
    assert "sesame" not in repr(imported)


def test_lists_with_comments_numbers_and_command_lines_are_read() -> None:
    text = """{
      // of VS Code
      "servers": {
        "notes": {"command": "npx -y 'a server'", "env": {"PORT": 3000, "DEBUG": true, "URL": "https://x//y"},},
        /* with a space */ "app": {"command": "/My App/server", "args": [8, 2.5, "a, ]"]},
      },
    }"""
    imported = read_servers(text)
    assert imported.problems == ()
    assert [server.command for server in imported.servers] == [
        ("npx", "-y", "a server"),
        ("/My App/server", "8", "2.5", "a, ]"),
    ]
    assert imported.secrets["notes"] == {"PORT": "3000", "DEBUG": "true", "URL": "https://x//y"}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("npx", "needs either a command or an address"),
        ({"command": "npx", "url": "https://tools.example"}, "needs either a command or an address"),
        ({"command": ["npx"]}, "are not texts"),
        ({"command": "npx -y 'server"}, "quotation mark"),
        ({"command": "npx", "env": {"A": "\0"}}, "are not texts"),
        ({"command": "rdchat:folder", "args": ["/"]}, "rdchat's own"),
        ({"url": "https://tools.example", "type": "sse"}, "SSE"),
        ({"url": "http://tools.example"}, "not encrypted"),
    ],
)
def test_a_server_that_is_not_understood_is_named(entry: object, problem: str) -> None:
    imported = read_servers(json.dumps({"mcpServers": {"odd": entry, "good": {"command": "npx"}}}))
    assert [server.name for server in imported.servers] == ["good"]
    (said,) = imported.problems
    assert said.startswith("odd was left out. ")
    assert problem in said


@pytest.mark.parametrize("head", ["mcpServers", "servers", ""])
@pytest.mark.parametrize("field", ["url", "httpUrl", "serverUrl"])
def test_lists_of_other_programs_are_read(head: str, field: str) -> None:
    entries = {"a": {"command": "npx"}, "b": {field: "https://tools.example/mcp"}}
    imported = read_servers(json.dumps({head: entries} if head else entries))
    assert imported.servers == (ToolServer("a", ("npx",)), ToolServer("b", url="https://tools.example/mcp"))
    assert imported.problems == ()


@pytest.mark.parametrize(
    ("entry", "problem", "kept"),
    [
        ({"command": "npx", "env": {"KEY": "${input:api-key}", "A": "b"}}, "${input:api-key}", {"A": "b"}),
        ({"command": "npx", "env": {"KEY": "${MY_KEY:-none}"}}, "${MY_KEY:-none}", {}),
        ({"url": "https://x.example", "headers": {"Key": "Bearer ${env:X}"}}, "${env:X}", {}),
        ({"url": "https://x.example/${X}/mcp"}, "${X}", {}),
        ({"command": "npx", "args": ["${workspaceFolder}/data", "a"]}, "${workspaceFolder}", {}),
        ({"command": "npx", "env": {"KEY": "$MY_KEY {x} $(y)"}}, "", {"KEY": "$MY_KEY {x} $(y)"}),
    ],
)
def test_a_place_for_a_value_is_named_and_never_kept_as_a_secret(
    entry: dict[str, Any], problem: str, kept: dict[str, str]
) -> None:
    imported = read_servers(json.dumps({"servers": {"x": entry}, "inputs": [{"id": "api-key"}]}))
    assert imported.problems == ((f"x: fill this in: {problem}.",) if problem else ())
    assert imported.secrets["x"] == kept
    assert imported.servers[0].secrets == (*entry.get("env", entry.get("headers", {})),)


def test_a_place_for_a_value_in_an_entry_that_is_left_out_is_named() -> None:
    imported = read_servers(json.dumps({"x": {"url": "https://${HOST}/mcp", "headers": {"Key": "${KEY}"}}}))
    assert [problem.partition(" ")[0] for problem in imported.problems] == ["x", "x:"]
    assert imported.problems[1] == "x: fill this in: ${HOST}, ${KEY}."


@given(
    some.lists(some.sampled_from("abc"), unique=True),
    some.sampled_from(ODD),
    some.sampled_from(["", "command", "args", "env", "url", "headers", "type", "x-new"]),
    some.integers(0, 3),
)
def test_a_damaged_entry_takes_no_other_away_and_is_named(good: list[str], value: Any, field: str, place: int) -> None:
    entries = [(name, {"command": "npx", "args": [name]}) for name in good]
    odd = {"command": "npx", field: value} if field else value
    listed = dict([*entries[:place], ("odd", odd), *entries[place:]])
    imported = read_servers(json.dumps({"mcpServers": listed}))
    named = {server.name: server.command for server in imported.servers}
    assert [(name, named[name]) for name in good] == [(name, ("npx", name)) for name in good]
    assert "odd" in named or any(problem.startswith("odd was left out. ") for problem in imported.problems)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "1",
        '{"a": {}, "b": {"x": 1}}',
        '{"mcpServers": []}',
        "[" * 100_000,
        " " * 1_000_001,
        "/*" * 400_000,
        '{"\\"' * 300_000,
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(RdchatError, match="neither mcpServers nor servers"):
        read_servers(text)


def test_a_thousand_servers_of_one_name_are_all_read_and_more_are_refused() -> None:
    entries = {" " * number + "x": {"command": "npx"} for number in range(1_000)}
    assert len({server.name for server in read_servers(json.dumps({"mcpServers": entries})).servers}) == 1_000
    with pytest.raises(RdchatError, match=r"more than 1,000 servers"):
        read_servers(json.dumps({"mcpServers": entries | {"y": {"command": "npx"}}}))


def test_a_schema_that_no_request_can_have_is_named() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    endless = {"type": "object", "properties": {"a": {"maximum": float("inf")}}}
    tools, problems = listed_tools([
        {"name": "deep", "inputSchema": deep},
        {"name": "endless", "inputSchema": endless},
        {"name": "good"},
    ])  # fmt: skip
    assert [tool["name"] for tool in tools] == ["good"]
    assert problems[0] == "The tool deep cannot be used: its parameters are nested too deeply."
    assert "endless" in problems[1]


def test_a_server_has_a_limited_number_of_tools() -> None:
    tools, problems = listed_tools([{"name": f"tool{number}"} for number in range(500)])
    assert (len(tools), len(problems)) == (MAX_TOOLS, 500 - MAX_TOOLS)
