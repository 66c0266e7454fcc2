"""The files of a project in a prompt: whole where they fit, else the passages that match each question."""

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
from rdchat.services.chat.chat_prompt import ChatPrompt, Count, FileText
from rdchat.services.files.part_choice import tokens_of

FULL_SHARE = 2
"""Whole files take this part of the context at most: a half."""
# The passages of one question: an eighth.
_PASSAGES = 8
_MAX_PASSAGES = 6
# An estimate where nothing can be counted.
_CHARACTERS_OF_TOKEN = 4
_CACHED = 512


class ProjectFiles:
    """Adds the files of projects to prompts. Any thread may use it, except the main one.

    Both parts of the work depend on the file, the model and the question alone, so that an earlier prompt of a chat
    stays the beginning of its next one.

    Args:
        text_of: Reads the text of a file.
    """

    def __init__(self, text_of: FileText) -> None:
        self._text_of = text_of
        # By model and file, and by file, question and number.
        self._tokens: dict[tuple[str, AttachedFile], int] = {}
        self._cache: dict[tuple[AttachedFile, str, int], Part] = {}

    def complete(
        self, prompt: ChatPrompt, model: str, limit: int, count: Count, check: Callable[[], None]
    ) -> ChatPrompt:
        """Return a prompt with the texts of its project's files, but for its images.

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
            tokens = 0 if file.kind is FileKind.IMAGE else self._tokens_of(file, model, count)
            fits = taken + tokens <= room
            (full if fits else parts).append(file)
            taken += tokens if fits else 0
        number = min(_MAX_PASSAGES, limit * _CHARACTERS_OF_TOKEN // _PASSAGES // PASSAGE) // max(len(parts), 1)
        passages = lambda question: [self._passages(file, question, max(number, 1)) for file in parts]  # noqa: E731
        return prompt.with_project(full, passages, self._text_of, check)

    def _tokens_of(self, file: AttachedFile, model: str, count: Count) -> int:
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
