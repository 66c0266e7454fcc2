"""Computes and counts the part of a file that the person picks, on a thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.attachments.attached_file import ReadFile
from rdchat.chat.attachments.choosing import (
    Part,
    Passage,
    beginning,
    joined,
    pages,
    parsed_pages,
    passages_of,
    ranked,
    whole,
)
from rdchat.inference.api.requests import ChatMessage
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.files.token_counts import FILLED, TokenCount, fitting_passages, tokens_of

_QUIET_MS = 150  # after the last letter

type Count = Callable[[Sequence[ChatMessage]], int]


class Way(Enum):
    """How a part is chosen."""

    PASSAGES = auto()
    PAGES = auto()
    BEGINNING = auto()
    WHOLE = auto()


@dataclass(frozen=True, slots=True)
class Choice:
    """The part that the person picked."""

    way: Way
    question: str = ""  # that passages match
    passages: int = 0  # how many of the best; 0 for as many as fit
    pages: str = ""  # as in a print dialog, `1-4, 7`
    percent: int = 0  # of the file, from its beginning; 0 for as much as fits


@dataclass(frozen=True, slots=True)
class Outcome:
    """The text that a choice stands for."""

    choice: Choice
    part: Part | None = None  # None where there is no text
    count: TokenCount | None = None  # its tokens; None without a model
    problem: str = ""  # why there is no text, a sentence
    used: int = 0  # how many passages, or what percentage, the part has
    matching: int = 0  # passages that match
    passages: int = 0  # of the file


class PartChoice(QObject):
    """Answers the last choice with `answered`. Lives on the main thread.

    Args:
        file: The file.
        tokens: Of all of it; None where they are not known.
        room: Tokens that its part can have; None without a model.
        count: Counts tokens of messages, on any thread.
        parent: The Qt parent.
    """

    answered = Signal(Outcome)

    def __init__(
        self,
        file: ReadFile,
        tokens: TokenCount | None,
        room: int | None,
        count: Count,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.file, self.tokens, self.room = file, tokens, room
        self._work = _Work(file, tokens, room, count)
        self._choice: Choice | None = None
        self._timer = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self._timer.timeout.connect(self._start)
        self._task = BackgroundWork("part of a file", self)

    def choose(self, choice: Choice) -> None:
        """Compute another choice, soon; nothing more is told of the last one."""
        self._choice = choice
        self._task.forget()
        self._timer.start()

    @Slot()
    def stop(self) -> None:
        """Compute no more; what is under way ends by itself."""
        self._timer.stop()
        self._task.forget()

    @Slot()
    def _start(self) -> None:
        choice, work = self._choice, self._work
        if choice is not None:
            self._task.replace(
                lambda _job: work.outcome(choice),
                self.answered.emit,
                failed=lambda error: self.answered.emit(Outcome(choice, problem=str(error))),
            )


class _Work:
    """Computes outcomes on the thread."""

    def __init__(self, file: ReadFile, tokens: TokenCount | None, room: int | None, count: Count) -> None:
        self._file, self._room, self._count = file, room, count
        self._characters = max(sum(map(len, file.parts)), 1)
        known = tokens is not None and tokens.tokens > 0
        self._per_token = self._characters / tokens.tokens if known and tokens is not None else 4.0
        self._passages: list[Passage] | None = None

    def outcome(self, choice: Choice) -> Outcome:
        if choice.way is Way.PASSAGES:
            return self._matching(choice)
        if choice.way is Way.PAGES:
            numbers = parsed_pages(choice.pages, len(self._file.parts))
            if numbers is None:
                return Outcome(choice, problem=f"Type pages from 1 to {len(self._file.parts)}, such as 1-4, 7.")
            part = pages(self._file, numbers)
            problem = "" if part.text.strip() else "There is no text on these pages."
            return Outcome(choice, None if problem else part, None if problem else self._tokens(part), problem)
        if choice.way is Way.BEGINNING:
            return self._beginning(choice)
        return Outcome(choice, whole(self._file), self._tokens(whole(self._file)))

    def _beginning(self, choice: Choice) -> Outcome:
        percent = choice.percent or min(max(int(self._fitting / self._characters * 100), 1), 100)
        part = beginning(self._file, max(self._characters * percent // 100, 1))
        return Outcome(choice, part, self._tokens(part), used=percent)

    def _matching(self, choice: Choice) -> Outcome:
        if self._passages is None:
            self._passages = passages_of(self._file)
        found, number = self._passages, len(self._passages)
        if not choice.question.strip():
            return Outcome(choice, problem="Type what the passages are to be about.", passages=number)
        order = ranked(found, choice.question)
        if not order:
            return Outcome(choice, problem="No passage has any of these words.", passages=number)
        if choice.passages or self._room is None:
            taken = min(choice.passages or len(order), len(order))
            part = joined(found, order[:taken])
            return Outcome(choice, part, self._tokens(part), used=taken, matching=len(order), passages=number)
        counted = partial(tokens_of, count=self._count)
        taken, part, count = fitting_passages(found, order, self._room, self._per_token, counted)
        return Outcome(choice, part, count, used=taken, matching=len(order), passages=number)

    @property
    def _fitting(self) -> float:
        """Characters that fill the room as far as it is to be filled."""
        return self._characters if self._room is None else max(self._room, 1) * FILLED * self._per_token

    def _tokens(self, part: Part) -> TokenCount | None:
        return None if self._room is None else tokens_of(part.text, self._count)
