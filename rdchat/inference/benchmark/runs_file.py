"""Stores a benchmark's runs as JSON lines, so that an interrupted benchmark can resume."""

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import JsonLines
from rdchat.files.plain_data import json_or_none, plain
from rdchat.inference.api.benchmark import BenchPlan, BenchRun
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.benchmark.result import environment
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.models.model_files import target_hash

_MAX_HEADER_BYTES = 2**16


class RunsFile:
    """The finished turns of a benchmark, one a line, without texts of prompts and replies. Must be closed.

    Args:
        path: Created if missing; its first line is the benchmark's settings and environment.
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
        if not is_new and path.is_file() and _first_line(path) != header:
            raise _other_content(path)  # Before `JsonLines` drops an incomplete last line.
        self._lines = JsonLines(path)
        self._turn: list[BenchRun] = []
        if is_new:
            self._lines.append(header)
        try:
            self.runs = [plain(BenchRun, run) for turn in self._lines.read()[1:] for run in turn["runs"]]
        except (KeyError, TypeError, ValueError) as error:
            self._lines.close()
            raise _other_content(path) from error

    def add(self, run: BenchRun) -> None:
        """Add a run to the present turn. A run of a mode that cannot run is left out: each start reports it again."""
        if run.token_ids:
            self._turn.append(run)

    def end_turn(self) -> None:
        """Store the present turn, which is complete."""
        if self._turn:
            self._lines.append({"runs": [asdict(replace(run, pieces=())) for run in self._turn]})
            self._turn = []

    def close(self) -> None:
        """Close the file; an incomplete turn is dropped."""
        self._lines.close()


def _other_content(path: Path) -> RdchatError:
    return RdchatError(f"{path} has other content than runs of this benchmark.", "Choose another file.")


def _first_line(path: Path) -> Any:
    with path.open("rb") as file:
        return json_or_none(file.readline(_MAX_HEADER_BYTES))


def _header(plan: BenchPlan, info: ModelInfo) -> dict[str, Any]:
    """Return what must be equal for runs to belong together; texts and drafters' weights are hashed."""
    target = target_hash(info.path)
    digest = hashlib.sha256(repr(plan).encode("utf-8", "replace"))
    for name in dict.fromkeys(cell.draft.drafter for cell in plan.cells):
        folder = resolve_drafter(name) if name else search_drafters(target).folder
        for path in sorted(folder.glob("*.safetensors")) if folder else ():
            with path.open("rb") as weights:
                hashlib.file_digest(weights, lambda: digest)
    return environment(info) | {"target_hash": target, "benchmark": digest.hexdigest()}
