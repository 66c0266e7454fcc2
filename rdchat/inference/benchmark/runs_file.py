"""Stores a benchmark's runs as JSON lines: an interrupted benchmark can resume, and a file can be shown later.

Reading a file to show it imports no MLX.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files import JsonLines, json_or_none, opened, plain, read_bytes
from rdchat.inference.api import BenchPlan, BenchRun, ModelInfo, Prompt
from rdchat.inference.benchmark.result import BenchResult, environment

_MAX_BYTES = 2**31
_HINT = "Choose a file that `rdchat bench --results` has written."


class RunsFile:
    """The finished turns of a benchmark, one a line, without texts of prompts and replies. Must be closed.

    Args:
        path: Created if missing; its first line is the benchmark's plan and environment.
        plan: The benchmark.
        info: The loaded model.

    Attributes:
        runs: The stored runs.

    Raises:
        RdchatError: If the file is something else, or has runs of another benchmark.
        StorageFullError: If the disk is full.
        StorageError: If the file cannot be read or written.
    """

    def __init__(self, path: Path, plan: BenchPlan, info: ModelInfo) -> None:
        header = _header(plan, info)
        is_new = not path.exists() or not path.stat().st_size
        # `JsonLines` refuses what is no file.
        if not is_new and path.is_file() and not _begins_with(path, header):
            raise _other_content(path)  # Before `JsonLines` drops an incomplete last line.
        self._lines = JsonLines(path)
        self._turn: list[BenchRun] = []
        if is_new:
            self._lines.append_line(header)
        try:
            self.runs = _runs(self._lines.read_objects()[1:])
        except (KeyError, TypeError, ValueError) as error:
            self._lines.close()
            raise _other_content(path) from error

    def add_run(self, run: BenchRun) -> None:
        """Add a run to the present turn. A run of a mode that cannot run is left out: each start reports it again."""
        if run.token_ids:
            self._turn.append(run)

    def end_turn(self) -> None:
        """Store the present turn, which is complete."""
        if self._turn:
            self._lines.append_line({"runs": [asdict(replace(run, pieces=())) for run in self._turn]})
            self._turn = []

    def close(self) -> None:
        """Close the file; an incomplete turn is dropped."""
        self._lines.close()


def _other_content(path: Path) -> RdchatError:
    return RdchatError(f"{path} has other content than runs of this benchmark.", "Choose another file.")


def _begins_with(path: Path, header: dict[str, Any]) -> bool:
    line = json.dumps(header).encode() + b"\n"
    with opened(path) as file:
        return file.read(len(line)) == line


def _runs(turns: Iterable[dict[str, Any]]) -> list[BenchRun]:
    return [plain(BenchRun, run) for turn in turns for run in turn["runs"]]


def _header(plan: BenchPlan, info: ModelInfo) -> dict[str, Any]:
    """Return the first line of a file: what must be equal for runs to belong together.

    Texts and the weights of drafters are in it as a hash.
    """
    from rdchat.inference.drafting.checkpoints.installed_drafters import (  # noqa: PLC0415  MLX: only to measure
        resolve_drafter,
        search_drafters,
    )
    from rdchat.inference.models.safetensors_file import target_hash  # noqa: PLC0415

    target = target_hash(info.path)
    digest = hashlib.sha256(repr(plan).encode("utf-8", "replace"))
    for name in dict.fromkeys(cell.draft.drafter for cell in plan.cells):
        folder = resolve_drafter(name) if name else search_drafters(target).folder
        for path in sorted(folder.glob("*.safetensors")) if folder else ():
            with opened(path) as weights:
                # This adds the file to `digest`.
                hashlib.file_digest(weights, lambda: digest)
    stored = replace(plan, prompts=tuple(Prompt("", prompt.group) for prompt in plan.prompts), earlier_replies=())
    # No turn is finished in a new file, and the empty set of that is no JSON.
    facts = {"target_hash": target, "benchmark": digest.hexdigest(), "plan": asdict(stored) | {"finished": []}}
    return environment(info) | facts


def read_runs(path: Path) -> BenchResult:
    """Read a benchmark from its file, which stays as it is; an incomplete last line does not count.

    Raises:
        RdchatError: If the file cannot be read, or is not such a file, or is one of an rdchat that stored no plan.
    """
    lines, _, _ = read_bytes(path, _HINT, _MAX_BYTES).rpartition(b"\n")
    try:
        # As when a benchmark resumes, damaged lines are left out.
        header, *turns = (item for line in lines.split(b"\n") if isinstance(item := json_or_none(line), dict))
        plan = plain(BenchPlan, header["plan"])
        runs = tuple(_runs(turns))
        # Earlier versions did not store a CPU's kernels.
        known = {"cpu_kernels": None, **header}
        facts = {name: known[name] for name in environment(None)}
    except (KeyError, TypeError, ValueError) as error:
        raise RdchatError(f"{path} is not a benchmark, or an older one without its settings.", _HINT) from error
    complete = len({run.turn for run in runs}) == len(plan.baselines) * len(plan.prompts) * plan.trials
    return BenchResult(plan, runs, facts, complete)
