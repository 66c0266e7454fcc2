"""Plans how a chat that is too long is shortened: which turns are left out, and which texts are summarised.

A turn is a question with the replies, calls and results up to the next question; only whole turns are left out.
`ChatContext` makes a `CutPlanner` on a thread, and carries out the `CutPlan` that one of its methods returns. A text
that is too long for one request is summarised in pieces: each request has the summary of the pieces before.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, block_of
from rdchat.chat.conversation import Message
from rdchat.chat.summaries import (
    SUMMARY_NOTE,
    ContextCut,
)
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, Role
from rdchat.services.chat.chat_prompt import ChatPrompt, Count, FileText, seen, shortened

# The longest summary, in tokens.
_LONGEST_SUMMARY = 768
# The tokens for thinking before a summary, if it cannot be switched off.
_LONGEST_THOUGHT = 2048
# The newest files of a chat stay whole in this part of the context, also those of turns that a summary replaces: a
# quarter.
_FILES_SHARE = 4
# In characters; a context with less room cannot be used for a summary.
_MIN_PIECE = 200

_SPEAKERS = {Role.USER: "Person", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool"}

SUMMARY_WISH = (
    "Summarise the conversation below for yourself, so that you can go on with it without having read it. Keep names,"
    " numbers, decisions, open questions and what the person wants. Write only the summary, in the conversation's own"
    " language."
)


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that a chat may have.

    Attributes:
        limit: The model's context.
        reserve: Tokens to leave free for the next reply.
        spare: Tokens to leave free if the last turn can stay (`cut_position`); 0 to leave out no more than the reserve
            needs.
        thinks: Whether the model may think before a summary.
    """

    limit: int
    reserve: int
    spare: int = 0
    thinks: bool = True


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A cut of a chat, perhaps with a text to summarise in pieces.

    Attributes:
        message_id: The last message that is cut.
        cut: The cut, without a summary.
        pieces: The text; none if nothing is summarised.
        max_tokens: Maximum tokens of the summary, with thinking before it.
    """

    message_id: int
    cut: ContextCut = ContextCut()  # noqa: RUF009  it is frozen
    pieces: Sequence[str] = ()
    max_tokens: int = 0


class CutPlanner:
    """Plans how a chat is shortened. An unanswered question is never cut. Not for the main thread.

    Args:
        prompt: The chat.
        complete: The same with all texts of files.
        budget: The tokens that it may have.
        count: Returns the tokens of a conversation.
        text_of: Reads the text of a file.
    """

    def __init__(
        self, prompt: ChatPrompt, complete: ChatPrompt, budget: Budget, count: Count, text_of: FileText
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
        fits = _count(self._count, prompt.turns()) <= self._budget.limit - self._budget.reserve
        return CutPlan(before[-1].id, ContextCut(shortens=True)) if fits and before != path[:last] else None

    def without_oldest(self) -> CutPlan | None:
        """Plan to leave out the oldest turns; None if the last question alone is too long."""
        last = cut_position(self._complete, self._budget, self._count)
        return None if last is None else CutPlan(last)

    def with_summary(self, *, to_end: bool = False) -> CutPlan | None:
        """Plan a summary of the oldest turns, so that the rest fits, or `to_end` of all turns; None if there is none.

        Raises:
            PromptTooLongError: If the context is too small for a summary.
        """
        limit = self._budget.limit
        max_tokens = min(_LONGEST_SUMMARY, limit // 4)
        path = [*seen(self._prompt.path)]
        # Files of the cut messages that the model still gets whole, besides the summary.
        full: list[AttachedFile] = []
        if to_end:
            last = _last_answered(path)
        else:
            # Of the whole path, as the cut is not known yet: files behind it count twice, which leaves some room more.
            full, tokens = self._full_files(path)
            last = cut_position(self._complete, self._budget, self._count, max_tokens + tokens)
        # The number of messages up to the last one that is cut.
        end = next((index for index, each in enumerate(path, 1) if each.id == last), 0)
        text = text_of_turns(path[:end], full, self._text_of)
        if last is None or not text:
            return None
        thoughts = min(_LONGEST_THOUGHT, limit // 4) if self._budget.thinks else 0
        # The request for a piece has the summary of those before it, and thoughts and its own summary follow.
        room = limit - 2 * max_tokens - thoughts
        files = dict.fromkeys(file for each in path[:end] for file in each.files if file in full)
        cut = ContextCut(sources=sources_of(path[:end]), files=tuple(files))
        return CutPlan(last, cut, pieces_of(text, self._count, room), max_tokens + thoughts)

    def _full_files(self, path: Sequence[Message]) -> tuple[list[AttachedFile], int]:
        """Return the newest files of a path that take a quarter of the context at most, and their tokens."""
        files = dict.fromkeys(file for each in reversed(path) for file in each.files if file.kind is not FileKind.IMAGE)
        full = list[AttachedFile]()
        taken = 0
        for file in files:
            block = ChatMessage(Role.USER, block_of(file, self._text_of(file)))
            tokens = _count(self._count, (block,))
            if taken + tokens <= self._budget.limit // _FILES_SHARE:
                full.append(file)
                taken += tokens
        return full, taken


def sources_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the names of the tools and remote servers that texts of some messages come from."""
    names: list[str] = []
    for message in messages:
        names += message.context_cut.sources if message.context_cut else ()
        names += [message.tool_name, message.drafting.server if message.drafting else ""]
    return tuple(dict.fromkeys(filter(None, names)))


def cut_position(prompt: ChatPrompt, budget: Budget, count: Count, summary_tokens: int = 0) -> int | None:
    """Return the id of the first message after which the rest of the chat fits; None if the last question is too long.

    Only whole turns are left out. These are tried in order, each with as few turns left out as possible:
    1. With a `spare`: leave that free, but no less than the reserve, and keep the last turn; before a question that is
       not sent yet, that is the turn before it.
    2. With a `spare`: leave the reserve free, and keep the last turn.
    3. Leave the reserve free; a question that is not sent yet may stay alone.
    4. Leave out every turn that can be left out, if the last question fits at all.

    Args:
        prompt: The chat, with the texts of its files.
        budget: The tokens that it may have.
        count: Returns the tokens of a conversation.
        summary_tokens: Tokens reserved for the summary of the turns that are left out.
    """
    indexes = _cut_indexes(prompt)
    # The tokens to leave free, and the cuts to choose from: the first pair with a cut that leaves so much counts.
    tries = [(budget.reserve, indexes)]
    if budget.spare:
        # Cuts that keep the turn before a question that is not sent yet.
        recent = indexes[:-1] if prompt.asks else indexes
        tries = [(max(budget.spare, budget.reserve), recent), (budget.reserve, recent), *tries]
    for free, possible in tries:
        room = budget.limit - free - summary_tokens
        # The later the cut, the fewer tokens are behind it.
        first = bisect_left(possible, True, key=lambda index: _tokens(prompt, index, count) <= room)
        if first < len(possible):
            return prompt.path[possible[first]].id
    # Nothing leaves the reserve: a last question that fits at all is kept.
    if indexes and _tokens(prompt, indexes[-1], count) + summary_tokens < budget.limit:
        return prompt.path[indexes[-1]].id
    return None


def text_of_turns(path: Sequence[Message], full: Sequence[AttachedFile], text_of: FileText) -> str:
    """Return what the model sees of a path (`seen`) as plain text; images and files that stay whole are only named."""
    parts = []
    for message in path:
        if _is_summary(message):
            parts.append(f"Summary of what came before: {message.text.removeprefix(SUMMARY_NOTE).strip()}")
            continue
        text = message.parts.answer if message.role is Role.ASSISTANT else message.text
        files = []
        for file in message.files:
            is_named = file.kind is FileKind.IMAGE or file in full
            files.append(f"({file.kind}: {file.name})" if is_named else block_of(file, text_of(file)))
        text = "\n".join([*files, text, *(f"Calls {call.name} with {call.arguments}" for call in message.tool_calls)])
        if text.strip():
            parts.append(f"{_SPEAKERS[message.role]}: {text.strip()}")
    return "\n\n".join(parts)


def pieces_of(text: str, count: Count, room: int) -> list[str]:
    """Split a text into pieces that fit the context with the request for a summary.

    Args:
        text: Not blank.
        count: Returns the tokens of a conversation.
        room: Maximum tokens of such a request.

    Raises:
        PromptTooLongError: If the context is too small.
    """
    pieces = []
    size = len(text)
    while text:
        while _count(count, summary_request(text[:size], "")) > room:
            size = size * 4 // 5
            if size < _MIN_PIECE:
                raise PromptTooLongError(
                    "The model's context is too small for a summary.", "Leave out the oldest messages."
                )
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def summary_request(piece: str, earlier: str) -> tuple[ChatMessage, ...]:
    """Return the request for the summary of a piece; `earlier` is the summary of the pieces before it."""
    before = f"Summary of what came before: {earlier}\n\n" if earlier else ""
    return (ChatMessage(Role.USER, f"{SUMMARY_WISH}\n\n---\n{before}{piece}\n---"),)


def _cut_indexes(prompt: ChatPrompt) -> list[int]:
    """Return the indexes of messages that the path can be cut after: a question follows them."""
    path = prompt.path
    # A summary is not cut alone.
    first = 1 if path and _is_summary(path[0]) else 0
    indexes = [index for index in range(first, len(path) - 1) if path[index + 1].role is Role.USER]
    if prompt.asks and first < len(path):
        indexes.append(len(path) - 1)
    return indexes


def _is_summary(message: Message) -> bool:
    """Whether a message of what the model sees stands in place of others."""
    return message.context_cut is not None and not message.context_cut.shortens


def _last_answered(path: Sequence[Message]) -> int | None:
    """Return the id of the last reply with an answer; None without one."""
    replies = (m for m in reversed(path) if m.role is Role.ASSISTANT and not m.tool_calls)
    return next((m.id for m in replies if m.text.strip()), None)


def _tokens(prompt: ChatPrompt, index: int, count: Count) -> int:
    """Return the tokens of a prompt that is cut after the message at an index."""
    return _count(count, replace(prompt, path=prompt.path[index + 1 :]).turns())


def _count(count: Count, messages: Sequence[ChatMessage]) -> int:
    """Return the tokens of a conversation; more than any budget if they are too many to be counted."""
    try:
        return count(messages)
    except PromptTooLongError:
        return 2**62
