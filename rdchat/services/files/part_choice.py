"""Computes and counts the part of a file that the person picks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

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
from rdchat.services.files.token_counts import FILLED, TokenCount, fitting_passages, tokens_of

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


class PartChoice:
    """A file of which the person picks a part.

    Args:
        file: The file.
        tokens: Of all of it; None where they are not known.
        room: Tokens that its part can have; None without a model.
        count: Counts tokens of messages, on any thread.
    """

    def __init__(self, file: ReadFile, tokens: TokenCount | None, room: int | None, count: Count) -> None:
        self.file, self.tokens, self.room = file, tokens, room
        self._count = count
        self._characters = max(sum(map(len, file.parts)), 1)
        self._per_token = self._characters / tokens.tokens if tokens and tokens.tokens else 4.0
        self._passages: list[Passage] | None = None

    def outcome(self, choice: Choice) -> Outcome:
        """Compute and count a part, which takes seconds for a long file."""
        if choice.way is Way.PASSAGES:
            return self._matching(choice)
        if choice.way is Way.PAGES:
            numbers = parsed_pages(choice.pages, len(self.file.parts))
            if numbers is None:
                return Outcome(choice, problem=f"Type pages from 1 to {len(self.file.parts)}, such as 1-4, 7.")
            part = pages(self.file, numbers)
            if not part.text.strip():
                return Outcome(choice, problem="There is no text on these pages.")
            return Outcome(choice, part, self._tokens(part))
        if choice.way is Way.BEGINNING:
            return self._beginning(choice)
        return Outcome(choice, whole(self.file), self._tokens(whole(self.file)))

    def _beginning(self, choice: Choice) -> Outcome:
        percent = choice.percent or min(max(int(self._fitting / self._characters * 100), 1), 100)
        part = beginning(self.file, max(self._characters * percent // 100, 1))
        return Outcome(choice, part, self._tokens(part), used=percent)

    def _matching(self, choice: Choice) -> Outcome:
        if self._passages is None:
            self._passages = passages_of(self.file)
        found, number = self._passages, len(self._passages)
        if not choice.question.strip():
            return Outcome(choice, problem="Type what the passages are to be about.", passages=number)
        order = ranked(found, choice.question)
        if not order:
            return Outcome(choice, problem="No passage has any of these words.", passages=number)
        if choice.passages or self.room is None:
            taken = min(choice.passages or len(order), len(order))
            part = joined(found, order[:taken])
            return Outcome(choice, part, self._tokens(part), used=taken, matching=len(order), passages=number)
        counted = partial(tokens_of, count=self._count)
        taken, part, count = fitting_passages(found, order, self.room, self._per_token, counted)
        return Outcome(choice, part, count, used=taken, matching=len(order), passages=number)

    @property
    def _fitting(self) -> float:
        """Characters that fill the room as far as it is to be filled."""
        return self._characters if self.room is None else max(self.room, 1) * FILLED * self._per_token

    def _tokens(self, part: Part) -> TokenCount | None:
        return None if self.room is None else tokens_of(part.text, self._count)
