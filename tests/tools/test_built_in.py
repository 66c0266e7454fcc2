"""The folder that the person chose, and nothing outside it; the time."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat.tools import built_in
from rdchat.tools.built_in import FOLDER, TIME, BuiltInServer
from rdchat.tools.definitions import ToolServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, beside a secret, and links that lead there."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("sesame")
    root = tmp_path / "root"
    (root / "notes" / "old").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("plan")
    (root / "notes" / "plan.md").write_text("one\nThe Plan\nthree")
    (root / "notes" / "old" / "data.bin").write_bytes(b"plan\0")
    (root / "up").symlink_to(tmp_path / "secret")
    (root / "key").symlink_to(tmp_path / "secret" / "key.txt")
    (root / "inner").symlink_to("notes")
    os.mkfifo(root / "pipe")
    return root


Call = Callable[..., str]


@pytest.fixture
def call(folder: Path) -> Call:
    server = BuiltInServer(ToolServer("folder", (FOLDER, str(folder))))
    return lambda tool, **arguments: run(server, tool, arguments)


def run(server: BuiltInServer, tool: str, arguments: dict[str, Any]) -> str:
    """Return the text of a result; `Error: ` comes before that of a failure."""
    result = asyncio.run(server.call_tool(tool, arguments))
    return f"{'Error: ' if result['is_error'] else ''}{result['text']}"


def test_lists_reads_and_searches(call: Call, folder: Path) -> None:
    link = "(a link, which is not followed)"
    assert call("list_folder").splitlines() == [
        ".git/", f"inner@ {link}", f"key@ {link}", "notes/", "pipe (0 bytes)", f"up@ {link}",
    ]  # fmt: skip
    assert call("list_folder", path="notes/old") == "data.bin (5 bytes)"
    assert call("read_file", path="notes/plan.md") == "one\nThe Plan\nthree"
    assert call("read_file", path=f"{folder}/notes/plan.md", first_line=3) == "three"
    assert call("read_file", path="notes/plan.md", first_line=9) == "[Nothing; the file has 3 lines.]"
    assert call("search_files", text="PLAN").splitlines() == ["notes/plan.md", "notes/plan.md:2: The Plan"]
    assert call("search_files", text="three", path="notes") == "notes/plan.md:3: three"
    assert call("search_files", text="sesame") == "[Nothing was found.]"


@pytest.mark.parametrize(
    "path", ["../secret/key.txt", "notes/../../secret/key.txt", "/etc/passwd", "..", "notes/..", "~/x/../.."]
)
def test_a_path_does_not_lead_out(call: Call, path: str) -> None:
    assert call("read_file", path=path) == "Error: Only paths inside the folder that the person chose can be read."


@pytest.mark.parametrize("path", ["key", "up/key.txt", "up", "inner/plan.md"])
def test_links_are_not_followed(call: Call, path: str) -> None:
    for tool in ("read_file", "list_folder"):
        assert call(tool, path=path).startswith("Error: It cannot be read: ")
    assert call("search_files", text="e", path=path).startswith("Error: It cannot be read: ")


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = built_in._open_in

    def swapped(descriptor: int, name: str) -> int:
        if name == "plan.md":
            (folder / "notes").rename(folder / "moved")
            (folder / "notes").symlink_to(folder.parent / "secret")
            (folder.parent / "secret" / "plan.md").write_text("sesame")
        return opened(descriptor, name)

    monkeypatch.setattr(built_in, "_open_in", swapped)
    assert call("read_file", path="notes/plan.md") == "one\nThe Plan\nthree"
    assert call("read_file", path="notes/plan.md").startswith("Error: It cannot be read: ")


def test_a_link_in_the_place_of_the_chosen_folder_is_not_followed(call: Call, folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.parent / "secret")
    for tool, arguments in (("list_folder", {}), ("read_file", {"path": "key.txt"}), ("search_files", {"text": "s"})):
        assert call(tool, **arguments).startswith("Error: It cannot be read: ")


def test_what_is_no_text_is_refused(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large").write_bytes(b"x" * 4_000_001)
    for name in ("large", "notes/old/data.bin"):
        assert call("read_file", path=name) == "Error: The file is not a text of at most 4 MB."
    assert call("read_file", path="pipe") == "Error: pipe is neither a file nor a folder."
    assert call("read_file", path="notes").startswith("Error: It cannot be read: ")
    assert call("read_file", path="none").startswith("Error: It cannot be read: ")
    # Its full path may be too long for a socket.
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    assert call("read_file", path="socket").startswith("Error: It cannot be read: ")


@pytest.mark.parametrize("arguments", [{"path": 5}, {"path": None}, {"other": "x"}, {}, {"path": "a\0b"}])
def test_wrong_arguments_are_an_error_for_the_model(call: Call, arguments: dict[str, Any]) -> None:
    assert call("read_file", **arguments) == "Error: These are not the arguments of this tool."
    assert call("no_tool") == "Error: These are not the arguments of this tool."


def test_lists_and_searches_have_limits(call: Call, folder: Path) -> None:
    for number in range(1_001):
        (folder / "notes" / "old" / f"{number:04}").write_text("plan")
    lines = call("list_folder", path="notes/old").splitlines()
    assert (len(lines), lines[-1]) == (1_001, "[Only 1,000 entries are listed.]")
    lines = call("search_files", text="plan").splitlines()
    assert (len(lines), lines[-1]) == (101, "[There may be more.]")


def test_without_a_folder_nothing_is_read() -> None:
    server = BuiltInServer(ToolServer("folder", (FOLDER,)))
    assert run(server, "list_folder", {}).startswith("Error: Only paths inside the folder that the person chose")


def test_knows_the_time() -> None:
    server = BuiltInServer(ToolServer("time", (TIME,)))
    assert run(server, "current_time", {"zone": "Asia/Kathmandu"}).endswith("+05:45")
    assert "T" in run(server, "current_time", {})
    for zone in ("Nowhere/City", "../../etc/passwd", "/etc/passwd", "a." * 1000):
        assert run(server, "current_time", {"zone": zone}).startswith("Error: ")


def test_tools_describe_themselves() -> None:
    tools = BuiltInServer(ToolServer("folder", (FOLDER, "/"))).tools
    assert list(tools) == ["list_folder", "search_files", "read_file"]
    assert tools["read_file"] == {
        "name": "read_file",
        "description": "Read a text file, such as notes/plan.md, from a line on.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "first_line": {"type": "integer"}},
            "required": ["path"],
        },
        "read_only": True,
    }
