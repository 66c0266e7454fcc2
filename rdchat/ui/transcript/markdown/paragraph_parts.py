"""Cuts a long paragraph at line ends where nothing is open: as it grows, what stands before is read and drawn once."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from markdown_it.token import Token

from rdchat.ui.transcript.markdown.blocks import Run
from rdchat.ui.transcript.markdown.inline_runs import inline_runs
from rdchat.ui.transcript.markdown.maths.formulas import FORMULAS

LEAST = 1000  # characters of a part
_MOST = 6000
_MOST_BRACKETS, _MOST_KEPT = 200, 64  # in a part, and parts
_NOTE_MARK = re.compile(r"\[\^[^\]\s]{1,40}\]")
# what may open something that a later line closes; an underscore between letters opens nothing
_OPENING = re.compile(r"[*`\[$]|~~|(?<!\w)_|_(?!\w)")
_MATHS_ESCAPES = ("\\(", "\\[")


class PartReader:
    """Cuts long paragraphs of one text, and keeps the parts as they were read.

    Args:
        tokens: Returns the inline tokens of some lines; the second argument is markdown-it's `env`.
    """

    def __init__(self, tokens: Callable[[str, dict[str, Any]], list[Token]]) -> None:
        self._tokens = tokens
        self._kept: dict[str, tuple[Run, ...] | None] = {}  # by their source; None for what cannot end there
        self._links: set[str] = set()  # link definitions known when they were read

    def cut(self, content: str, env: dict[str, Any]) -> tuple[list[tuple[Run, ...]], str]:
        """Return the parts that a long paragraph is cut into, and the source of the rest, which may grow."""
        if self._links != env["references"].keys():
            self._kept, self._links = {}, set(env["references"])
        parts: list[tuple[Run, ...]] = []
        start, found = 0, True
        while found:
            found = False
            for end in line_ends(content, start):
                if (runs := self._part(content[start:end].strip(" \t"), env)) is not None:
                    parts.append(runs)
                    start, found = end + 1, True
                    break
        return parts, content[start:].lstrip(" \t") if parts else content

    def _part(self, text: str, env: dict[str, Any]) -> tuple[Run, ...] | None:
        if text in self._kept:
            known = self._kept[text]
            if not any(run.maths and FORMULAS.cannot_draw(run.maths, run.display) for run in known or ()):
                return known
        tokens = self._tokens(text, env) if text.count("[") <= _MOST_BRACKETS else []
        runs = inline_runs(tokens) if tokens and is_closed(tokens) else None
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[text] = runs
        return runs


def is_closed(tokens: list[Token]) -> bool:
    """Tell whether the inline tokens of some whole lines leave nothing open that what follows could close."""
    for token in tokens:
        if token.type == "text" and _OPENING.search(_NOTE_MARK.sub("", token.content)):
            return False
        if token.type == "text_special" and token.markup in _MATHS_ESCAPES:
            return False
    return True


def line_ends(content: str, start: int) -> Iterator[int]:
    """Yield places of line ends at which a part that begins at `start` may end, each half as far again as the last.

    They depend on nothing that stands behind them, so that a growing paragraph is cut where the whole one is.
    """
    size = LEAST
    while size <= _MOST and (place := content.find("\n", start + size)) >= 0:
        if content[place - 1] != "\\":  # it would break the line
            yield place
        size = max(size, place - start) * 3 // 2
