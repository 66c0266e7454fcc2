"""Limits of a hub's answers; importing this imports no client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What one question to the hub may take.

    Attributes:
        seconds: Of the whole question, with all redirects and pages.
        bytes: Of one answer, as it is received and again as it is unpacked.
        values: Of one answer's JSON, by its commas and brackets. Each takes 100 bytes of memory or more.
        pages: Of a list.
    """

    seconds: float = 60.0
    bytes: int = 2**24
    values: int = 250_000
    pages: int = 20
