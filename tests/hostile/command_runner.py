"""Runs cases on the command line, most of them in one process, some in their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hostile.case import Call, Case, evil_mark
from tests.hostile.samples import BUILD, ROOT
from tests.hostile.verdict import Outcome, faults
from tests.hostile.watch import Watched, ending, has_ended, is_readable, kill_tree, tree_bytes, watch
from tests.kernels import temporary_folder

_SITE = Path(__file__).parent / "site"
_IDLE_BYTES = 1_500_000_000  # a runner that keeps more than this between cases is started anew


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
        self._runner: subprocess.Popen[bytes] | None = None
        self._plain: dict[tuple[str, ...], list[int] | None] = {}  # tokens of plain replies, by arguments
        self._orders, self._answers = -1, -1

    def __enter__(self) -> "CommandRunner":
        self._place.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._end_runner()

    def run(self, case: Case) -> tuple[list[str], Outcome]:
        """Make a case, run it, and return what is wrong with how it ended."""
        folder = fresh(self._place / "case")
        self._audit.unlink(missing_ok=True)
        call = case.make(folder)
        files = fresh(self._place / "files")
        (files / "stdin").write_bytes(call.stdin)
        status, watched = (self._alone if call.own_process else self._in_runner)(call, files)
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
            self._end_runner()
        return found, outcome

    def _plain_tokens(self, arguments: tuple[str, ...]) -> list[int] | None:
        """Return the tokens of a reply that is decoded plainly; each is made once."""
        if arguments not in self._plain:
            files = fresh(self._place / "plain")
            (files / "stdin").write_bytes(b"")
            status, _ = self._in_runner(Call(arguments), files)
            self._plain[arguments] = _tokens(files) if status == 0 else None
        return self._plain[arguments]

    def _environment(self, call: Call, files: Path) -> dict[str, str | None]:
        folders = {"RDCHAT_DATA_DIR": str(call.data or files / "data"), "RDCHAT_CACHE_DIR": str(files / "cache")}
        return {**folders, **call.environment}

    def _alone(self, call: Call, files: Path) -> tuple[int | None, Watched]:
        variables = environment_of(self._audit) | self._environment(call, files)
        shut = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in call.closed)
        command = ["sh", "-c", f'exec "$@" {shut}', "sh", sys.executable, "-m", "rdchat", *call.arguments]
        with (
            (files / "stdin").open("rb") as stdin,
            (files / "stdout").open("wb") as out,
            (files / "stderr").open("wb") as err,
        ):
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=out,
                stderr=err,
                cwd=files,
                env={name: value for name, value in variables.items() if value is not None},
            )
            watched = watch(process, has_ended(process))
        died = process.returncode < 0 and not watched.trouble
        trouble = f"died: {ending(process.returncode)}" if died else watched.trouble
        status = None if trouble else process.returncode
        return status, Watched(trouble, watched.seconds, watched.memory_bytes)

    def _in_runner(self, call: Call, files: Path) -> tuple[int | None, Watched]:
        runner = self._ready_runner()
        order = {
            "arguments": call.arguments,
            "store": None if call.store is None else str(call.store),
            "environment": self._environment(call, files),
            **{name: str(files / name) for name in ("stdin", "stdout", "stderr")},
        }
        os.write(self._orders, (json.dumps(order) + "\n").encode())
        watched = watch(runner, is_readable(self._answers))
        answer = b"" if watched.trouble else os.read(self._answers, 1000)
        if not answer and not watched.trouble:  # its end is readable too
            runner.wait()
            watched = Watched(f"died: {ending(runner.returncode)}", watched.seconds, watched.memory_bytes)
        return (json.loads(answer)["status"] if answer else None), watched

    def _ready_runner(self) -> subprocess.Popen[bytes]:
        if self._runner is not None and tree_bytes(self._runner.pid) > _IDLE_BYTES:
            self._end_runner()
        if self._runner is None:
            theirs_in, self._orders = os.pipe()
            self._answers, theirs_out = os.pipe()
            self._runner = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.runner", str(theirs_in), str(theirs_out)],
                pass_fds=(theirs_in, theirs_out),
                env=environment_of(self._audit),
                cwd=ROOT,
            )
            os.close(theirs_in)
            os.close(theirs_out)
        return self._runner

    def _end_runner(self) -> None:
        if self._runner is not None:
            os.close(self._orders)
            os.close(self._answers)
            kill_tree(self._runner)
            self._runner = None


def _tokens(files: Path) -> list[int]:
    """Return the token ids of a reply that was printed as JSON."""
    return list(json.loads((files / "stdout").read_text())["token_ids"])


def fresh(folder: Path) -> Path:
    """Return an empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
