"""Finds the colours of code in a child process, `rdchat --child lexers`, with limits of time and memory.

One match of a pattern holds Python's lock, and those of Pygments take exponential time for some texts, so in the app's
own process they would stop the window. The child, `lexers_child`, gets the lexer's state with each request.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rdchat.errors import RdchatError
from rdchat.wording import utf16_length
from rdchat.work import ChildError, ChildProcess, Job, Limits, SerialThread, outcome_of

# Processor time that reading code may take, and more for each character: Pygments reads 200,000 to 600,000 a second.
_SECONDS = 0.3
_SECONDS_EACH = 1e-5
# The child ends its own reading at the limit of processor time; it is killed if it cannot.
_LIMITS = Limits(seconds=20.0, memory_bytes=512 << 20)
# The child is ended after this time without code.
_IDLE_S = 300.0

type Line = list[tuple[int, int, str]]
"""Coloured parts of a line: begin and length in UTF-16 units, and the name of a colour of `Colors`."""
COLORS = {"keyword", "name", "builtin", "string", "number", "comment", "inserted", "deleted"}


class ReadLines(NamedTuple):
    """What the child has found in lines of code.

    Attributes:
        lines: The coloured parts of each line; no lines in an unknown language.
        settled: Number of the lines that need not be read again with those that follow.
        stack: The lexer's state behind these.
        comment_end: The end of the comment that goes on; empty for none.
    """

    lines: list[Line]
    settled: int
    stack: list[str]
    comment_end: str


class CodeReader:
    """Reads code, one piece after the other; what exceeds a limit stays plain.

    A language whose code has exceeded one has a thread and a child of its own from then on: no other waits for it.

    Attributes:
        child: Started with the first piece, and again after it ended.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("lexers", idle_s=_IDLE_S)
        self._thread = SerialThread("lexers")
        self._slow_child = ChildProcess("lexers", idle_s=_IDLE_S)
        self._slow_thread = SerialThread("slow lexers")
        # How often code of a language has exceeded a limit.
        self._excesses = Counter[str]()

    def ask[T](self, language: str, work: Callable[[], T]) -> Job[T]:
        """Do work that reads code of a language, on a thread; not if the job is dropped before its turn."""
        job: Job[T] = Job()
        held = weakref.ref(job)

        def do(_job: object) -> None:
            if (asked := held()) is not None:
                outcome = outcome_of(asked, lambda _job: work(), "lexers")
                asked.set_outcome(outcome)

        self._thread.do(lambda turn: self._slow_thread.do(do) if language.lower() in self._excesses else do(turn))
        return job

    def read(self, language: str, lines: list[str], stack: Sequence[str]) -> ReadLines | None:
        """Read complete lines from the state where they begin, and wait; None if that exceeds a limit.

        Args:
            language: An alias of Pygments.
            lines: The lines.
            stack: The lexer's state; empty for the whole code.
        """
        language = language.lower()
        excesses = self._excesses[language]
        child = self._slow_child if excesses else self.child
        # After excesses it is less, down to a tenth.
        seconds = (_SECONDS + _SECONDS_EACH * sum(map(len, lines))) / min(1 + excesses, 10)
        arguments = {"language": language, "lines": lines, "stack": stack, "seconds": seconds}
        for _ in range(2):
            try:
                job = child.submit("read", arguments, _LIMITS, read=lambda answer: _read_lines(lines, *answer))
                found: ReadLines = job.result()
                return found
            except RdchatError as error:
                # Nothing is lost with a child that another program killed: the next one gets the same.
                if not (isinstance(error, ChildError) and error.interrupted):
                    break
        self._excesses[language] += 1
        return None


READER = CodeReader()
"""One for all texts."""


def _read_lines(asked: list[str], found: Any, settled: int, stack: list[str], comment_end: str) -> ReadLines:
    """Return the child's answer; raise an error that `ChildProcess.submit` names if it is not valid."""
    lines = [_line(text, parts) for text, parts in zip(asked, found, strict=bool(found))]
    if not 0 <= settled <= len(asked):
        raise ValueError(settled)
    return ReadLines(lines, settled, stack, str(comment_end))


def _line(text: str, parts: Any) -> Line:
    units = utf16_length(text)
    line: Line = [(begin, length, color) for begin, length, color in parts]
    if not all(0 <= begin < begin + length <= units and color in COLORS for begin, length, color in line):
        raise ValueError(text)
    return line


def lines_of(language: str, code: str) -> list[Line]:
    """Return the coloured parts of each line; none in an unknown language, or if reading exceeds a limit."""
    found = READER.read(language, code.split("\n"), ())
    return found.lines if found else []


class GrowingCode:
    """Finds the colours of the lines of a code block as they are complete; each costs the same.

    The last line that a token begins is read again with the next ones, in the state that the lexer had there: a string
    or a comment may go on in them. Lexers whose state is not known read each line by itself.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        # The lines to be read again, the number of the first one, and the lexer's state where it begins.
        self._again = list[str]()
        self._begin = 0
        self._stack = ["root"]
        # The end of the comment that goes on; empty for none.
        self._comment_end = ""

    def read_lines(self, lines: list[str]) -> tuple[int, list[Line]] | None:
        """Return the number of the first line whose colours may be new now, and the parts of the lines from there.

        Such as `(3, [[(0, 3, "keyword")], []])`: line 3 begins with a keyword of three letters, line 4 has no colours.
        None if reading exceeds a limit.

        Args:
            lines: The lines that are complete since the last call. They are read with those that are to be read again,
                unless they are all inside a comment whose end is not written yet.
        """
        before = self._again
        self._again = before + lines
        if self._comment_end and not any(self._comment_end in line for line in lines):
            comment = [[(0, utf16_length(line), "comment")] if line else [] for line in lines]
            return self._begin + len(before), comment
        found = READER.read(self._language, self._again, self._stack)
        if found is None:
            return None
        begin = self._begin
        self._begin += found.settled
        self._again = self._again[found.settled :]
        self._stack = found.stack
        self._comment_end = found.comment_end
        return begin, found.lines
