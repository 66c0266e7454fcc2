"""The time ledger as people read it: a reply's time by what was computed, and the stages as a table or CSV.

The engine records what the host does (`decoding/ledger.py`). MLX computes lazily, so the stage that waits is often not
the one whose work is computed. This module assigns each stage's own time to what it was spent on. Ledgers stored by
version 0.1 are read too.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from enum import StrEnum

from rdchat.inference.api.reply_statistics import PATH_SEPARATOR, LedgerEntry, Stage, Statistics

REPLY = "Reply"


class Spent(StrEnum):
    """What a reply's time is spent on, in the order in which it is shown."""

    READING = "Reading"
    DRAFTING = "Drafting"
    CHECKING = "Checking"
    WRITING = "Without draft"
    OTHER = "Other"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the time of a recorded stage is shown; `counts`: whether its calls count for that row."""

    spent: Spent
    name: str
    counts: bool = True


@dataclass(slots=True)
class _Part:
    """A row in the making: calls that count, the most calls of a single stage, and milliseconds."""

    counted: int = 0
    most: int = 0
    ms: float = 0.0

    @property
    def calls(self) -> int:
        return self.counted or self.most


_DRAFT_WAIT = "Wait for the draft"
_PREPARE, _BOTH, _ALL = "Prepare steps", "Forward and choice", "Forward, choice and the next draft"
_PLACES = {
    "template and tokenize": _Place(Spent.READING, "Chat template and tokens"),
    "prefill": _Place(Spent.READING, "Reading the prompt"),
    "prefill of the drafter": _Place(Spent.READING, "Reading by the drafter"),
    "first token": _Place(Spent.READING, "First token"),
    "choose": _Place(Spent.READING, "First token"),
    "queue step": _Place(Spent.OTHER, _PREPARE),
    "queue step/forward": _Place(Spent.OTHER, _PREPARE, counts=False),
    "queue step/forward/wait": _Place(Spent.WRITING, "Forward"),
    "queue step/choose": _Place(Spent.OTHER, _PREPARE, counts=False),
    "queue step/choose/queue": _Place(Spent.WRITING, _BOTH, counts=False),
    "queue step/choose/wait": _Place(Spent.WRITING, "Choice"),
    "wait for token": _Place(Spent.WRITING, _BOTH),
    "wait for token/wait with draft": _Place(Spent.WRITING, _ALL),
    "round": _Place(Spent.OTHER, _PREPARE, counts=False),
    "round/verify": _Place(Spent.OTHER, _PREPARE),
    "round/verify/wait": _Place(Spent.CHECKING, "Forward"),
    "round/choose": _Place(Spent.OTHER, _PREPARE, counts=False),
    "round/choose/wait": _Place(Spent.CHECKING, _BOTH),
    "round/choose/wait with draft": _Place(Spent.CHECKING, _ALL),
    "round/accept": _Place(Spent.OTHER, "Accept"),
    "round/accept/detokenize": _Place(Spent.OTHER, "Text"),
    "detokenize": _Place(Spent.OTHER, "Text"),
    "round/commit": _Place(Spent.OTHER, "Commit"),
    "plan": _Place(Spent.OTHER, "Automatic mode", counts=False),
    "follow": _Place(Spent.OTHER, "Automatic mode"),
    "follow/queue": _Place(Spent.DRAFTING, _DRAFT_WAIT, counts=False),
    Stage.HAND_OVER: _Place(Spent.OTHER, "Hand over tokens"),
    Stage.NOT_MEASURED: _Place(Spent.OTHER, "Not measured"),
}
_BEFORE_WAITS = {  # version 0.1 charged waits to the stage that they happened in
    "queue step": _Place(Spent.WRITING, _BOTH, counts=False),
    "queue step/forward": _Place(Spent.WRITING, _BOTH, counts=False),
    "queue step/choose": _Place(Spent.WRITING, _BOTH),
    "round/verify": _Place(Spent.CHECKING, _BOTH, counts=False),
    "round/choose": _Place(Spent.CHECKING, _BOTH),
}
_WAITS = (Stage.QUEUE, Stage.WAIT, Stage.WAIT_WITH_DRAFT)
# Paths that only a ledger with exact times has.
_EXACT = ("queue step/forward/wait", "round/verify/wait")
_DRAFT_PARTS = {
    "draft": "Prepare drafts",
    "draft ahead": "Prepare drafts",
    "lookup": "Look up",
    "beam search": "Beam search",
    "select nodes": "Select nodes",
    "feed": "Draft model",
    "rank": "Rank candidates",
    "shape": "Fit the shape",
}
# Stages whose calls are shown for a whole group; other groups show the calls of their most frequent part.
_CALLS = {
    Spent.READING: ("template and tokenize",),
    Spent.DRAFTING: ("round/draft",),
    Spent.CHECKING: ("round/verify",),
}


def shown(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return a tree of three levels: `REPLY`, what its time was spent on (`Spent`), and the parts of each.

    The times of each level add up to those of the level above.

    Args:
        entries: As recorded, of one ledger or of several.
    """
    recorded = added_up(entries)
    if not recorded:
        return ()
    parts: dict[Spent, dict[str, _Part]] = defaultdict(dict)
    exact, old = any(path in recorded for path in _EXACT), Stage.NOT_MEASURED not in recorded
    for path, own_ms in _own_times(recorded).items():
        place = _BEFORE_WAITS.get(path, _place(path)) if old else _place(path)
        if exact and place.name == _BOTH:
            # The forward pass is a stage of its own.
            place = replace(place, name="Choice")
        part, calls = parts[place.spent].setdefault(place.name, _Part()), recorded[path].calls
        part.counted += calls * place.counts
        part.most = max(part.most, calls)
        part.ms += own_ms
    replies = recorded["template and tokenize"].calls if "template and tokenize" in recorded else 1
    rows = []
    for spent in (spent for spent in Spent if spent in parts):
        below = parts[spent]
        named = [recorded[path].calls for path in _CALLS.get(spent, ()) if path in recorded]
        calls = sum(named) or max(part.calls for part in below.values())
        rows.append(LedgerEntry(spent, REPLY, calls, sum(part.ms for part in below.values())))
        if len(below) > 1:
            inside = f"{REPLY}{PATH_SEPARATOR}{spent}"
            rows += [LedgerEntry(name, inside, part.calls, part.ms) for name, part in below.items()]
    whole = sum(row.total_ms for row in rows if row.parent == REPLY)
    return (LedgerEntry(REPLY, "", replies, whole), *rows)


def spent_ms(statistics: Statistics) -> dict[Spent, float]:
    """Return milliseconds by what a reply's time was spent on; empty where no ledger was stored."""
    found = {Spent(entry.name): entry.total_ms for entry in shown(statistics.ledger) if entry.parent == REPLY}
    if found and all(entry.path != Stage.NOT_MEASURED for entry in statistics.ledger):  # stored by version 0.1
        missing = statistics.ttft_ms + statistics.decode_ms - sum(found.values())
        found[Spent.OTHER] = found.get(Spent.OTHER, 0.0) + max(missing, 0.0)
    return {spent: found[spent] for spent in Spent if found.get(spent)}


def _own_times(recorded: dict[str, LedgerEntry]) -> dict[str, float]:
    """Return each stage's milliseconds without those of the stages inside it."""
    own = {path: entry.total_ms for path, entry in recorded.items()}
    for entry in recorded.values():
        if entry.parent in own:
            own[entry.parent] -= entry.total_ms
    return {path: max(ms, 0.0) for path, ms in own.items()}


def _place(path: str) -> _Place:
    *outer, name = path.split(PATH_SEPARATOR)
    if outer and outer[0] in ("prefill of the drafter", "first token", "choose"):
        return _Place(Spent.READING, _PLACES[outer[0]].name, counts=False)
    if "draft" in (*outer, name) or name in _DRAFT_PARTS or (outer and outer[-1] in _DRAFT_PARTS):
        return _draft_place(name, outer)
    if path in _PLACES:
        return _PLACES[path]
    waited = Spent.CHECKING if "round" in outer else Spent.WRITING
    return _Place(waited, _BOTH, counts=False) if name in _WAITS else _Place(Spent.OTHER, name)


def _draft_place(name: str, outer: list[str]) -> _Place:
    # With exact times a stage waits for its own results; a shape always waits for the draft.
    if name == Stage.WAIT and outer[-1] not in ("draft", "shape"):
        return _Place(Spent.DRAFTING, _DRAFT_PARTS.get(outer[-1], _DRAFT_WAIT), counts=False)
    part = _DRAFT_WAIT if name in _WAITS else _DRAFT_PARTS.get(name, name)
    return _Place(Spent.DRAFTING, part, counts=name != Stage.QUEUE)


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
        whole = together[path].total_ms if path else 0.0
        for entry in inside[path]:
            percent = 100 * entry.total_ms / whole if whole else None
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


def ledger_note(exact: bool) -> str:
    """Return a sentence that says whether the times are exact."""
    if exact:
        return "Exact times: each stage waited for its results, so replies took longer than usual."
    return "Stages that MLX computes together share a row. Turn on exact times to separate them."


def added_up(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """Return one entry for each path, in order of first appearance."""
    together: dict[str, LedgerEntry] = {}
    for entry in entries:
        held = together.get(entry.path, LedgerEntry(entry.name, entry.parent, 0, 0.0))
        together[entry.path] = LedgerEntry(
            entry.name, entry.parent, held.calls + entry.calls, held.total_ms + entry.total_ms
        )
    return together
