"""Compares two texts word by word."""

import re
from difflib import SequenceMatcher

from rdchat.ui.style.labels import utf16_spans

type Spans = list[tuple[int, int]]

# a word; a character of a script without spaces between words; a sign
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\s]")
_EXACT = 3000  # words of a text up to which the longest common parts are found; beyond, frequent words are passed over
_LITTLE = 0.3  # share of words in common below which marks would cover nearly everything


def differences(one: str, other: str) -> tuple[Spans, Spans] | None:
    """Return the words that the other text lacks, in each of two; None if the texts have little in common.

    A span is begin and end in UTF-16 units.
    """
    words = [list(_WORD.finditer(text)) for text in (one, other)]
    first, second = ([word[0] for word in matches] for matches in words)
    exact = max(len(first), len(second)) <= _EXACT
    matcher = SequenceMatcher(None, first, second, autojunk=not exact)
    if matcher.ratio() < _LITTLE:
        return None
    in_one: Spans = []
    in_other: Spans = []
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        if end > begin:
            in_one.append((words[0][begin].start(), words[0][end - 1].end()))
        if other_end > other_begin:
            in_other.append((words[1][other_begin].start(), words[1][other_end - 1].end()))
    return utf16_spans(one, in_one), utf16_spans(other, in_other)
