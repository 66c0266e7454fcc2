"""The time ledger as people read it: a reply's whole time by what was computed, whichever call was made where.

The engine records where the host was (`decoding/ledger.py`). MLX computes later than it is asked to, so a wait says
nothing of the stage that it happened in, and everything of what was queued. Here each recorded stage's own time goes to
what it was spent on. Ledgers that version 0.1 stored are read by the same names.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from rdchat.inference.api.ledger_tree import added_up
from rdchat.inference.api.reply_statistics import (
    HAND_OVER,
    NOT_MEASURED,
    PATH_SEPARATOR,
    QUEUE,
    WAIT,
    WAIT_WITH_DRAFT,
    LedgerEntry,
    Statistics,
)

REPLY = "Reply"


class Spent(StrEnum):
    """What a reply's time is spent on, in the order in which it is shown."""

    PROMPT = "Prompt"
    DRAFT = "Draft"
    TOGETHER = "Draft and target call"
    TARGET = "Target call"
    HOST = "Host work"
    NOT_MEASURED = "Not measured"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a recorded stage's own time is shown; `counts`: its calls are those of the row."""

    spent: Spent
    name: str
    counts: bool = True


@dataclass(slots=True)
class _Part:
    """A row: calls of recorded stages that count, the most calls of any, and milliseconds."""

    counted: int = 0
    most: int = 0
    ms: float = 0.0

    @property
    def calls(self) -> int:
        return self.counted or self.most


_DRAFT_WAIT = "Wait for the draft"
_PREPARE, _BOTH, _ALL = "Prepare calls", "Forward and choice", "Draft, forward and choice"
_PLACES = {
    "template and tokenize": _Place(Spent.PROMPT, "Chat template and tokens"),
    "prefill": _Place(Spent.PROMPT, "Prefill"),
    "prefill of the drafter": _Place(Spent.PROMPT, "Prefill of the drafter"),
    "first token": _Place(Spent.PROMPT, "First token"),
    "choose": _Place(Spent.PROMPT, "First token"),
    "queue step": _Place(Spent.HOST, _PREPARE),
    "queue step/forward": _Place(Spent.HOST, _PREPARE, counts=False),
    "queue step/forward/wait": _Place(Spent.TARGET, "Forward"),
    "queue step/choose": _Place(Spent.HOST, _PREPARE, counts=False),
    "queue step/choose/queue": _Place(Spent.TARGET, _BOTH, counts=False),
    "queue step/choose/wait": _Place(Spent.TARGET, "Choice"),
    "wait for token": _Place(Spent.TARGET, _BOTH),
    "wait for token/wait with draft": _Place(Spent.TOGETHER, _ALL),
    "round": _Place(Spent.HOST, _PREPARE, counts=False),
    "round/verify": _Place(Spent.HOST, _PREPARE),
    "round/verify/wait": _Place(Spent.TARGET, "Forward"),
    "round/choose": _Place(Spent.HOST, _PREPARE, counts=False),
    "round/choose/wait": _Place(Spent.TARGET, _BOTH),
    "round/choose/wait with draft": _Place(Spent.TOGETHER, _ALL),
    "round/accept": _Place(Spent.HOST, "Accept"),
    "round/accept/detokenize": _Place(Spent.HOST, "Text"),
    "detokenize": _Place(Spent.HOST, "Text"),
    "round/commit": _Place(Spent.HOST, "Commit"),
    "plan": _Place(Spent.HOST, "Automatic mode", counts=False),
    "follow": _Place(Spent.HOST, "Automatic mode"),
    "follow/queue": _Place(Spent.DRAFT, _DRAFT_WAIT, counts=False),
    HAND_OVER: _Place(Spent.HOST, "Hand over tokens"),
    NOT_MEASURED: _Place(Spent.NOT_MEASURED, "Not measured"),
}
_BEFORE_WAITS = dict.fromkeys(  # version 0.1 charged waits to the stage that they happened in
    ("queue step", "queue step/forward", "round/verify"), _Place(Spent.TARGET, _BOTH, counts=False)
) | dict.fromkeys(("queue step/choose", "round/choose"), _Place(Spent.TARGET, _BOTH))
_WAITS = (QUEUE, WAIT, WAIT_WITH_DRAFT)
_EXACT = ("queue step/forward/wait", "round/verify/wait")  # of a ledger with exact times
_DRAFT_PARTS = {
    "draft": "Prepare drafts",
    "draft ahead": "Prepare drafts",
    "lookup": "Look up",
    "beam search": "Beam search",
    "select nodes": "Select nodes",
    "feed": "Draft model",
    "rank": "Rank candidates",
}
# recorded stages whose calls are those of all that is spent on one thing; else its most frequent part's are
_CALLS = {
    Spent.PROMPT: ("template and tokenize",),
    Spent.DRAFT: ("round/draft",),
}


def shown(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return a tree of three levels: `REPLY`, what its time was spent on (`Spent`), and the parts of that.

    The times of each level sum up to those of the level above.

    Args:
        entries: As recorded, of one ledger or of several.
    """
    recorded = added_up(entries)
    if not recorded:
        return ()
    parts: dict[Spent, dict[str, _Part]] = defaultdict(dict)
    exact, old = any(path in recorded for path in _EXACT), NOT_MEASURED not in recorded
    for path, own_ms in _own_times(recorded).items():
        place = _BEFORE_WAITS.get(path, _place(path)) if old else _place(path)
        if exact and place.name == _BOTH:
            place = replace(place, name="Choice")  # the forward pass had been waited for
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
    """Return the milliseconds of a reply's whole time by what they were spent on; empty where none were kept."""
    found = {Spent(entry.name): entry.total_ms for entry in shown(statistics.ledger) if entry.parent == REPLY}
    if found and Spent.NOT_MEASURED not in found:  # of version 0.1
        missing = statistics.ttft_ms + statistics.decode_ms - sum(found.values())
        found[Spent.NOT_MEASURED] = max(missing, 0.0)
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
        return _Place(Spent.PROMPT, _PLACES[outer[0]].name, counts=False)
    if "draft" in (*outer, name) or name in _DRAFT_PARTS or (outer and outer[-1] in _DRAFT_PARTS):
        return _draft_place(name, outer)
    if path in _PLACES:
        return _PLACES[path]
    return _Place(Spent.TARGET, _BOTH, counts=False) if name in _WAITS else _Place(Spent.HOST, name)


def _draft_place(name: str, outer: list[str]) -> _Place:
    if name == WAIT and outer[-1] != "draft":  # exact times: of the stage's own results
        return _Place(Spent.DRAFT, _DRAFT_PARTS.get(outer[-1], _DRAFT_WAIT), counts=False)
    part = _DRAFT_WAIT if name in _WAITS else _DRAFT_PARTS.get(name, name)
    return _Place(Spent.DRAFT, part, counts=name != QUEUE)
