"""Runs cases on the command line, each in a process of its own, most of them forked from one that has imported all."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.hostile.case import Call, Case, evil_mark
from tests.hostile.fork_server import Forked
from tests.hostile.samples import BUILD, ROOT
from tests.hostile.verdict import Outcome, faults
from tests.hostile.watch import Watched, ending, has_ended, kill_tree, tree_bytes, watch
from tests.kernels import temporary_folder

_SITE = Path(__file__).parent / "site"
# For encoding, and for a trial of a template: a case need not take as long as a person may wait.
_LONG_S = (2.0, 1.0)
_SHORT_S = (0.6, 0.3)
_FORKS = sys.platform == "linux"


def environment_of(audit: Path) -> dict[str, str]:
    """Return the environment of a process of the corpus: this package, and the hook that watches it."""
    # variables that would keep it from the network are left out: it is to keep itself
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join((str(_SITE), str(ROOT))),
        "HOSTILE_AUDIT": str(audit),
        "HOSTILE_PYTHON": sys.executable,
        "QT_QPA_PLATFORM": "offscreen",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "HOME": str(BUILD / "home"),  # nothing of the person's
        "HF_HOME": str(BUILD / "home" / "hub"),
        # where MLX keeps its kernels from case to case, each of which has a cache folder of its own
        "TMPDIR": str(temporary_folder()),
    }


class CommandRunner:
    """Tries one case after the other; use it as a context.

    Args:
        place: A folder for the cases' files.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._audit = place / "audit"
        self._server: subprocess.Popen[bytes] | None = None
        self._has_models = False
        self._clients: socket.socket
        self._plain: dict[tuple[str, ...], list[int] | None] = {}  # tokens of plain replies, by arguments

    def __enter__(self) -> "CommandRunner":
        self._place.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._end_server()

    def run(self, case: Case) -> tuple[list[str], Outcome]:
        """Make a case, run it, and return what is wrong with how it ended."""
        folder = fresh(self._place / "case")
        self._audit.unlink(missing_ok=True)
        call = case.make(folder)
        files = fresh(self._place / "files")
        (files / "stdin").write_bytes(call.stdin)
        status, watched = self._watched(call, files)
        error = files / "stderr"
        outcome = Outcome(
            status,
            error.read_bytes().decode("utf-8", "replace")[:20_000] if error.exists() else "",
            watched.trouble,
            watched.seconds,
            watched.memory_bytes,
            evil_mark(folder).exists(),
            tuple(self._audit.read_text().splitlines()) if self._audit.exists() else (),
            bool(call.plain) and status == 0 and _tokens(files) != self._plain_tokens(call.plain),
        )
        found = faults(call, outcome)
        if outcome.marked or outcome.trouble:
            self._end_server()
        return found, outcome

    def _plain_tokens(self, arguments: tuple[str, ...]) -> list[int] | None:
        """Return the tokens of a reply that is decoded plainly; each is made once."""
        if arguments not in self._plain:
            files = fresh(self._place / "plain")
            (files / "stdin").write_bytes(b"")
            status, _ = self._watched(Call(arguments, statuses=(0,)), files)
            self._plain[arguments] = _tokens(files) if status == 0 else None
        return self._plain[arguments]

    def _watched(self, call: Call, files: Path) -> tuple[int | None, Watched]:
        """Run a call to its end; return its status, None where it was killed or died."""
        folders = {"RDCHAT_DATA_DIR": str(call.data or files / "data"), "RDCHAT_CACHE_DIR": str(files / "cache")}
        variables = {**environment_of(self._audit), **folders, **call.environment}
        environment = {name: value for name, value in variables.items() if value is not None}
        process: subprocess.Popen[bytes] | Forked
        with (
            (files / "stdin").open("rb") as stdin,
            (files / "stdout").open("wb") as out,
            (files / "stderr").open("wb") as err,
        ):
            if call.own_process or not _FORKS:
                command = ["sh", "-c", f'exec "$@" {_shut(call.closed)}', "sh", sys.executable, "-m", *_words(call)]
                process = fresh_one = subprocess.Popen(
                    command, stdin=stdin, stdout=out, stderr=err, cwd=files, env=environment
                )
                watched = watch(fresh_one, has_ended(process))
            else:
                has_models = call.store is None and not {"chats", "search"} & {*call.arguments}
                server = self._ready_server(has_models)
                shared = tree_bytes(server.pid)
                standard = [file.fileno() for file in (stdin, out, err)]
                may_fail = 1 in call.statuses and not call.plain
                order: dict[str, Any] = {
                    "words": _words(call), "folder": str(files), "patience_s": _SHORT_S if may_fail else _LONG_S,
                }  # fmt: skip
                process = Forked(self._clients, standard, environment=environment, **order)
                watched = watch(server, has_ended(process), shared_bytes=shared)
        if watched.trouble:
            return None, watched
        assert process.returncode is not None
        if process.returncode < 0:
            return None, replace(watched, trouble=f"died: {ending(process.returncode)}")
        return process.returncode, watched

    def _ready_server(self, has_models: bool) -> subprocess.Popen[bytes]:
        """Return a server that runs; it imports what models need only once a case has some."""
        if self._server is None or self._server.poll() is not None or has_models > self._has_models:
            self._end_server()
            self._has_models |= has_models
            theirs, self._clients = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            numbers = (theirs.fileno(), self._clients.fileno())
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.fork_server", *map(str, numbers), *["models"] * self._has_models],
                pass_fds=numbers,
                stdin=subprocess.PIPE,
                env=environment_of(self._audit),
                cwd=ROOT,
            )
            theirs.close()
        return self._server

    def _end_server(self) -> None:
        if self._server is not None:
            kill_tree(self._server)
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._clients.close()
            self._server = None


def _shut(closed: tuple[int, ...]) -> str:
    return " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)


def _words(call: Call) -> tuple[str, ...]:
    return ("rdchat", *call.arguments) if call.store is None else ("tests.hostile.store_reading", str(call.store))


def _tokens(files: Path) -> list[int]:
    """Return the token ids of a reply that was printed as JSON."""
    return list(json.loads((files / "stdout").read_text())["token_ids"])


def fresh(folder: Path) -> Path:
    """Return an empty folder of this name. What the last command has begun may still write there for a moment."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
