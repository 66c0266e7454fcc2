"""Where each token stands: tokens flow into lines of one height, and words stay whole where they fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

NO_CHARACTER = "·"  # stands for half a character, and for the token that ends a reply
LINE_BREAK = "⏎"
_TAB = "    "


@dataclass(slots=True)
class TokenRun:
    """The part of a token that stands on one line; `x` and `width` in pixels."""

    token: int
    line: int
    x: float
    width: float
    text: str


class TokenLines:
    """Grows by appending; only the last line may change then.

    Args:
        advance: Gives the width of a text in pixels; asked for the same text again and again.
        width: Of a line, in pixels.
    """

    def __init__(self, advance: Callable[[str], float], width: float) -> None:
        self._advance = advance
        self._width = width
        self._x = 0.0
        self._word = 0  # place in the last line where the word that is being laid begins
        self.lines: list[list[TokenRun]] = [[]]
        self.runs: list[list[TokenRun]] = []  # of each token

    def append(self, texts: Iterable[str]) -> None:
        """Lay tokens behind the last one."""
        for text in texts:
            self.runs.append([])
            shown = text.replace("\r", "").replace("\t", _TAB) or NO_CHARACTER
            parts = shown.split("\n")
            for number, part in enumerate(parts):
                is_last = number == len(parts) - 1
                if part or not is_last:
                    self._lay(part if is_last else part + LINE_BREAK)
                if not is_last:
                    self._break()

    def token_at(self, line: int, x: float) -> int | None:
        """Return the token at a place, the nearest of its line beside the text; None on a line without any."""
        if not 0 <= line < len(self.lines) or not self.lines[line]:
            return None
        runs = self.lines[line]
        return next((run.token for run in runs if x < run.x + run.width), runs[-1].token)

    def spans(self, tokens: range) -> list[tuple[int, float, float]]:
        """Return line, left and right edge of what these tokens, which follow each other, cover, line by line."""
        found: list[tuple[int, float, float]] = []
        for token in tokens:
            for run in self.runs[token]:
                if found and found[-1][0] == run.line:
                    found[-1] = (run.line, found[-1][1], run.x + run.width)
                else:
                    found.append((run.line, run.x, run.x + run.width))
        return found

    def _lay(self, text: str) -> None:
        if len(text) > 1 and self._advance(text) > self._width:
            self._lay(text[: len(text) // 2])
            self._lay(text[len(text) // 2 :])
            return
        line = self.lines[-1]
        if text[0] == " " or not line or line[-1].text[-1] in " -":
            self._word = len(line)
        if line and self._x + self._advance(text) > self._width:
            self._break(carry=self._word if self._word else len(line))
            if self.lines[-1] and self._x + self._advance(text) > self._width:
                self._break()  # a word longer than a line
            if not self.lines[-1]:
                text = text.lstrip(" ") or " "
        width = self._advance(text)
        run = TokenRun(len(self.runs) - 1, len(self.lines) - 1, self._x, width, text)
        self.lines[-1].append(run)
        self.runs[-1].append(run)
        self._x += width

    def _break(self, carry: int | None = None) -> None:
        """Begin a line; it begins with the runs of the one before from `carry` on."""
        last = self.lines[-1]
        carried = [] if carry is None else last[carry:]
        if carried:
            del last[carry:]
        self.lines.append([])
        self._x, self._word = 0.0, 0
        for run in carried:
            if self._x == 0:
                run.text = run.text.lstrip(" ") or " "
                run.width = self._advance(run.text)
            run.line, run.x = len(self.lines) - 1, self._x
            self.lines[-1].append(run)
            self._x += run.width
