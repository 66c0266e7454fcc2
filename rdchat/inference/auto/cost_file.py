"""Measured costs on disk, so that they are measured once on a machine, and not once a start."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from rdchat import paths
from rdchat.inference.auto.curve import Costs
from rdchat.inference.kept_file import keep

_FORMAT = 1  # of the file, and of how costs are measured


class CostFile:
    """The costs of one part, kept in the cache folder.

    Args:
        key: What they depend on: the model's hash, its precision, the device, MLX's version, the drafter.
    """

    def __init__(self, key: Mapping[str, str]) -> None:
        self._key = {"format": str(_FORMAT), **key}
        name = hashlib.sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()[:32]
        self._path: Path = paths.cache_dir() / "costs" / f"{name}.json"

    def read(self) -> Costs:
        """Return the costs; none where the file is missing, damaged or of other things."""
        try:
            data = json.loads(self._path.read_bytes())
            costs = {(int(a), int(b)): float(ms) for a, b, ms in data["costs"]}
            return costs if data["key"] == self._key and all(0 < ms < 1e7 for ms in costs.values()) else {}
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return {}  # it is measured again

    def write(self, costs: Costs) -> None:
        """Replace the file."""
        rows = [[a, b, round(ms, 4)] for (a, b), ms in sorted(costs.items())]
        keep(self._path, json.dumps({"key": self._key, "costs": rows}) + "\n")
