"""Results of the corpus as JSON lines: finished cases are not run again while the code is unchanged."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.hostile.samples import ROOT


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended.

    Attributes:
        part: `cases`, `window`, `kills` or `users`.
        case: Its id.
        faults: What was wrong; nothing where all was well.
        seconds: Wall-clock time.
        memory_mb: The most that its processes held.
        gap_ms: The longest time the window did not answer, in the part of that name.
        said: The line on standard error.
    """

    part: str
    case: str
    faults: tuple[str, ...]
    seconds: float = 0.0
    memory_mb: int = 0
    gap_ms: int = 0
    said: str = ""


def fingerprint() -> str:
    """Return a hash of the program and of the corpus."""
    digest = hashlib.sha256()
    for folder in ("rdchat", "tests/hostile"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class ResultFile:
    """The results so far. Each is on the disk before the next case is begun."""

    def __init__(self, path: Path) -> None:
        self._path, self._code = path, fingerprint()
        self._done: dict[tuple[str, str], Result] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:  # cut short where the run was
                continue
            if record.pop("code") == self._code:
                result = Result(**record | {"faults": tuple(record["faults"])})
                self._done[result.part, result.case] = result

    def find(self, part: str, case: str) -> Result | None:
        """Return the result of a case with this code, if it was run."""
        return self._done.get((part, case))

    def add(self, result: Result) -> None:
        """Keep a result."""
        self._done[result.part, result.case] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result) | {"code": self._code}) + "\n")


def table(results: Iterable[Result]) -> str:
    """Return what failed, and how many of each part and kind did not."""
    counts: dict[str, list[int]] = {}
    lines = []
    for result in results:
        name = f"{result.part}, {result.case.partition(':')[0]}" if ":" in result.case else result.part
        count = counts.setdefault(name, [0, 0])
        count[0] += 1
        count[1] += bool(result.faults)
        if result.faults:
            lines.append(f"{result.part:<8}{result.case[:90]:<92}{'; '.join(result.faults)[:200]}")
    summary = [f"{name:<24}{count:>6} cases{failed:>6} failed" for name, (count, failed) in counts.items()]
    return "\n".join([*lines, "", *summary])
