"""Runs cases in the window: none may block it, and it must work after each."""

import json
import subprocess
import sys
from pathlib import Path

from tests.hostile.case import Call, Case, Kind, evil_mark
from tests.hostile.command_runner import environment_of, fresh
from tests.hostile.results import Result
from tests.hostile.samples import ROOT, samples
from tests.hostile.watch import ending, is_readable, kill_tree, tree_bytes, watch

LONGEST_GAP_MS = 100
_ON_THE_COMMAND_LINE_ONLY = {Kind.PROMPTS, Kind.ARGUMENTS, Kind.HUB, Kind.IMPORTS}
_TRIES = 3  # this machine may be busy with something else once or twice
_IDLE_BYTES = 2_000_000_000


def is_for_the_window(case: Case) -> bool:
    """Tell whether a case has something that a window could show."""
    return case.kind not in _ON_THE_COMMAND_LINE_ONLY


class WindowRunner:
    """Tries one case after the other in one window, which is opened anew where it was killed; use it as a context.

    Args:
        place: A folder for the files of the cases and of the window.
        timed: Whether a window that was held up is a fault; not where the machine has something else to do.
    """

    def __init__(self, place: Path, *, timed: bool = True) -> None:
        self._place, self._timed = place, timed
        self._audit = place / "audit"
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WindowRunner":
        self._place.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, case: Case) -> Result:
        """Try a case; one that only held the window up is tried again, and its shortest gap counts."""
        result = self._once(case)
        for _ in range(_TRIES - 1):
            if len(result.faults) != 1 or "did not answer" not in result.faults[0]:
                break
            again = self._once(case)
            result = min(result, again, key=lambda each: (len(each.faults), each.gap_ms))
        return result

    def _once(self, case: Case) -> Result:
        folder = fresh(self._place / "case")
        call = case.make(folder)
        if call.model is None and call.store is None:
            return Result("window", case.id, ())
        child = self._ready()
        self._audit.unlink(missing_ok=True)
        assert child.stdin is not None
        child.stdin.write(json.dumps(_order(call)).encode() + b"\n")
        child.stdin.flush()
        faults, gap_ms, seconds, memory = self._answer(child)
        if evil_mark(folder).exists():
            faults.insert(0, "its code ran")
        if self._audit.exists():
            faults += self._audit.read_text().splitlines()
        return Result("window", case.id, tuple(faults), round(seconds, 2), memory // 10**6, gap_ms)

    def _answer(self, child: subprocess.Popen[bytes]) -> tuple[list[str], int, float, int]:
        """Wait for what the window tells; return faults, longest gap in ms, seconds and bytes."""
        assert child.stdout is not None
        watched = watch(child, is_readable(child.stdout.fileno()))
        line = b"" if watched.trouble else child.stdout.readline()
        if not line:
            trouble = watched.trouble or f"died: {ending(child.wait())}"
            self._end()
            return [trouble], 0, watched.seconds, watched.memory_bytes
        answer = json.loads(line)
        faults, gap_ms = list(answer["faults"]), int(answer["gap_ms"])
        # a machine that is busy with something else holds a process up that does nothing but wait, too
        if self._timed and gap_ms > LONGEST_GAP_MS + watched.late_s * 1000:
            faults.append(f"the window did not answer for {gap_ms} ms")
        return faults, gap_ms, watched.seconds, watched.memory_bytes

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
            faults = self._answer(self._child)[0]
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
