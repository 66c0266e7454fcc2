"""The normal form of a text for search: without case and accents, as words with blanks between them.

The index stores texts in this form (`index_text`). Each word that a person types is converted to it (`search_phrases`);
that is a phrase, since `C++` is three words of the index. `WordMatcher` finds the places in the original text that the
window highlights.

A sign is one character of Unicode. A letter is a sign with the combining marks behind it, or any other sign.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise

INDEX_VERSION = f"2 {unicodedata.unidata_version}"
"""Changes with `index_text`, and with Python's tables of Unicode: then the index is made anew."""

# Limits of a search.
_MAX_CHARACTERS = 500
_MAX_WORDS = 16
# Of a longer text only so many characters are searched: the index text must stay below SQLite's limit.
_LONGEST = 1 << 23
# Figures, and the letters of scripts that write words apart: Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic.
_RUNS = (
    "0-9",
    "a-z\xdf-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f",
    "\u0370-\u03ff\u1f00-\u1fff",
    "\u0400-\u052f\u1c80-\u1c8f\ua640-\ua69f",
    "\u0530-\u058f",
    "\u0590-\u05ff",
    "\u0600-\u06ff\u0750-\u077f\u0860-\u08ff",
)
# A word of the index is such a run, or a single sign. The index has the same ASCII signs as its token characters.
_WORD = re.compile("|".join(f"[{run}]+" for run in _RUNS) + r"|[#$%&+<=>@]|[^\x00-\x7f\s]")
_IN_RUN = re.compile(f"[{''.join(_RUNS)}]")
# Marks that belong to a letter: of Indic and South-East Asian scripts, and the voicing marks of kana.
_WORD_MARKS = re.compile("[\u0900-\u1aaf\u1b00-\u1dbf\u3099\u309a\ua800-\uabff\U00010a00-\U00011fff]")
# Putting marks in order takes as long as the square of their number, so what has more of them is folded in parts.
_LONGEST_LETTER = 32
_KASHIDA = "\u0640"
_ZERO_WIDTH_SPACE = "\u200b"


def index_text(text: str) -> str:
    """Return the words of a text as the index has them, with blanks around each.

    Case, accents, the vowel marks of Arabic and Hebrew and differences of Unicode's normal forms are gone. A word ends
    where another script or a figure begins. A letter of a script that writes without spaces is a word, and so is a sign
    such as + or an emoji; other punctuation only ends words.

    The thread that stores a message waits for it: some 0.1 s for a million characters, and up to some seconds where
    they have many different combining marks.

    >>> index_text("C++ für API接口")
    ' c + + fur api 接 口 '
    """
    return " ".join(("", *_WORD.findall(_plain(text[:_LONGEST])), ""))


def search_phrases(search: str, *, beginnings: bool = False) -> list[str]:
    """Return for each word of a person's search, up to the limits, what `index_text` has of a text with that word.

    Args:
        search: Any text; quotes and operators have no special meaning. Words of punctuation alone are left out.
        beginnings: Whether every word may be incomplete, and not only the last one. Such a phrase has no blank behind.

    >>> search_phrases("C++ fü")
    [' c + + ', ' fu']
    """
    parts = unicodedata.normalize("NFC", search[: 4 * _MAX_CHARACTERS])[:_MAX_CHARACTERS].split()[:_MAX_WORDS]
    phrases = [phrase for phrase in map(index_text, parts) if phrase.strip()]
    return [phrase.rstrip() if beginnings or phrase is phrases[-1] else phrase for phrase in phrases]


class WordMatcher:
    """Finds the words of a search in a text as the index does; the last word matches beginnings too.

    Args:
        search: Any text; see `search_phrases`.
        beginnings: Whether the other words match beginnings too.
    """

    def __init__(self, search: str, *, beginnings: bool = False) -> None:
        self._phrases = search_phrases(search, beginnings=beginnings)
        # Any phrase. The blank behind one is not part of a match, since the next one begins with it.
        self._any = re.compile("|".join(re.sub(r"\\ $", "(?= )", re.escape(phrase)) for phrase in self._phrases))
        self.search = " ".join(search[:_MAX_CHARACTERS].encode("utf-8", "replace").decode().split()[:_MAX_WORDS])

    def __bool__(self) -> bool:
        return bool(self._phrases)

    def is_in(self, text: str) -> bool:
        """Return whether the text has every word."""
        indexed = index_text(text)
        return bool(self) and all(phrase in indexed for phrase in self._phrases)

    def spans(self, text: str, limit: int = 1000) -> list[tuple[int, int]]:
        """Return start and end of the words in the text, at most `limit`. They are found in `index_text`."""
        indexed = index_text(text)
        # Without a match the origins, which take longer to find, are not needed.
        if not self or not self._any.search(indexed):
            return []
        origins = _origins(text)
        spans: list[tuple[int, int]] = []
        for match in self._any.finditer(indexed):
            # A match begins with a blank.
            begin = origins[match.start() + 1][0]
            end = origins[match.end() - 1][1]
            # One letter may stand for several words, such as ½ or ㎢.
            if not spans or begin >= spans[-1][1]:
                spans.append((begin, end))
            if len(spans) >= limit:
                break
        return spans


def _origins(text: str) -> list[tuple[int, int]]:
    """Return start and end of the letter in a text from which each sign of its `index_text` comes, at the same index.

    Two steps lead back: each word of the index is one of the plain text, and each sign of the plain text comes from a
    letter of the text. The blank before each word has no letter; the one at its place is not used.

    >>> index_text("né"), _origins("né")
    (' ne ', [(1, 2), (0, 1), (1, 2)])
    """
    letters = list(pairwise(range(len(text) + 1)))
    if not text.isascii():
        letters = [(begin, end) for begin, end in _letters(text) for _ in _folded(text[begin:end])]
    words = _WORD.finditer(_plain(text))
    return [letters[position] for word in words for position in range(word.start() - 1, word.end())]


def _plain(text: str) -> str:
    """Return a text without case and accents, with blanks around letters that are words.

    ASCII needs no tables. A text with combining marks is taken letter by letter, any other sign by sign.
    """
    if text.isascii():
        return text.lower()
    if any(map(_continues, set(text))):
        return "".join(_folded(text[begin:end]) for begin, end in _letters(text))
    return text.translate(_PLAIN_SIGNS)


def _letters(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each letter with the marks behind it."""
    begin = 0
    for position, sign in enumerate(text):
        if position and (not _continues(sign) or position - begin == _LONGEST_LETTER):
            yield begin, position
            begin = position
    if text:
        yield begin, len(text)


@cache
def _continues(sign: str) -> bool:
    """Return whether a sign belongs to the letter before: a mark, or a vowel or final of a Korean syllable."""
    first = unicodedata.normalize("NFKD", sign)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"


@lru_cache(maxsize=1 << 14)
def _folded(letter: str) -> str:
    """Return the plain form of a letter with its marks; a blank for what is no part of a word."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", letter) if not _is_ignored(sign)).casefold()
    folded = "".join(map(_spaced, unicodedata.normalize("NFC", plain)))
    # A symbol such as ™ is a word, though it stands for letters.
    return f" {folded} " if unicodedata.category(letter[0])[0] == "S" else folded


class _PlainSigns(dict[int, str]):
    """The plain forms of letters of one sign, by its code; each is found once."""

    def __missing__(self, code: int) -> str:
        self[code] = _folded(chr(code))
        return self[code]


_PLAIN_SIGNS = _PlainSigns()


def _is_ignored(sign: str) -> bool:
    """Return whether a sign is left out: an accent or vowel mark, or one that is not visible."""
    kind = unicodedata.category(sign)
    is_mark = kind[0] == "M" and not _WORD_MARKS.match(sign)
    return is_mark or sign == _KASHIDA or (kind == "Cf" and sign != _ZERO_WIDTH_SPACE)


def _spaced(sign: str) -> str:
    """Return a plain sign as the index has it: alone, if it is a word; as a blank, if it only separates words."""
    kind = unicodedata.category(sign)
    if sign.isascii() or (kind[0] == "L" and _IN_RUN.match(sign)):
        return sign
    return " " if kind[0] in "PZ" or kind in {"Sk", "Cc", "Cf", "Cs"} else f" {sign} "
