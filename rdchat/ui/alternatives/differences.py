"""Compares two texts word by word."""

import re
import struct
from dataclasses import dataclass
from difflib import SequenceMatcher

type Spans = tuple[tuple[int, int], ...]

# a word; a character of a script without spaces between words; a sign
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\s]")
_EXACT = 3000  # words of a text up to which the longest common parts are found; beyond, frequent words are passed over


@dataclass(frozen=True, slots=True)
class Differences:
    """Two texts and the places of words that the other lacks: begin and end, in UTF-16 units as Qt counts."""

    one: str
    other: str
    in_one: Spans = ()
    in_other: Spans = ()


def differences(one: str, other: str) -> Differences:
    """Compare two texts word by word."""
    words = [list(_WORD.finditer(_units(text))) for text in (one, other)]
    first, second = ([word[0] for word in found] for found in words)
    exact = max(len(first), len(second)) <= _EXACT
    matcher = SequenceMatcher(None, first, second, autojunk=not exact)
    in_one: list[tuple[int, int]] = []
    in_other: list[tuple[int, int]] = []
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        if end > begin:
            in_one.append((words[0][begin].start(), words[0][end - 1].end()))
        if other_end > other_begin:
            in_other.append((words[1][other_begin].start(), words[1][other_end - 1].end()))
    return Differences(one, other, tuple(in_one), tuple(in_other))


def _units(text: str) -> str:
    """Return a text with a character for each of its UTF-16 units, so that places in it are those that Qt counts."""
    if text.isascii():
        return text
    return "".join(chr(unit) for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")))
