"""The time ledger as people read it: a tree of stages with calls, mean, total and percent of parent.

The figures are those of Apple's `time_mlx` (ml-recurrent-drafter); they are derived here and stored nowhere.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

from rdchat.inference.api.reply_statistics import LedgerEntry


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One stage.

    Attributes:
        name: Of the stage.
        depth: Stages that it is nested in; 0 at the top.
        calls: Number of times that it ran.
        mean_ms: Time of one call, the stages inside included.
        total_ms: Time of all calls.
        percent_of_parent: Share of its total in that of the stage around it; None at the top.
        parent: Path of the stage around it; empty at the top.
    """

    name: str
    depth: int
    calls: int
    mean_ms: float
    total_ms: float
    percent_of_parent: float | None
    parent: str


def ledger_rows(entries: Iterable[LedgerEntry]) -> tuple[LedgerRow, ...]:
    """Return all stages, each directly followed by those inside it.

    Args:
        entries: Of one ledger, or of several: what has the same path is added up.
    """
    inside: dict[str, list[LedgerEntry]] = defaultdict(list)
    together = added_up(entries)
    for entry in together.values():
        inside[entry.parent if entry.parent in together else ""].append(entry)

    def below(path: str, depth: int) -> Iterator[LedgerRow]:
        whole = together[path].total_ms if path else 0.0
        for entry in inside[path]:
            percent = 100 * entry.total_ms / whole if whole else None
            mean = entry.total_ms / entry.calls if entry.calls else 0.0
            yield LedgerRow(entry.name, depth, entry.calls, mean, entry.total_ms, percent, entry.parent)
            yield from below(entry.path, depth + 1)

    return tuple(below("", 0))


def ledger_csv(rows: Iterable[LedgerRow]) -> str:
    """Return the rows as comma-separated values, a header first; what is None is left empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(LedgerRow))
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()


def ledger_note(exact: bool) -> str:
    """Return a sentence that says whether stages waited for their results."""
    if exact:
        return "Exact times: each stage waited for its results, so the reply took longer than it does otherwise."
    return "What is computed in one go is waited for once, and stands in one line; exact times tell its parts apart."


def added_up(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """Return one entry for each path, in order of first appearance."""
    together: dict[str, LedgerEntry] = {}
    for entry in entries:
        held = together.get(entry.path, LedgerEntry(entry.name, entry.parent, 0, 0.0))
        together[entry.path] = LedgerEntry(
            entry.name, entry.parent, held.calls + entry.calls, held.total_ms + entry.total_ms
        )
    return together
