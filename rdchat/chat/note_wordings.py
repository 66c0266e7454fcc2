"""Patterns of the words by which people ask to remember something, from `note_wordings.toml`, which describes them."""

import re
import tomllib
import unicodedata
from importlib import resources
from itertools import chain

_TABLE = tomllib.loads(resources.files("rdchat.chat").joinpath("note_wordings.toml").read_text(encoding="utf-8"))
_FLAGS = re.VERBOSE | re.IGNORECASE | re.MULTILINE | re.DOTALL


def _pattern(pattern: str, *tables: dict[str, list[str]]) -> re.Pattern[str]:
    """Return a pattern where each list's name in braces is replaced by any of its entries in all tables."""
    lists = {name: "|".join(chain(*(each[name] for each in tables))).replace(" ", r"\s{1,9}") for name in tables[0]}
    return re.compile(pattern.format(**{name: f"(?:{entries})" for name, entries in lists.items()}), _FLAGS)


# The words of one language may stand before those of another one: "OK, merk dir …".
WISHES = tuple(_pattern(each["pattern"], *each["languages"].values()) for each in _TABLE["wishes"])
ABBREVIATION, BULLET, ENDS_SHORT, OTHERS, SENTENCE = (
    _pattern(_TABLE["patterns"][name], _TABLE["lists"])
    for name in ("abbreviation", "bullet", "ends_short", "others", "sentence")
)
NO_FACT = frozenset(_TABLE["lists"]["no_fact"])
END_MARKS = _TABLE["end_marks"]
PLAIN = {
    code: base for code in range(0xC0, 0x180) if (base := unicodedata.normalize("NFD", chr(code))[0]).isascii()
} | dict.fromkeys(map(ord, _TABLE["apostrophes"]), "'")
"""For `str.translate`: Latin letters without their accents, and one form of the apostrophe."""
