"""Splits a search into words, and finds them in a text as the search index does."""

import re
import unicodedata
from functools import cache
from itertools import product

_MAX_CHARACTERS, _MAX_WORDS = 500, 16
_SHARP_S, _MAX_SHARP_S = re.compile("ss|[ßẞ]", re.IGNORECASE), 4  # of a word: each doubles the number of spellings
_LETTER = r"[^\W_]"
_DECOMPOSED_BELOW = "\u2000"  # scripts beyond this, such as Hangul, would be split into parts of letters


def split_words(search: str) -> list[str]:
    """Return the words of a person's search, up to the limit."""
    return search[:_MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode().split()[:_MAX_WORDS]


def is_indexed(word: str) -> bool:
    """Return whether a word is one token of the index: letters of a script with spaces."""
    letters = [character for character in word if unicodedata.category(character)[0] in "LN"]
    return bool(letters) and all(character < "\u0e00" or "\u1e00" <= character < "\u2000" for character in letters)


def spellings(word: str) -> list[str]:
    """Return a word with each ss and ß in both spellings: the index keeps Straße and STRASSE apart."""
    parts = _SHARP_S.split(word)
    if not 1 < len(parts) <= _MAX_SHARP_S + 1:
        return [word]
    choices = product(("ss", "ß"), repeat=len(parts) - 1)
    return ["".join(map("".join, zip(parts, (*choice, ""), strict=True))) for choice in choices]


class WordMatcher:
    """Finds the words of a search in a text, ignoring case, accents and ß; the last word matches beginnings too.

    Args:
        search: Anything. Quotes and operators mean themselves.
    """

    def __init__(self, search: str) -> None:
        words = split_words(search)
        made = (_pattern(word, unfinished=index == len(words)) for index, word in enumerate(words, start=1))
        patterns = [pattern for pattern in made if pattern]  # an accent alone cannot be searched
        self._each = [re.compile(pattern) for pattern in dict.fromkeys(patterns)]
        self._any = re.compile("|".join(patterns)) if patterns else None
        self.search = " ".join(words)

    def __bool__(self) -> bool:
        return self._any is not None

    def is_in(self, text: str) -> bool:
        """Return whether the text has every word."""
        if self._any is None:
            return False
        folded, _ = _folded(text)
        return all(pattern.search(folded) for pattern in self._each)

    def spans(self, text: str, limit: int = 1000) -> list[tuple[int, int]]:
        """Return start and end of the words in the text, at most `most`."""
        if self._any is None:
            return []
        folded, indexes = _folded(text)
        spans: list[tuple[int, int]] = []
        for match in self._any.finditer(folded):
            begin, end = match.span()
            spans.append((begin, end) if indexes is None else (indexes[begin], indexes[end - 1] + 1))
            if len(spans) >= limit:
                break
        return spans


def _pattern(word: str, *, unfinished: bool) -> str:
    folded, _ = _folded(word)
    if not is_indexed(word):
        return re.escape(folded)
    tokens = [_SHARP_S.sub("(?:ss|ß)", re.escape(token)) for token in re.findall(f"{_LETTER}+", folded)]
    return f"(?<!{_LETTER})" + r"[\W_]+".join(tokens) + ("" if unfinished else f"(?!{_LETTER})")


def _folded(text: str) -> tuple[str, list[int] | None]:
    """Return a text in lower case without accents, and the original index of each character; None if all agree."""
    if text.isascii():
        return text.lower(), None
    folded = [_fold(character) for character in text]
    if "" not in folded:
        return "".join(folded), None
    return "".join(folded), [index for index, character in enumerate(folded) if character]


@cache
def _fold(character: str) -> str:
    """Return a letter's base in lower case; empty for a combining accent."""
    if unicodedata.category(character) == "Mn":
        return "" if character < _DECOMPOSED_BELOW else character
    base = unicodedata.normalize("NFD", character)[0] if character < _DECOMPOSED_BELOW else character
    return base.lower()[0]
