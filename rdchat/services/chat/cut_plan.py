"""Plans how a chat that is too long is shortened: which turns are left out, and what is summarised.

A turn is a question with the replies, calls and results up to the next question; only whole turns are left out.
`ChatContext` makes a `CutPlanner` on a thread, and carries out the `CutPlan` that one of its methods returns.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, block_of
from rdchat.chat.conversation import Message, waiting_calls
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import ChatImage, ChatMessage, Role
from rdchat.services.chat.chat_prompt import (
    ChatPrompt,
    Count,
    FileText,
    FilledPrompt,
    ends_with_question,
    history,
    is_said,
    seen,
    shortened,
)
from rdchat.services.chat.summary_requests import asked_of_chat, counted_tokens, pieces_of, sources_of, text_of

# The longest summary, in tokens.
_LONGEST_SUMMARY = 768
# The tokens for thinking before a summary.
_LONGEST_THOUGHT = 2048
# The newest files of a chat stay whole in this part of the context, also those of turns that are cut: a quarter.
_FILES_SHARE = 4
NEXT = "?"
"""Stands for the next question, so that the last turn of a chat that ends with a reply can be cut as well."""
# Stands for the text of a file that the model gets whole besides the summary.
_STAYS_WHOLE = "(The chat still has all of this file.)"


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that a chat may have.

    Attributes:
        limit: The model's context.
        reserve: Tokens to leave free for the next reply.
        spares: Whether to leave more free, if the last turn can stay: half of what the files leave (`cut_position`).
        thinks: Whether the model may think before a summary.
    """

    limit: int
    reserve: int
    spares: bool = False
    thinks: bool = True


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A cut of a chat, perhaps with what is to be summarised.

    Attributes:
        message_id: The last message that is cut.
        cut: The cut, without a summary.
        asked: The request for the summary, made of the chat's own prompt; empty where that does not fit.
        pieces: The text of the turns, in pieces, for where it does not; none if nothing is summarised.
        max_tokens: Maximum tokens of the summary, with thinking before it.
    """

    message_id: int
    cut: ContextCut = ContextCut()  # noqa: RUF009  it is frozen
    asked: tuple[ChatMessage, ...] = ()
    pieces: Sequence[str] = ()
    max_tokens: int = 0


class CutPlanner:
    """Plans how a chat is shortened. Not for the main thread.

    Neither an unanswered question nor a call that waits is ever cut.

    Args:
        prompt: The chat.
        complete: The same with all texts of files.
        budget: The tokens that it may have.
        count: Returns the tokens of a conversation.
        text_of: Reads the text of a file.
    """

    def __init__(
        self, prompt: ChatPrompt, complete: FilledPrompt, budget: Budget, count: Count, text_of: FileText
    ) -> None:
        self._prompt = prompt
        self._complete = complete
        self._budget = budget
        self._count = count
        self._text_of = text_of

    def shortened(self, *, in_last_turn: bool = False) -> CutPlan | None:
        """Plan to shorten results of tools before the last turn, or in it before its last calls.

        None if there are none to shorten, or the chat is still too long then.
        """
        path = list(self._complete.path)
        # Index of the last question, or of the last reply with calls: only results before it are shortened.
        last = 0
        for index, message in enumerate(path):
            if message.tool_calls if in_last_turn else message.role is Role.USER:
                last = index
        before = [shortened(message) for message in path[:last]]
        result_ids = {message.id for message in before if message.role is Role.TOOL}
        images = {key: value for key, value in self._complete.images.items() if key not in result_ids}
        prompt = replace(self._complete, path=[*before, *path[last:]], images=images)
        # Where nothing is shortened, `before` is the same as the path up to there, perhaps empty.
        fits = counted_tokens(self._count, prompt.turns()) <= self._budget.limit - self._budget.reserve
        return CutPlan(before[-1].id, ContextCut(shortens=True)) if fits and before != path[:last] else None

    def without_oldest(self) -> CutPlan | None:
        """Plan to leave out the oldest turns, but not their files; None if the last question alone is too long."""
        path = [*seen(self._prompt.path)]
        full, tokens = self._full_files(path)
        last = cut_position(self._complete, self._budget, self._count, tokens)
        if last is None:
            return None
        return CutPlan(last, ContextCut(files=_files_of(path[: _end_of(path, last)], full)))

    def with_summary(self, stored: FilledPrompt | None = None, *, to_end: bool = False) -> CutPlan | None:
        """Plan a summary of the oldest turns, so that the rest fits, or `to_end` of all turns; None if there is none.

        To the end, a question that nothing has answered yet is left out: it moves to the new chat, unless something is
        typed.

        Args:
            stored: The chat without the question that is not sent yet, as the model has it in its KV cache.
            to_end: Whether all turns are summarised.

        Raises:
            PromptTooLongError: If the context is too small for a summary.
        """
        limit = self._budget.limit
        max_tokens = min(_LONGEST_SUMMARY, limit // 4)
        path = [*seen(self._prompt.path)]
        # Files of the cut messages that the model still gets whole, besides the summary.
        full: list[AttachedFile] = []
        if to_end:
            last = self._last_before_question(path)
        else:
            # Of the whole path, as the cut is not known yet: files behind it count twice, which leaves some room more.
            full, tokens = self._full_files(path)
            last = cut_position(self._complete, self._budget, self._count, max_tokens + tokens)
        if last is None:
            return None
        # The number of messages up to the last one that is cut.
        end = _end_of(path, last)
        text = self._text_of_turns(path[:end], full)
        if not text:
            return None
        thoughts = min(_LONGEST_THOUGHT, limit // 4) if self._budget.thinks else 0
        # The request for a piece has the summary of those before it, and thoughts and its own summary follow.
        room = limit - 2 * max_tokens - thoughts
        cut = ContextCut(sources=sources_of(path[:end]), files=_files_of(path[:end], full))
        until = next((each.text for each in path[end:] if each.role is Role.USER), "")
        asked = self._asked_of_chat(stored or self._complete.stored, end, until, limit - max_tokens - thoughts)
        return CutPlan(last, cut, asked, pieces_of(text, self._count, room), max_tokens + thoughts)

    def _last_before_question(self, path: Sequence[Message]) -> int | None:
        """Return the id of the last message before a question that ends the path, or of the last one of all."""
        end = len(path)
        is_typed = self._complete.asks and self._prompt.typed.strip() != NEXT
        if not is_typed:
            while end and not is_said(path[end - 1]):
                end -= 1
            if end and path[end - 1].role is Role.USER and not _is_summary(path[end - 1]):
                end -= 1
        return path[end - 1].id if end else None

    def _text_of_turns(self, path: Sequence[Message], full: Sequence[AttachedFile]) -> str:
        """Return messages as `history` writes them, as one text; images and files that stay whole are only named."""
        prompt = ChatPrompt(path, "").with_files(
            lambda file: _STAYS_WHOLE if file in full else self._text_of(file),
            image_of=lambda file, _: ChatImage(Path(), file.digest, file.width, file.height, file.name),
        )
        return text_of(history(prompt.path, "", images=prompt.images))

    def _asked_of_chat(self, stored: FilledPrompt, end: int, until: str, room: int) -> tuple[ChatMessage, ...]:
        """Return the chat's prompt with a request to summarise the first messages, if it fits; empty if it does not.

        All of the prompt is tried first: then its KV cache is read on. Its first `end` messages alone need less room.
        """
        if until.strip() or end == len(stored.path):
            whole = asked_of_chat(stored.turns(), until)
            if counted_tokens(self._count, whole) <= room:
                return whole
        first = asked_of_chat(replace(stored, path=stored.path[:end]).turns(), "")
        return first if counted_tokens(self._count, first) <= room else ()

    def _full_files(self, path: Sequence[Message]) -> tuple[list[AttachedFile], int]:
        """Return the newest files of a path that take a quarter of the context at most, and their tokens."""
        files = dict.fromkeys(file for each in reversed(path) for file in each.files if file.kind is not FileKind.IMAGE)
        full = list[AttachedFile]()
        taken = 0
        for file in files:
            block = ChatMessage(Role.USER, block_of(file, self._text_of(file)))
            tokens = counted_tokens(self._count, (block,))
            if taken + tokens <= self._budget.limit // _FILES_SHARE:
                full.append(file)
                taken += tokens
        return full, taken


def cut_position(prompt: FilledPrompt, budget: Budget, count: Count, more_tokens: int = 0) -> int | None:
    """Return the id of the first message after which the rest of the chat fits; None if the last question is too long.

    Only whole turns are left out. These are tried in order, each with as few turns left out as possible:
    1. With `spares`: leave half of what the files leave free, but no less than the reserve, and keep the last turn;
       before a question that is not sent yet, that is the turn before it.
    2. With `spares`: leave out all but the last turn, if that leaves the reserve free.
    3. Leave the reserve free; a question that is not sent yet may stay alone.
    4. Leave out every turn that can be left out, if the last question fits at all.

    Args:
        prompt: The chat, with the texts of its files.
        budget: The tokens that it may have.
        count: Returns the tokens of a conversation.
        more_tokens: Tokens of what stands in place of the turns that are left out.
    """
    indexes = _cut_indexes(prompt)
    # The tokens to leave free, and the cuts to choose from: the first pair with a cut that leaves so much counts.
    tries = [(budget.reserve, indexes)]
    if budget.spares:
        # Without a question some templates refuse the rest.
        shared = counted_tokens(count, replace(prompt, path=(), typed=NEXT, typed_images=()).turns())
        spare = (budget.limit - shared) // 2
        # Cuts that keep the turn before a question that is not sent yet.
        recent = indexes[:-1] if prompt.asks else indexes
        tries = [(max(spare, budget.reserve), recent), (budget.reserve, recent[-1:]), *tries]
    for free, possible in tries:
        room = budget.limit - free - more_tokens
        # The later the cut, the fewer tokens are behind it.
        first = bisect_left(possible, True, key=lambda index: _tokens_behind(prompt, index, count) <= room)
        if first < len(possible):
            return prompt.path[possible[first]].id
    # Nothing leaves the reserve: a last question that fits at all is kept.
    if indexes and _tokens_behind(prompt, indexes[-1], count) + more_tokens < budget.limit:
        return prompt.path[indexes[-1]].id
    return None


def _cut_indexes(prompt: FilledPrompt) -> list[int]:
    """Return the indexes of messages that the path can be cut after: a reply stands before, a question behind them."""
    path = prompt.path
    indexes = list[int]()
    # A summary is not cut alone.
    answered = False
    for index, message in enumerate(path):
        if is_said(message):
            answered = message.role is Role.ASSISTANT
        is_last = index == len(path) - 1
        if answered and not is_last and path[index + 1].role is Role.USER:
            indexes.append(index)
    if prompt.asks and path and not ends_with_question(path) and not waiting_calls(path):
        indexes.append(len(path) - 1)
    return indexes


def _is_summary(message: Message) -> bool:
    """Whether a message of what the model sees stands in place of others."""
    return message.context_cut is not None and not message.context_cut.shortens


def _end_of(path: Sequence[Message], last: int) -> int:
    """Return the number of messages up to the one with an id."""
    return next(index for index, each in enumerate(path, 1) if each.id == last)


def _files_of(path: Sequence[Message], full: Sequence[AttachedFile]) -> tuple[AttachedFile, ...]:
    """Return those files of messages that stay whole."""
    return tuple(dict.fromkeys(file for each in path for file in each.files if file in full))


def _tokens_behind(prompt: FilledPrompt, index: int, count: Count) -> int:
    """Return the tokens of a prompt that is cut after the message at an index."""
    return counted_tokens(count, replace(prompt, path=prompt.path[index + 1 :]).turns())
