"""Measured costs on disk, so that they are measured on a machine's first starts, and not at every one.

What else a machine does can only make a time longer, so of several measurements the shortest time counts. One that
other programs disturbed serves until there is a quiet one, and is not counted. A file of another format has another
name: what it holds is measured again.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.atomic_file import write_cache_file
from rdchat.files.foreign_files import read_json
from rdchat.inference.auto.cost_model import Costs

MEASUREMENTS = 3  # quiet starts in which costs are measured: a machine that was hot once is not slow for ever
_MOST_BYTES = 2**20
_FORMAT = 2  # of the file, and of how costs are measured


class CostFile:
    """The costs of one part, kept in the cache folder.

    Args:
        key: What they depend on: the model's hash, its precision, the device, MLX's version, the drafter.
    """

    def __init__(self, key: Mapping[str, str]) -> None:
        self._key = {"format": str(_FORMAT), **key}
        name = hashlib.sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:32]
        self._path: Path = paths.cache_dir() / "costs" / f"{name}.json"

    def read(self) -> tuple[Costs, int]:
        """Return the costs, and how often they were measured undisturbed; none of a missing, damaged or other file."""
        try:
            data = read_json(self._path, most=_MOST_BYTES)
            costs = {(int(a), int(b)): float(ms) for a, b, ms in data["costs"]}
            whole = data["key"] == self._key and all(0 < ms < 1e7 for ms in costs.values())
            return (costs, int(data["measurements"])) if whole else ({}, 0)
        except (ModelError, ValueError, TypeError, KeyError, IndexError, OverflowError):
            return {}, 0  # it is measured again

    def add(self, costs: Costs, quiet: bool = True) -> Costs:
        """Take a measurement, undisturbed or not; return the shortest times of all."""
        known, measurements = self.read()
        shortest = {**known, **{key: min(ms, known.get(key, ms)) for key, ms in costs.items()}}
        rows = [[a, b, round(ms, 4)] for (a, b), ms in sorted(shortest.items())]
        write_cache_file(
            self._path, json.dumps({"key": self._key, "measurements": measurements + quiet, "costs": rows}) + "\n"
        )
        return shortest
