"""Loaded by every Python process of the corpus: notes who is connected to and what is run, and lets neither happen.

`HOSTILE_AUDIT` names the file that the notes are added to, `HOSTILE_PYTHON` the one program that may be run.
"""

import os
import sys
from typing import Any

_FILE = os.environ.get("HOSTILE_AUDIT")
_PYTHON = os.environ.get("HOSTILE_PYTHON")
_HARMLESS = {"uname", "/bin/uname", "/usr/bin/uname", "lscpu", "sysctl"}  # what Python's `platform` and ours ask


def _is_ours(command: Any) -> bool:
    """Tell whether a command is a child of rdchat's own: its Python with a module or code of rdchat's."""
    words = [os.fsdecode(word) for word in command] if isinstance(command, list | tuple) else [str(command)]
    # the last: rdchat has a header of MLX's compiled, once for each folder of temporary files
    if words[0] in _HARMLESS or (words[0] == "/bin/sh" and "-x c++-header" in words[2]):
        return True
    return words[0] == _PYTHON and any("rdchat" in word for word in words[1:])


def _is_this_machine(host: str | bytes | None) -> bool:
    name = os.fsdecode(host or "localhost")
    return name == "localhost" or name.endswith(".localhost")


def _is_the_hub(address: Any) -> bool:
    """Tell whether an address is of the corpus's own hub, whose ports `HOSTILE_HUB` names."""
    ports = os.environ.get("HOSTILE_HUB", "").split()
    return isinstance(address, tuple) and address[0] in {"127.0.0.1", "::1"} and str(address[1]) in ports


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    said = None
    if event == "socket.connect" and _is_the_hub(arguments[-1]):
        return
    if event in {"socket.connect", "socket.sendto"} and not isinstance(arguments[-1], str | bytes):
        said = f"connected to {arguments[-1]!r}"
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"} and not _is_this_machine(arguments[0]):
        said = f"asked for the address of {arguments[0]!r}"
    elif event == "os.system" or (event == "subprocess.Popen" and not _is_ours(arguments[1])):
        said = f"ran {arguments[-1] if event == 'os.system' else arguments[1]!r}"
    elif event in {"os.exec", "os.posix_spawn"} and not _is_ours(arguments[1]):
        said = f"ran {arguments[1]!r}"
    if said and _FILE:
        file = os.open(_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, (said[:300] + "\n").encode())
        os.close(file)
        raise PermissionError(said)


if _FILE:
    sys.addaudithook(_watch)
