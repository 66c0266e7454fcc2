"""Estimates the tokens of a text for a model whose tokenizer is not here, by the kinds of its characters."""

import re

# What is usually one token: a short word or a part of a longer one, a sign or two, a run of spaces. All bounded.
_PIECE = re.compile(r"[A-Z]?[a-z]{1,6}|[A-Z]{1,3}|[!-/:-@\[-`{-~]{1,2}|[ \t]{2,16}")
# Half of the tokenizers take each digit alone, the others three together.
_DIGIT = 0.65
# Of letters beyond ASCII: between 0.17 (o200k's Chinese) and 0.8 (a small vocabulary's Korean) for each byte.
_BYTE = 0.33
# The rest of a longer text counts as its beginning does.
_READ_CHARACTERS = 1_000_000


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has; it is seldom off by more than a factor of two."""
    read = text[:_READ_CHARACTERS]
    digits = sum(map(read.count, "0123456789"))
    letters = len(read.encode("utf-8", "replace")) - len(read.encode("ascii", "ignore"))
    tokens = sum(1 for _ in _PIECE.finditer(read)) + _DIGIT * digits + _BYTE * letters
    return round(tokens * len(text) / max(len(read), 1))
