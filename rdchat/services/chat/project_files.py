"""The files of projects in the prompts of their chats."""

from collections.abc import Callable
from dataclasses import replace

from rdchat.chat.attachments.attached_file import (
    PASSAGE,
    AttachedFile,
    FileKind,
    Part,
    ReadFile,
    block_of,
    joined,
    passages_of,
    ranked,
)
from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import Role
from rdchat.services.chat.chat_prompt import ChatPrompt, Count, FileText, ProjectTexts
from rdchat.services.files.part_choice import tokens_of

FULL_SHARE = 2
"""Whole files of a project take this part of the context at most: a half."""
# The passages that are found for one question take this part of the context at most: an eighth.
_PASSAGES = 8
_MAX_PASSAGES = 6
# An estimate where nothing can be counted.
_CHARACTERS_OF_TOKEN = 4
# The most sets of passages in memory.
_CACHED = 512


class ProjectFiles:
    """Adds the files of projects to prompts. Any thread may use it, except the main one.

    Files that fit stand whole before the first question. Of each other file, every question gets the passages that
    match it. Both depend on the files, the model and the question alone, so that an earlier prompt of a chat stays the
    beginning of its next one.

    Args:
        text_of: Reads the text of a file.
    """

    def __init__(self, text_of: FileText) -> None:
        self._text_of = text_of
        # Tokens by model and file.
        self._tokens: dict[tuple[str, AttachedFile], int] = {}
        # Passages by file, question and their number.
        self._cache: dict[tuple[AttachedFile, str, int], Part] = {}

    def texts(
        self, prompt: ChatPrompt, model: str, limit: int, count: Count, check: Callable[[], None]
    ) -> ProjectTexts:
        """Return what the files of a prompt's project add to it.

        A file is whole if it still fits, in the files' order: behind one that does not, a smaller one may. Each
        question of the path, and the typed one, gets the passages of the other files before its text.

        Args:
            prompt: The prompt.
            model: The model.
            limit: Its context, in tokens.
            count: Counts tokens with it.
            check: Called before each file; what it raises ends the work.
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
        # Passages of each file for one question, at least one: with a context of 8,192 tokens there are 3 in all (an
        # eighth is 4,096 characters, and a passage has 1,200), so each of two files gets one.
        number = min(_MAX_PASSAGES, limit * _CHARACTERS_OF_TOKEN // _PASSAGES // PASSAGE) // max(len(parts), 1)

        asked: tuple[int | None, str] | None = None
        if prompt.asks:
            asked = None, prompt.typed
        else:
            questions = (each for each in reversed(prompt.path) if each.role is Role.USER)
            asked = next(((each.id, each.text) for each in questions if each.text.strip()), None)
        passages = dict[int | None, str]()
        if asked is not None and parts:
            found = [self._passages(file, asked[1], max(number, 1)) for file in parts]
            passages[asked[0]] = "\n\n".join(filter(None, found))
        blocks = [block_of(file, self._text_of(file)) for file in full if file.kind is not FileKind.IMAGE]
        images = [file for file in full if file.kind is FileKind.IMAGE]
        return ProjectTexts("\n\n".join(blocks), images, passages)

    def _tokens_of(self, file: AttachedFile, model: str, count: Count) -> int:
        """Count the tokens of a file; an estimate, where they cannot be counted, is not remembered."""
        key = (model, file)
        if key not in self._tokens:
            text = block_of(file, self._text_of(file))
            try:
                self._tokens[key] = tokens_of(text, count).tokens
            except (ModelError, PromptTooLongError):
                return len(text) // _CHARACTERS_OF_TOKEN
        return self._tokens[key]

    def _passages(self, file: AttachedFile, question: str, number: int) -> str:
        """Return the passages of a file that match a question best, as they stand in the prompt; empty for none."""
        key = (file, question, number)
        if key not in self._cache:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            passages = passages_of(ReadFile(file.name, FileKind.TEXT, (self._text_of(file),)))
            order = ranked(passages, question)[:number]
            self._cache[key] = joined(passages, order) if order else Part("")
        part = self._cache[key]
        return block_of(replace(file, taken=part.label), part.text) if part.text else ""
