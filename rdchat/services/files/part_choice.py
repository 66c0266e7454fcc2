"""Computes the part of a file that the person picks, and counts tokens: of a part, or of any text in a prompt.

A part is a text with a label, such as some pages or the beginning of a file (`Part`). Counting a long text takes
seconds, so all of this runs on a thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rdchat.chat.attachments.attached_file import (
    Part,
    Passage,
    ReadFile,
    all_of,
    attached,
    beginning,
    block_of,
    full_text,
    joined,
    pages,
    parsed_pages,
    passages_of,
    ranked,
)
from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import ChatMessage, Role
from rdchat.wording import counted

# Share of the room that a part fills; the rest is for what comes later in the chat.
_FILLED = 0.75
# `fitting_beginning` ends when its part differs from the longest that fits by less than one part in so many.
_NEAR = 100
# Sizes that it tries by estimates, before it halves what is left.
_LIKELY_TRIES = 6
# Characters of the beginning of a text that is too long to be counted, from which its tokens are estimated.
_SAMPLE = 12_000
_MIN_SAMPLE = 200
_NO_QUESTION = "Type what the passages should be about."

type Count = Callable[[Sequence[ChatMessage]], int]


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A number of tokens; one that is not `exact` is estimated from a sample, as far too many are."""

    tokens: int
    exact: bool = True

    @property
    def description(self) -> str:
        """`1,200 tokens`, or `about 250,000 tokens`."""
        if self.exact:
            return counted(self.tokens, "token")
        magnitude = 10 ** max(len(str(self.tokens)) - 2, 0)
        return f"about {round(self.tokens / magnitude) * magnitude:,} tokens"


def tokens_of(text: str, count: Count) -> TokenCount:
    """Return the tokens that a text adds to a message, counted by `count` on this thread.

    Raises:
        RdchatError: If there is no model, or its template refuses any message.
    """
    # Tokens of the template around a message, counted with one of a single token.
    around = count((ChatMessage(Role.USER, "."),)) - 1
    try:
        return TokenCount(max(count((ChatMessage(Role.USER, text),)) - around, 0))
    # A prompt that is far too long is not counted.
    except PromptTooLongError:
        size = min(_SAMPLE, len(text))
        while True:
            try:
                sampled = count((ChatMessage(Role.USER, text[:size]),)) - around
            except PromptTooLongError:
                if size <= _MIN_SAMPLE:
                    raise
                # The model takes hardly anything.
                size //= 4
            else:
                return TokenCount(round(sampled * len(text) / size), exact=False)


def tokens_or_estimate(text: str, count: Count) -> TokenCount:
    """Return the tokens that a text adds; an estimate, some four characters for each, where they cannot be counted."""
    try:
        return tokens_of(text, count)
    except (ModelError, PromptTooLongError):
        return TokenCount(len(text) // 4, exact=False)


def fitting_passages(
    passages: Sequence[Passage], order: Sequence[int], room: int, per_token: float, count: Callable[[Part], TokenCount]
) -> tuple[Part, TokenCount]:
    """Take the best passages until three quarters of the room are filled; at least one, though it may not fit.

    Args:
        passages: All of a file.
        order: Indices of those that match, the best first; not empty.
        room: Tokens that the part may have.
        per_token: Characters of a token, estimated.
        count: Counts the tokens of a part.

    Returns:
        Their text and its tokens.
    """
    sizes = accumulate(len(passages[index].text) for index in order)
    taken = sum(size <= max(room, 1) * _FILLED * per_token for size in sizes) or 1
    while True:
        part = joined(passages, order[:taken])
        tokens = count(part)
        if tokens.tokens <= room or taken == 1:
            return part, tokens
        taken = max(int(taken * room * _FILLED / tokens.tokens), 1)


def fitting_beginning(
    file: ReadFile, room: int, per_token: float, count: Callable[[Part], TokenCount]
) -> tuple[Part, TokenCount]:
    """Take as much of the beginning as three quarters of the room hold; at least one character, which may not fit.

    It searches for the size: between the longest that was found to fit (`fits`) and the shortest that was found not to
    (`too_many`), until they are a hundredth apart. Counting takes long, so the first tries are at the size that the
    tokens of the last one suggest; if that is not between the two, or after `_LIKELY_TRIES`, halfway between them.

    The arguments are those of `fitting_passages`.
    """
    limit = max(int(room * _FILLED), 1)
    # Characters: this many fit, and that many do not.
    fits = 0
    too_many = len(full_text(file)) + 1
    longest: tuple[Part, TokenCount] | None = None
    size = min(max(int(limit * per_token), 1), too_many - 1)
    tries = 0
    while True:
        tries += 1
        part = beginning(file, size)
        tokens = count(part)
        if tokens.tokens <= limit:
            longest = (part, tokens)
            fits = size
        else:
            too_many = size
        if too_many - fits <= max(fits // _NEAR, 1):
            return longest or (part, tokens)
        # Where the text is even, the limit is at this size. The next try is a little beyond it, seen from this one, so
        # that the two enclose the limit closely. With a limit of 500 tokens: if 1,000 characters have 250, the limit is
        # at 2,000, and 2,010 are tried next; if 3,000 have 750, it is 1,990.
        at_limit = size * limit / max(tokens.tokens, 1)
        beyond = 0.5 / _NEAR if fits == size else -0.5 / _NEAR
        size = int(at_limit * (1 + beyond))
        if tries > _LIKELY_TRIES or not fits < size < too_many:
            size = (fits + too_many) // 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """The part that the person picked.

    Attributes:
        part: The part; None where there is no text.
        count: Its tokens; None without a model.
        problem: A sentence: why there is no text.
        matching: Number of passages that match.
        passages: Number of passages of the file.
    """

    part: Part | None = None
    count: TokenCount | None = None
    problem: str = ""
    matching: int = 0
    passages: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens that the files of a message can have, and those that they have.

    Attributes:
        limit: Limit of all files together.
        others: Tokens of the other files.
        suggested: Suggested limit for this file.
        present: Tokens of this file now.
    """

    limit: int
    others: int
    suggested: int
    present: int

    def excess(self, count: TokenCount) -> int:
        """Return how many tokens remain to be cut in all files, with a part of so many tokens."""
        return max(self.others + count.tokens - self.limit, 0)

    def accepts(self, count: TokenCount) -> bool:
        """Whether a part can be chosen: if it fits, or is smaller, so that other files can be cut next."""
        return not self.excess(count) or (self.others > 0 and count.tokens < self.present)


class PartChoice:
    """A file of which the person picks a part.

    Args:
        file: The file.
        tokens: Tokens of the complete file; None if unknown.
        room: Tokens that its part may have; None without a model.
        count: Counts tokens of messages, on any thread.
        is_exact: Whether that is the model's own count; for a remote server's model it is an estimate.
    """

    def __init__(
        self, file: ReadFile, tokens: TokenCount | None, room: Room | None, count: Count, *, is_exact: bool = True
    ) -> None:
        self._is_exact = is_exact
        self.file = file
        self.tokens = tokens
        self.room = room
        self._count = count
        self._characters = max(sum(map(len, file.parts)), 1)
        # Characters of a token; a usual number before the file's tokens are known.
        self._per_token = self._characters / tokens.tokens if tokens and tokens.tokens else 4.0
        # All passages of the file, once a question was asked.
        self._passages: list[Passage] | None = None

    # Each computes and counts a part, which takes seconds for a long file

    def choose_all(self) -> Outcome:
        """Return all of the file."""
        return self._outcome(all_of(self.file))

    def choose_pages(self, numbers: str) -> Outcome:
        """Return pages, given as in a print dialog: `1-4, 7`."""
        parsed = parsed_pages(numbers, len(self.file.parts))
        if parsed is None:
            return Outcome(problem=f"Type pages from 1 to {len(self.file.parts)}, such as 1-4, 7.")
        part = pages(self.file, parsed)
        return self._outcome(part) if part.text.strip() else Outcome(problem="There is no text on these pages.")

    def choose_beginning(self, percent: int) -> Outcome:
        """Return a share of the file from its beginning; 0 for three quarters of the room, or all without a model."""
        if percent == 0 and self.room is not None:
            return Outcome(*fitting_beginning(self.file, self.room.suggested, self._per_token, self._counted))
        size = self._characters * percent // 100 if percent else self._characters
        return self._outcome(beginning(self.file, max(size, 1)))

    def choose_passages(self, question: str) -> Outcome:
        """Return the passages that match a question best, as many as fit."""
        if self._passages is None:
            self._passages = passages_of(self.file)
        passages = self._passages
        count = len(passages)
        order = ranked(passages, question)
        if not order:
            problem = "No passage has any of these words." if question.strip() else _NO_QUESTION
            return Outcome(problem=problem, passages=count)
        if self.room is None:
            outcome = self._outcome(joined(passages, order))
        else:
            outcome = Outcome(*fitting_passages(passages, order, self.room.suggested, self._per_token, self._counted))
        return replace(outcome, matching=len(order), passages=count)

    def _outcome(self, part: Part) -> Outcome:
        """Return a part with its tokens, if there is a model to count them."""
        return Outcome(part, None if self.room is None else self._counted(part))

    def _counted(self, part: Part) -> TokenCount:
        """Count a part as it stands in the prompt, with the file's name."""
        counted = tokens_of(block_of(attached(self.file, part.text, part.label), part.text), self._count)
        return replace(counted, exact=counted.exact and self._is_exact)
