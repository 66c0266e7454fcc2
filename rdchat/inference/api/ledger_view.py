"""Adds up a reply's recorded stages by what their time was spent on, and returns stages as rows or CSV.

`grouped_entries` makes the tree that people see: what the time was spent on (`Spent`), and below it named rows, each of
one or several stages. `Stage` says to which row a stage's own time belongs, without the stages inside it.
"""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

from rdchat.inference.api.reply_statistics import PATH_SEPARATOR, LedgerEntry, Spent, Stage, Statistics

REPLY = "reply"
# Of each recorded stage: what its own time is spent on, and its row.
_STAGES = {str(stage): (stage.spent, stage.row) for stage in Stage}
# Stages inside these do not count by themselves: their time is that of the stage around them. Both are
# outermost stages.
_WHOLE = (Stage.DRAFTER_PREFILL, Stage.FIRST)
# What a wait inside a stage is spent on. Elsewhere it is for a step without a draft.
_INSIDE: dict[str, Spent] = {
    Stage.ROUND: Spent.CHECKING,
    **{stage: stage.spent for stage in Stage if stage.spent in (Spent.SEEING, Spent.READING, Spent.DRAFTING)},
}


def grouped_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return a tree of three levels: `REPLY`, what its time was spent on (`Spent`), and the rows of each.

    The times of each level add up to those of the level above. Where there is one row only, the level above has its
    time, and the row is left out. As calls, a row of one stage has that stage's. A row of several stages has the number
    of what it is a part of: images in seeing, replies in reading, rounds in drafting and checking, plain steps in
    writing without a draft, rounds and plain steps elsewhere; 0 where these are unknown. The level above has this
    number too; where that is 0, it has the calls of the row that was left out.

    An example, with 10 rounds: the entry `reply` with 1 call and no parent; `drafting` with 10 calls in `reply`; and in
    `reply/drafting` the rows `prepare drafts` with 10 calls and `beam search` with 40.

    Args:
        entries: As recorded, of one ledger or of several.
    """
    recorded = added_up(each for each in entries if each.parent.split(PATH_SEPARATOR)[0] not in _WHOLE)
    if not recorded:
        return ()
    times: dict[Spent, dict[str, float]] = {spent: defaultdict(float) for spent in Spent}
    # By row, the calls of each of its stages.
    calls: dict[tuple[Spent, str], Counter[str]] = defaultdict(Counter)
    for path, own_ms in _own_times(recorded).items():
        spent, row = _row_of(path)
        times[spent][row] += own_ms
        calls[spent, row][recorded[path].name] += recorded[path].calls
    tops = Stage.TOKENIZE, Stage.SEE, Stage.ROUND, Stage.PLAIN_WAIT
    replies, seen, rounds, steps = (recorded[top].calls if top in recorded else 0 for top in tops)
    counted = {
        Spent.SEEING: seen,
        Spent.READING: replies,
        Spent.DRAFTING: rounds,
        Spent.CHECKING: rounds,
        Spent.WRITING: steps,
        Spent.OTHER: rounds + steps,
    }
    rows = []
    for spent, below in times.items():
        total = counted[spent]
        inside = f"{REPLY}{PATH_SEPARATOR}{spent}"
        parts = list[LedgerEntry]()
        for row, ms in below.items():
            stages = calls[spent, row]
            # Several stages may take turns, so their calls do not add up.
            parts.append(LedgerEntry(row, inside, stages.total() if len(stages) == 1 else total, ms))
        if len(parts) == 1:
            rows.append(LedgerEntry(spent, REPLY, total or parts[0].calls, parts[0].total_ms))
        elif parts:
            rows += [LedgerEntry(spent, REPLY, total, sum(below.values())), *parts]
    total_ms = sum(row.total_ms for row in rows if row.parent == REPLY)
    return (LedgerEntry(REPLY, "", replies, total_ms), *rows)


def spent_ms(statistics: Statistics) -> dict[Spent, float]:
    """Return milliseconds by what a reply's time was spent on; empty where no ledger was stored."""
    rows = (entry for entry in grouped_entries(statistics.ledger) if entry.parent == REPLY)
    return {Spent(row.name): row.total_ms for row in rows if row.total_ms}


def _own_times(recorded: dict[str, LedgerEntry]) -> dict[str, float]:
    """Return each stage's milliseconds without those of the stages inside it."""
    own = {path: entry.total_ms for path, entry in recorded.items()}
    for entry in recorded.values():
        if entry.parent in own:
            own[entry.parent] -= entry.total_ms
    return {path: max(ms, 0.0) for path, ms in own.items()}


def _row_of(path: str) -> tuple[Spent, str]:
    """Return what a stage's own time is spent on, and its row.

    For a wait (`Stage.spent` is None) the nearest stage of `_INSIDE` around it decides.
    """
    *outer, name = path.split(PATH_SEPARATOR)
    spent, row = _STAGES.get(name, (Spent.OTHER, name))
    around = (_INSIDE[stage] for stage in reversed(outer) if stage in _INSIDE)
    return spent or next(around, Spent.WRITING), row


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One stage.

    Attributes:
        name: Name of the stage.
        depth: Number of stages around it; 0 at the top.
        calls: Number of calls; 0 where it is unknown.
        mean_ms: Time of one call, the stages inside included; None where their number is unknown.
        total_ms: Time of all calls.
        percent_of_parent: Share of the time of the stage around it; None at the top.
        parent: Path of the stage around it; empty at the top.
    """

    name: str
    depth: int
    calls: int
    mean_ms: float | None
    total_ms: float
    percent_of_parent: float | None
    parent: str


def ledger_rows(entries: Iterable[LedgerEntry]) -> tuple[LedgerRow, ...]:
    """Return all stages, each directly followed by those inside it.

    A stage whose stage around it is not among the entries stands at the top.

    Args:
        entries: Of one ledger, or of several: entries with the same path are added up.
    """
    inside: dict[str, list[LedgerEntry]] = defaultdict(list)
    together = added_up(entries)
    for entry in together.values():
        inside[entry.parent if entry.parent in together else ""].append(entry)

    def below(path: str, depth: int) -> Iterator[LedgerRow]:
        total_ms = together[path].total_ms if path else 0.0
        for entry in inside[path]:
            percent = 100 * entry.total_ms / total_ms if total_ms else None
            mean = entry.total_ms / entry.calls if entry.calls else None
            yield LedgerRow(entry.name, depth, entry.calls, mean, entry.total_ms, percent, entry.parent)
            yield from below(entry.path, depth + 1)

    return tuple(below("", 0))


def ledger_csv(rows: Iterable[LedgerRow]) -> str:
    """Return the rows as comma-separated values with a header; None becomes an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(LedgerRow))
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()


def added_up(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """Return one entry for each path, in order of first appearance."""
    together: dict[str, LedgerEntry] = {}
    for entry in entries:
        held = together.get(entry.path, LedgerEntry(entry.name, entry.parent, 0, 0.0))
        calls = held.calls + entry.calls
        total_ms = held.total_ms + entry.total_ms
        together[entry.path] = LedgerEntry(entry.name, entry.parent, calls, total_ms)
    return together
