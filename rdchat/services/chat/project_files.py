"""The files of projects in the prompts of their chats: whole ones, names, and passages for questions."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rdchat.chat.attachments.attached_file import (
    AttachedFile,
    FileKind,
    Passage,
    ReadFile,
    block_of,
    joined,
    passages_of,
)
from rdchat.chat.attachments.passage_index import PassageIndex
from rdchat.inference.api import Role
from rdchat.services.chat.chat_prompt import ChatPrompt, Count, FileText, ProjectTexts, is_said
from rdchat.services.files.part_choice import tokens_or_estimate

FULL_SHARE = 2
"""Whole files of a project take this part of the context at most: a half."""
# The passages of all files together take this part of the context at most: an eighth.
_PASSAGES = 8
# More passages stand before a question only where each of them alone has one of its words.
_MAX_PASSAGES = 6
# Passages of so many questions stay in memory, and those of the last prompt; the least recently used go first.
_CACHED = 512

type _Parts = Sequence[tuple[AttachedFile, str]]


@dataclass(frozen=True, slots=True)
class _Library:
    """The passages of some files, one file after the other, and what finds them.

    Attributes:
        files: The files.
        passages: The passages of each file.
        index: Has all passages.
    """

    files: Sequence[AttachedFile]
    passages: Sequence[Sequence[Passage]]
    index: PassageIndex

    @property
    def beginnings(self) -> list[int]:
        """The number of the first passage of each file."""
        starts = accumulate(map(len, self.passages), initial=0)
        return [start for start, texts in zip(starts, self.passages, strict=False) if texts]

    def best(self, question: str, before: str, check: Callable[[], None]) -> Sequence[int]:
        """Return the numbers of the passages for a question, the best first.

        Those that alone have one of its words come first, then those that match it best, then those that match the
        question before it, such as for "And the second one?". A question that matches nothing gets the beginnings of
        the files.
        """
        order, alone = self.index.ranked(question, check)
        wanted = max(alone, _MAX_PASSAGES)
        others = self.index.ranked(before, check)[0] if before else []
        return [*dict.fromkeys([*order[:wanted], *others])][:wanted] or self.beginnings

    def parts(self, chosen: Sequence[int]) -> _Parts:
        """Return passages, by their numbers, as a part of each file that has some."""
        parts = []
        first = 0
        for file, passages in zip(self.files, self.passages, strict=True):
            own = [number - first for number in chosen if first <= number < first + len(passages)]
            first += len(passages)
            if own:
                part = joined(passages, own)
                parts.append((replace(file, taken=part.label), part.text))
        return parts


class ProjectFiles:
    """Finds what the files of projects add to prompts. Any thread may use it, except the main one.

    Files that fit stand whole before the first question, with the names of all. Of the others, the last question gets
    the passages that match it.

    Args:
        text_of: Reads the text of a file.
    """

    def __init__(self, text_of: FileText) -> None:
        self._text_of = text_of
        # Tokens by model and file.
        self._tokens: dict[tuple[str, AttachedFile], int] = {}
        # The library that was used last.
        self._library: _Library | None = None
        # Passages by model, files, question, the one before, and their room.
        self._cache: dict[tuple[object, ...], _Parts] = {}

    def texts(
        self,
        prompt: ChatPrompt,
        model: str,
        limit: int,
        count: Count,
        check: Callable[[], None],
        *,
        for_all: bool = False,
    ) -> ProjectTexts:
        """Return what the files of a prompt's project add to it.

        A file is whole if it still fits, in the files' order: behind one that does not, a smaller one may. The passages
        of all others together take an eighth of the context at most.

        Args:
            prompt: The prompt.
            model: The model.
            limit: Its context, in tokens.
            count: Counts tokens with it.
            check: Called between short pieces of the work; what it raises ends it.
            for_all: Whether each question has passages, and not the last one alone: for a model whose KV cache cannot
                go back to an earlier question without them.
        """
        room = limit // FULL_SHARE
        full = list[AttachedFile]()
        parts = list[AttachedFile]()
        taken = 0
        for file in prompt.files:
            check()
            # An image takes none of this room, so all images are in `full`.
            tokens = 0 if file.kind is FileKind.IMAGE else self._tokens_of(file, model, count)
            if taken + tokens <= room:
                full.append(file)
                taken += tokens
            else:
                parts.append(file)
        passages = dict[int | None, str]()
        found: _Parts = ()
        asked = list(_questions(prompt)) if parts else []
        for index, (number, question) in enumerate(asked):
            if for_all or index == len(asked) - 1:
                before = asked[index - 1][1] if index else ""
                key = (model, limit, *(file.digest for file in parts), question, before)
                check()
                known = self._cache.get(key)
                if known is None:
                    library = self._library_of(parts, check)
                    best = library.best(question, before, check)
                    known = _fitting(library, best, limit // _PASSAGES, count)
                # The last key is the one that was used last. Another thread may take keys out.
                self._cache.pop(key, None)
                self._cache[key] = known
                found = known
                passages[number] = _blocks(found)
        excess = len(self._cache) - max(_CACHED, len(passages))
        for oldest in list(self._cache)[: max(excess, 0)]:
            self._cache.pop(oldest, None)
        blocks = [block_of(file, self._text_of(file)) for file in full if file.kind is not FileKind.IMAGE]
        images = [file for file in full if file.kind is FileKind.IMAGE]
        if blocks or parts:
            blocks.append(_names_line(prompt.files, parts))
        return ProjectTexts("\n\n".join(blocks), images, passages, parts, [file for file, _ in found])

    def _library_of(self, files: Sequence[AttachedFile], check: Callable[[], None]) -> _Library:
        """Return the passages of some files; they are read and indexed again only where others were used last."""
        library = self._library
        if library is None or library.files != files:
            passages = []
            for file in files:
                check()
                # The text of a PDF has its pages' numbers, and is read as one.
                kind = file.kind if file.kind is FileKind.CSV else FileKind.TEXT
                passages.append(passages_of(ReadFile(file.name, kind, (self._text_of(file),))))
            named = [(file.name, [each.text for each in texts]) for file, texts in zip(files, passages, strict=True)]
            library = _Library(files, passages, PassageIndex(named, check))
            self._library = library
        return library

    def _tokens_of(self, file: AttachedFile, model: str, count: Count) -> int:
        """Count the tokens of a file; an estimate, where they cannot be counted, is not remembered."""
        key = (model, file)
        if key not in self._tokens:
            tokens = tokens_or_estimate(block_of(file, self._text_of(file)), count)
            if not tokens.exact:
                return tokens.tokens
            self._tokens[key] = tokens.tokens
        return self._tokens[key]


def _questions(prompt: ChatPrompt) -> Iterator[tuple[int | None, str]]:
    """Yield the questions of a prompt with the ids of their messages, the typed one last with None."""
    for message in prompt.path:
        if message.role is Role.USER and message.context_cut is None and is_said(message):
            yield message.id, message.text
    if prompt.asks:
        yield None, prompt.typed


def _blocks(parts: _Parts) -> str:
    """Return passages as they stand in a prompt: each file's in its own block."""
    return "\n\n".join(block_of(file, text) for file, text in parts)


def _fitting(library: _Library, best: Sequence[int], room: int, count: Count) -> _Parts:
    """Return as many passages as the room takes, which is in tokens; `best` are their numbers, the best first."""
    tokens = lambda number: tokens_or_estimate(_blocks(library.parts(best[:number])), count).tokens  # noqa: E731
    return library.parts(best[: bisect_right(range(1, len(best) + 1), room, key=tokens)])


def _names_line(files: Sequence[AttachedFile], parts: Sequence[AttachedFile]) -> str:
    """Return a line with the names of all files, which says which of them are not whole."""
    names = [f"{file.name} (in passages)" if file in parts else file.name for file in files]
    return f"(Files of this project: {', '.join(names)})"
