"""Runs cases in the window: none may block it, and it must work after each."""

import json
import subprocess
import sys
from pathlib import Path

from tests.hostile.case import Call, Case, evil_mark
from tests.hostile.command_runner import environment_of, fresh
from tests.hostile.samples import ROOT, samples
from tests.hostile.watch import ending, is_readable, kill_tree, tree_bytes, watch

LONGEST_GAP_MS = 100
_TRIES = 3  # this machine may be busy with something else once or twice
_IDLE_BYTES = 2_000_000_000


class WindowRunner:
    """Tries one case after the other in one window, which is opened anew where it was killed; use it as a context.

    Args:
        place: A folder for the files of the cases and of the window.
        timed: Whether a window that was held up is a fault; not where the machine has something else to do.
    """

    def __init__(self, place: Path, *, timed: bool = True) -> None:
        self._place = place
        self._timed = timed
        self._audit = place / "audit"
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WindowRunner":
        self._place.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, case: Case) -> list[str]:
        """Try a case, and return what is wrong; one that only held the window up is tried again."""
        for _ in range(_TRIES):
            found = self._once(case)
            if len(found) != 1 or "did not answer" not in found[0]:
                break
        return found

    def _once(self, case: Case) -> list[str]:
        folder = fresh(self._place / "case")
        call = case.make(folder)
        child = self._ready()
        self._audit.unlink(missing_ok=True)
        assert child.stdin is not None
        child.stdin.write(json.dumps(_order(call)).encode() + b"\n")
        child.stdin.flush()
        found = self._answer(child)
        if evil_mark(folder).exists():
            found.insert(0, "its code ran")
        return found + (self._audit.read_text().splitlines() if self._audit.exists() else [])

    def _answer(self, child: subprocess.Popen[bytes]) -> list[str]:
        """Wait for what the window tells, and return what is wrong."""
        assert child.stdout is not None
        watched = watch(child, is_readable(child.stdout.fileno()))
        line = b"" if watched.trouble else child.stdout.readline()
        if not line:
            trouble = watched.trouble or f"died: {ending(child.wait())}"
            self._end()
            return [trouble]
        answer = json.loads(line)
        faults = list(answer["faults"])
        gap_ms = int(answer["gap_ms"])
        # a machine that is busy with something else holds a process up that does nothing but wait, too
        if self._timed and gap_ms > LONGEST_GAP_MS + watched.late_s * 1000:
            faults.append(f"the window did not answer for {gap_ms} ms")
        return faults

    def _ready(self) -> subprocess.Popen[bytes]:
        if self._child is not None and tree_bytes(self._child.pid) > _IDLE_BYTES:
            self._end()
        if self._child is None:
            folder = fresh(self._place / "own")
            environment = environment_of(self._audit) | {
                "RDCHAT_DATA_DIR": str(folder / "data"),
                "RDCHAT_CACHE_DIR": str(folder / "cache"),
            }
            with (self._place / "stderr").open("wb") as error:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "tests.hostile.window_child", str(samples() / "model")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=error,
                    env=environment,
                    cwd=ROOT,
                )
            faults = self._answer(self._child)
            broken = [fault for fault in faults if "did not answer" not in fault]  # it starts, and imports MLX
            assert not broken, f"the window does not open: {broken} (see {self._place / 'stderr'})"
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            kill_tree(self._child)
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()
            self._child = None


def _order(call: Call) -> dict[str, str | None]:
    paths = {"model": call.model, "drafter": call.drafter, "data": call.data, "store": call.store}
    named = {name: None if path is None else str(path) for name, path in paths.items()}
    return {"text": call.text, "only_model": call.only_model} | named
