"""A reply's time by what was computed, and the stages as rows or CSV; the window has names of the rows for people.

The engine records what the host does (`decoding/ledger.py`). MLX computes lazily, so the stage that waits is often not
the one whose work is computed. This module assigns each stage's own time to what it was spent on.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from enum import StrEnum

from rdchat.inference.api.reply_statistics import PATH_SEPARATOR, LedgerEntry, Stage, Statistics, stage_path

REPLY = "reply"


class Spent(StrEnum):
    """What a reply's time is spent on, in the order in which it is shown."""

    READING = "reading"
    DRAFTING = "drafting"
    CHECKING = "checking"
    WRITING = "without draft"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Row:
    """The row that shows the time of a recorded stage; `counts`: whether its calls count for that row."""

    spent: Spent
    name: str
    counts: bool = True


@dataclass(slots=True)
class _Part:
    """A row that is being summed: calls that count, the largest number of calls of one stage, and milliseconds."""

    counted: int = 0
    max_calls: int = 0
    ms: float = 0.0

    @property
    def calls(self) -> int:
        return self.counted or self.max_calls


_DRAFT_WAIT = "wait for the draft"
_PREPARE, _BOTH, _ALL = "prepare steps", "forward and choice", "forward, choice and the next draft"
# What each stage's own time is spent on.
_ROWS: dict[str, _Row] = {
    Stage.TOKENIZE: _Row(Spent.READING, "chat template and tokens"),
    Stage.PREFILL: _Row(Spent.READING, "reading the prompt"),
    Stage.DRAFTER_PREFILL: _Row(Spent.READING, "reading by the drafter"),
    Stage.FIRST: _Row(Spent.READING, "first token"),
    **dict.fromkeys((Stage.QUEUE_STEP, Stage.VERIFY), _Row(Spent.OTHER, _PREPARE)),
    **dict.fromkeys((Stage.ROUND, Stage.FORWARD, Stage.CHOOSE), _Row(Spent.OTHER, _PREPARE, counts=False)),
    Stage.PLAIN_WAIT: _Row(Spent.WRITING, _BOTH),
    Stage.ACCEPT: _Row(Spent.OTHER, "accept"),
    Stage.DETOKENIZE: _Row(Spent.OTHER, "text"),
    Stage.COMMIT: _Row(Spent.OTHER, "commit"),
    Stage.PLAN: _Row(Spent.OTHER, "automatic mode", counts=False),
    Stage.FOLLOW: _Row(Spent.OTHER, "automatic mode"),
    Stage.HAND_OVER: _Row(Spent.OTHER, "hand over tokens"),
    Stage.NOT_MEASURED: _Row(Spent.OTHER, "not measured"),
}
_WAITS = (Stage.QUEUE, Stage.WAIT, Stage.WAIT_WITH_DRAFT)
# The target's calls: only with exact times they are waited for by themselves.
_CALLS_OF_TARGET = (Stage.FORWARD, Stage.VERIFY)
_DRAFT_PARTS: dict[str, str] = {
    Stage.DRAFT: "prepare drafts",
    Stage.DRAFT_AHEAD: "prepare drafts",
    Stage.LOOKUP: "look up",
    Stage.BEAM_SEARCH: "beam search",
    Stage.SELECT_NODES: "select nodes",
    Stage.FEED: "draft model",
    Stage.RANK: "rank candidates",
    Stage.SHAPE: "fit the format",
}
# Stages whose calls are shown for a whole group; other groups show the calls of their most frequent part.
_CALLS = {
    Spent.READING: (Stage.TOKENIZE,),
    Spent.DRAFTING: (stage_path(Stage.ROUND, Stage.DRAFT),),
    Spent.WRITING: (Stage.PLAIN_WAIT,),
    Spent.CHECKING: (stage_path(Stage.ROUND, Stage.VERIFY),),
}


def grouped_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return a tree of three levels: `REPLY`, what its time was spent on (`Spent`), and the parts of each.

    The times of each level add up to those of the level above.

    Args:
        entries: As recorded, of one ledger or of several.
    """
    recorded = added_up(entries)
    if not recorded:
        return ()
    parts: dict[Spent, dict[str, _Part]] = defaultdict(dict)
    waits = (path.split(PATH_SEPARATOR)[-2:] for path in recorded)
    exact = any(inner[-1] == Stage.WAIT and inner[0] in _CALLS_OF_TARGET for inner in waits)
    for path, own_ms in _own_times(recorded).items():
        row = _row(path)
        if exact and row.name == _BOTH:
            # The forward pass is a stage of its own.
            row = replace(row, name="choice")
        part, calls = parts[row.spent].setdefault(row.name, _Part()), recorded[path].calls
        part.counted += calls * row.counts
        part.max_calls = max(part.max_calls, calls)
        part.ms += own_ms
    replies = recorded[Stage.TOKENIZE].calls if Stage.TOKENIZE in recorded else 1
    rows = []
    for spent in (spent for spent in Spent if spent in parts):
        below = parts[spent]
        named = [recorded[path].calls for path in _CALLS.get(spent, ()) if path in recorded]
        calls = sum(named) or max(part.calls for part in below.values())
        rows.append(LedgerEntry(spent, REPLY, calls, sum(part.ms for part in below.values())))
        if len(below) > 1:
            inside = f"{REPLY}{PATH_SEPARATOR}{spent}"
            rows += [LedgerEntry(name, inside, part.calls, part.ms) for name, part in below.items()]
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


def _row(path: str) -> _Row:
    *outer, name = path.split(PATH_SEPARATOR)
    top = (*outer, name)[0]
    if top in (Stage.DRAFTER_PREFILL, Stage.FIRST, Stage.CHOOSE):
        # Older versions chose the first token outside of `FIRST`.
        return replace(_ROWS[Stage.FIRST if top == Stage.CHOOSE else top], counts=not outer)
    if Stage.DRAFT in (*outer, name) or name in _DRAFT_PARTS or (outer and outer[-1] in _DRAFT_PARTS):
        return _draft_row(name, outer)
    if name in _WAITS or name == Stage.LINK:
        return _wait_row(name, outer)
    return _ROWS.get(name, _Row(Spent.OTHER, name))


def _wait_row(name: str, outer: list[str]) -> _Row:
    """Return the row of a wait for the target, or for other ranks."""
    spent = Spent.CHECKING if Stage.ROUND in outer else Spent.WRITING
    if name == Stage.LINK:
        return _Row(Spent.READING if Stage.PREFILL in outer else spent, "link to other Macs")
    if Stage.FOLLOW in outer:
        return _Row(Spent.DRAFTING, _DRAFT_WAIT, counts=False)
    if name != Stage.WAIT:
        return _Row(spent, _ALL if name == Stage.WAIT_WITH_DRAFT else _BOTH, counts=name == Stage.WAIT_WITH_DRAFT)
    inside = outer[-1] if outer else ""
    return _Row(spent, "forward" if inside in _CALLS_OF_TARGET else _BOTH, counts=inside != Stage.PLAIN_WAIT)


def _draft_row(name: str, outer: list[str]) -> _Row:
    # With exact times a stage waits for its own results; a shape always waits for the draft.
    if name == Stage.WAIT and outer[-1] not in (Stage.DRAFT, Stage.SHAPE):
        return _Row(Spent.DRAFTING, _DRAFT_PARTS.get(outer[-1], _DRAFT_WAIT), counts=False)
    part = _DRAFT_WAIT if name in _WAITS else _DRAFT_PARTS.get(name, name)
    return _Row(Spent.DRAFTING, part, counts=name != Stage.QUEUE)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One stage.

    Attributes:
        name: Name of the stage.
        depth: Number of stages around it; 0 at the top.
        calls: Number of calls.
        mean_ms: Time of one call, the stages inside included.
        total_ms: Time of all calls.
        percent_of_parent: Share of the time of the stage around it; None at the top.
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
            mean = entry.total_ms / entry.calls if entry.calls else 0.0
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
        together[entry.path] = LedgerEntry(
            entry.name, entry.parent, held.calls + entry.calls, held.total_ms + entry.total_ms
        )
    return together
