"""Keeps control tokens in a person's message ordinary text.

Chat templates join messages and control tokens into one string, in which a typed `<|im_end|>` looks like the template's
own. So control tokens in a message are put between two private-use characters before the template sees it, and what
stands between them is encoded as ordinary text afterwards. (transformers' `sanitize_control_tokens` works alike; here
the tokens that the model itself wrote stay tokens, and no character of a message is dropped.)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_PRIVATE_USE = range(0xF0000, 0xFFFFD)
_LOOKS_LIKE_CONTROL = re.compile(r"\W.+\W", re.DOTALL)  # such as <think> or [INST]; not a word, a digit or a space


def is_control(text: str, special: bool, template: str) -> bool:
    """Tell whether an added token is a control token.

    Special ones are, and those with brackets around them that the chat template writes. Others, such as Gemma's
    `<table>` or runs of spaces, are ordinary parts of a text.
    """
    if not text.strip():
        return False
    return special or (text in template and _LOOKS_LIKE_CONTROL.fullmatch(text) is not None)


@dataclass(frozen=True, slots=True)
class Marks:
    """Two characters that do not occur in the texts that are marked with them."""

    before: str
    after: str

    @classmethod
    def for_texts(cls, texts: Sequence[str]) -> "Marks":
        """Return two private-use characters that none of the texts has."""
        free = (chr(code) for code in _PRIVATE_USE if not any(chr(code) in text for text in texts))
        return cls(next(free), next(free))

    def drop(self, text: str) -> str:
        """Return a text without them."""
        return text.replace(self.before, "").replace(self.after, "")


class ControlTokens:
    """The control tokens of one tokenizer, by their text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(set(texts), key=len, reverse=True)  # a longer one goes before one that it contains

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._texts)) or "(?!)")  # which matches nothing

    def mark(self, text: str, own: Iterable[int], marks: Marks) -> str:
        """Put marks around every control token but those at the offsets `own`, which the model wrote as tokens."""
        kept = frozenset(own)

        def marked(found: re.Match[str]) -> str:
            whole = found.group()
            return whole if found.start() in kept else f"{marks.before}{whole}{marks.after}"

        return self._pattern.sub(marked, text)

    def count(self, text: str) -> int:
        """Return how many control tokens a text spells."""
        return sum(1 for _ in self._pattern.finditer(text))

    def split(self, text: str, marks: Marks) -> list[tuple[str, bool]]:
        """Cut a rendered text into parts; True where a part was marked, and so is ordinary text.

        A template may have cut between a token and its marks: a mark that stands alone is dropped, but parts the text,
        so that what is left on its two sides does not become a token.
        """
        b, a = re.escape(marks.before), re.escape(marks.after)
        pieces = re.split(f"{b}({self._pattern.pattern}){a}|[{b}{a}]", text)
        parts = [(piece, place % 2 == 1) for place, piece in enumerate(pieces)]
        return [parts[0], *((piece, plain) for piece, plain in parts[1:] if piece)]
