"""Decides whether a case ended well."""

import re
from dataclasses import dataclass

from tests.hostile.case import Call
from tests.hostile.watch import MEMORY_LIMIT_BYTES, TIME_LIMIT_S

_ADMISSIONS = ("something unexpected", "a mistake", "traceback", "panicked at", "fatal python error", "core dumped")
_EXCEPTION = re.compile(r"\b[A-Z][a-z]\w*(?:Error|Exception|Warning)\b(?!\.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_LONGEST_LINE = 1500  # characters; a path of the system's longest fits


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case ended.

    Attributes:
        status: Its exit status; None where it was killed or died.
        stderr: What it wrote to standard error.
        trouble: Why it was killed, or how it died.
        seconds: Wall-clock time.
        memory_bytes: The most that its processes held.
        marked: Evil code ran.
        audit: What was connected to or run, a line each.
        changed: The reply's tokens are not those of plain decoding.
    """

    status: int | None
    stderr: str = ""
    trouble: str = ""
    seconds: float = 0.0
    memory_bytes: int = 0
    marked: bool = False
    audit: tuple[str, ...] = ()
    changed: bool = False


def faults(call: Call, outcome: Outcome) -> list[str]:
    """Return what is wrong, the gravest first; nothing where all is well."""
    found = ["its code ran"] if outcome.marked else []
    found += outcome.audit
    if outcome.changed:
        found.append("its tokens are not those of plain decoding")
    if outcome.trouble:
        found.append(outcome.trouble)
    else:
        if outcome.memory_bytes > (call.memory_bytes or MEMORY_LIMIT_BYTES):
            found.append(f"took {outcome.memory_bytes / 1e9:.1f} GB")
        if outcome.seconds > TIME_LIMIT_S:
            found.append(f"took {outcome.seconds:.0f} s")
        if outcome.status not in call.statuses:
            found.append(f"exit status {outcome.status}")
    return found + _words(call, outcome)


def _words(call: Call, outcome: Outcome) -> list[str]:
    found = [f"says {words!r}" for words in _ADMISSIONS if words in outcome.stderr.lower()]
    if outcome.trouble or not outcome.status or 2 in call.closed or (call.told and not outcome.stderr):
        return found
    lines = outcome.stderr.splitlines()[-1 if call.tells_progress else 0 :]
    if len(lines) != 1 or not lines[0].startswith("rdchat"):
        found.append(f"{len(lines)} lines on standard error, not one of rdchat's")
    if exception := _EXCEPTION.search(outcome.stderr):
        found.append(f"says {exception.group()!r}, which is no plain word")
    if _CONTROL.search(outcome.stderr):
        found.append("says control characters")
    if len(outcome.stderr) > _LONGEST_LINE:
        found.append(f"says {len(outcome.stderr):,} characters")
    if call.words not in outcome.stderr:
        found.append(f"does not say {call.words!r}")
    return found
