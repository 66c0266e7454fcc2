"""Patterns of the words by which people ask to remember something, from `note_wordings.toml`."""

import re
import tomllib
import unicodedata
from importlib import resources
from itertools import chain

_TEXT = resources.files("rdchat.chat").joinpath("note_wordings.toml").read_text(encoding="utf-8")
_TABLE = tomllib.loads(_TEXT)


def _any(entries: list[str]) -> str:
    """Return a pattern that matches any of the entries of a list."""
    return f"(?:{'|'.join(entries)})".replace(" ", r"\s+")


def _wish(pattern: str, *languages: dict[str, list[str]]) -> re.Pattern[str]:
    """Return a pattern in which a list's name stands for any of its entries in the languages."""
    lists = {name: _any(list(chain(*(each[name] for each in languages)))) for name in languages[0]}
    return re.compile(pattern.format(**lists), re.VERBOSE | re.IGNORECASE | re.DOTALL)


WISHES = (
    _wish(_TABLE["languages"].pop("pattern"), *_TABLE["languages"].values()),
    *(_wish(_TABLE[name].pop("pattern"), _TABLE[name]) for name in ("Chinese", "Japanese")),
)
"""Match a sentence: `rest` is what to remember, and `request` is there where it may have a question mark."""
TAG = re.compile(rf"[,\uff0c、]\s*{_any(_TABLE['tags'])}\s*$", re.IGNORECASE)
"""Ends a sentence, and is nothing to remember: `, OK`."""
NO_FACT = frozenset(_TABLE["no_fact"])
"""Words that are no fact, in whatever number."""
NOTHING = frozenset(_TABLE["nothing"])
"""The words of an answer that has no note."""
BEFORE_A_WORD = re.compile(rf"(?:^|[\s(]){_any(_TABLE['before_a_word'])}\.\Z", re.IGNORECASE)
"""An abbreviation or initial at the end of a text, with its point, behind which a sentence goes on: `Dr.`, `e.g.`"""
AT_AN_END = re.compile(rf"(?:^|[\s(\d]){_any(_TABLE['at_an_end'])}\.\Z|(?:\.\.|…)\Z", re.IGNORECASE)
"""One behind which it may end, as behind an ellipsis: `p.m.`, `etc.`"""
GOES_ON = re.compile(rf"[ \t]+{_any(_TABLE['goes_on'])}")
"""What stands behind `AT_AN_END` where the sentence goes on."""
OTHERS = re.compile(_TABLE["others"], re.VERBOSE | re.MULTILINE | re.DOTALL)
"""Words of others."""
BULLET = re.compile(_TABLE["bullet"], re.IGNORECASE)
"""What stands before an entry of a list, such as `- `, `•` or `2)`."""
END_MARKS = f" {_TABLE['end_marks']}"
"""Marks that end a sentence, and the blank."""
SENTENCE_END = re.compile(_TABLE["sentence_end"])
PLAIN = {
    code: base for code in range(0xC0, 0x180) if (base := unicodedata.normalize("NFD", chr(code))[0]).isascii()
} | dict.fromkeys(map(ord, _TABLE["apostrophes"]), "'")
"""For `str.translate`: Latin letters without their accents, and one form of the apostrophe."""
