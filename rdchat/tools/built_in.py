"""The two servers of tools that come with rdchat: one reads a folder that the person chose, one tells the time.

They run in the tools' child process, without the MCP SDK. Each tool is a function here: its docstring is the
description that models read, and its annotations are the schema of its arguments.
"""

import asyncio
import inspect
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

from rdchat.errors import RdchatError
from rdchat.tools.definitions import BUILT_IN, ToolServer, cut_text
from rdchat.wording import size_text

FOLDER = f"{BUILT_IN}folder"
TIME = f"{BUILT_IN}time"
# By the command: names that no person is likely to give a server of their own.
_NAMES = {FOLDER: "rdchat-folder", TIME: "rdchat-clock"}
_TITLES = {"rdchat-folder": "Folder", "rdchat-clock": "Clock"}
BUILT_IN_SERVERS = tuple(ToolServer(name, (command,), confirmed=True) for command, name in _NAMES.items())
"""Off at first. The folder's command has the chosen folder as its argument."""
# Limits of a listed folder, of a search (its lines, its time), and of a file that is read.
_MAX_ENTRIES = 1_000
_MAX_MATCHES = 100
_SEARCH_S = 20.0
_MAX_BYTES = 4_000_000


def server_title(name: str) -> str:
    """Return a server's name for people."""
    return _TITLES.get(name, name)


def with_own_name(server: ToolServer) -> ToolServer:
    """Return a server of the settings under its present name: settings may have old names of the two built-in ones."""
    return replace(server, name=_NAMES.get("".join(server.command[:1]), server.name))


class BuiltInServer:
    """A server inside this process, with the methods of `Connection`.

    Attributes:
        failure: Why it ended; None while it runs.
        tools: Its tools by name, as `listed_tools` returns those of other servers.
    """

    def __init__(self, server: ToolServer) -> None:
        self.failure: RdchatError | None = None
        folder = FolderReader("".join(server.command[1:2]))
        is_time = server.command[0] == TIME
        functions = (current_time,) if is_time else (folder.list_folder, folder.search_files, folder.read_file)
        self._functions: dict[str, Callable[..., str]] = {each.__name__: each for each in functions}
        self.tools = {name: _tool(function) for name, function in self._functions.items()}

    async def serve(self, report: Callable[[dict[str, Any]], object]) -> None:
        """Report its tools and wait to be cancelled."""
        report({"tools": list(self.tools.values()), "problems": []})
        await asyncio.Event().wait()

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of `ToolResult`."""
        is_error = True
        try:
            text = await asyncio.to_thread(self._functions[name], **arguments)
            is_error = False
        except OSError as error:
            text = f"It cannot be read: {error.strerror}."
        except RdchatError as error:
            text = str(error)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            text = "These are not the arguments of this tool."
        return {"text": cut_text(text), "is_error": is_error, "images": []}


def _tool(function: Callable[..., str]) -> dict[str, Any]:
    """Return the fields of `ToolDefinition` for a function, whose docstring is the description for models."""
    arguments = inspect.signature(function).parameters.values()
    properties = {each.name: {"type": "integer" if each.annotation is int else "string"} for each in arguments}
    required = [each.name for each in arguments if each.default is each.empty]
    parameters = {"type": "object", "properties": properties, "required": required}
    text = inspect.getdoc(function) or ""
    return {"name": function.__name__, "description": text, "parameters": parameters, "read_only": True}


def current_time(zone: str = "") -> str:
    """Return the current date and time, in an IANA time zone such as Europe/Paris, or in the local one."""
    now = datetime.now(ZoneInfo(zone)) if zone else datetime.now().astimezone()
    return f"{now:%A}, {now.isoformat(timespec='seconds')}"


class FolderReader:
    """Reads a folder. The docstrings of its public methods are for models.

    Args:
        root: The folder, which is no link; empty if none was chosen.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def list_folder(self, path: str = "") -> str:
        """List the files and folders in a folder, such as notes/old; without a path, in the main folder."""
        with self._opened(path) as descriptor, os.scandir(descriptor) as entries:
            lines = sorted(map(_entry_line, islice(entries, _MAX_ENTRIES)))
        if len(lines) == _MAX_ENTRIES:
            lines.append(f"[Only {_MAX_ENTRIES:,} entries are listed.]")
        return "\n".join(lines) or "[This folder is empty.]"

    def read_file(self, path: str, first_line: int = 1) -> str:
        """Read a text file, such as notes/plan.md, from a line on."""
        with self._opened(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            lines = _text_of(file).splitlines()
        return "\n".join(lines[max(first_line - 1, 0) :]) or f"[Nothing; the file has {len(lines)} lines.]"

    def search_files(self, text: str, path: str = "") -> str:
        """Find lines of text files, and names of files, that contain a text; case does not matter."""
        end = time.monotonic() + _SEARCH_S
        matches = list[str]()
        with self._opened(path) as folder:
            for inner, folders, names, descriptor in os.fwalk(".", dir_fd=folder):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                for name in sorted(names):
                    file_path = PurePosixPath(path, inner, name)
                    matches += (f"{file_path}{match}" for match in _matches(descriptor, name, text.lower()))
                    if len(matches) > _MAX_MATCHES or time.monotonic() > end:
                        return "\n".join([*matches[:_MAX_MATCHES], "[There may be more.]"])
        return "\n".join(matches) or "[Nothing was found.]"

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open a file or folder inside the chosen folder, and nothing outside it; yield its descriptor.

        Each part of the path is opened inside the part before it, never through a link, so replacing a part meanwhile
        changes nothing.

        Raises:
            RdchatError: If no folder was chosen, or the path leads out of it.
            OSError: If it cannot be opened, or is a link.
        """
        inner = PurePosixPath(path)
        if self._root and inner.is_absolute() and inner.is_relative_to(self._root):
            inner = inner.relative_to(self._root)
        if not self._root or inner.is_absolute() or ".." in inner.parts:
            raise RdchatError("Only paths inside the folder that the person chose can be read.")
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for part in inner.parts:
                outer = descriptor
                descriptor = _open_in(descriptor, part)
                os.close(outer)
            yield descriptor
        finally:
            os.close(descriptor)


def _open_in(folder: int, name: str) -> int:
    """Open an entry of a folder, which must be a regular file or a folder."""
    # Without blocking: a pipe would wait for a writer.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise RdchatError(f"{name} is neither a file nor a folder.")


def _text_of(file: BinaryIO) -> str:
    """Return the text of an open file; raise RdchatError if it is too large, or no text."""
    data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES or b"\0" in data:
        raise RdchatError(f"The file is not a text of at most {size_text(_MAX_BYTES)}.")
    return data.decode("utf-8", "replace")


def _matches(folder: int, name: str, text: str) -> Iterator[str]:
    """Yield what follows the file's path in each match: nothing for its name, `:number: line` for a line.

    Args:
        folder: Descriptor of the file's folder.
        name: Name of the file.
        text: The text to find, in lower case.
    """
    if text in name.lower():
        yield ""
    with suppress(OSError, RdchatError), os.fdopen(_open_in(folder, name), "rb") as file:
        lines = enumerate(_text_of(file).splitlines(), 1)
        yield from islice((f":{number}: {line[:300]}" for number, line in lines if text in line.lower()), _MAX_MATCHES)


def _entry_line(entry: "os.DirEntry[str]") -> str:
    """Return an entry's line in the list: a folder's name with `/`, a link's with `@`, and a file's with its size."""
    status = entry.stat(follow_symlinks=False)
    size = "@ (a link, which is not followed)" if entry.is_symlink() else f" ({status.st_size:,} bytes)"
    return f"{entry.name}/" if stat.S_ISDIR(status.st_mode) else f"{entry.name}{size}"
