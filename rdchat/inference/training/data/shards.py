"""Conversations on disk: shards of token ids, 2 bytes each, that appear whole or not at all."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file, make_folder


@dataclass(frozen=True, slots=True)
class TrainingConversation:
    """One question and its answer.

    Attributes:
        number: Of the conversation in the training; its seed prompt is drawn by it.
        tokens: Question and answer as the target saw them, the chat template's tokens included.
        answer_start: Index of the answer's first token.
        temperature: Of the answer.
    """

    number: int
    tokens: list[int]
    answer_start: int
    temperature: float

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.answer_start :]


def answer_tokens(made: Sequence[TrainingConversation]) -> int:
    """Return the number of answer tokens in conversations."""
    return sum(len(item.answer) for item in made)


class ShardFolder:
    """Shards in order, in one folder.

    Args:
        folder: Made if it is not there.
        vocabulary_size: Decides whether ids fit into 2 bytes.

    Raises:
        StorageFullError: If the disk is full; so do all methods that write.
        StorageError: If a file cannot be written, read, or is damaged.
    """

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._folder = folder
        self._vocabulary_size = vocabulary_size
        self._dtype = np.uint16 if vocabulary_size <= 2**16 else np.uint32
        make_folder(folder)

    def __len__(self) -> int:
        count = 0
        while self._path(count).exists():
            count += 1
        return count

    def read(self, number: int) -> list[TrainingConversation]:
        """Return the conversations of shard `number`, from 0 to the length less 1."""
        path = self._path(number)
        with _readable(path), path.open("rb") as file, np.load(file) as stored:
            tokens, facts, temperatures = (stored[name] for name in ("tokens", "facts", "temperatures"))
            self._check(tokens, facts, temperatures)
        conversations, start = [], 0
        for (index, length, answer_start), temperature in zip(facts.tolist(), temperatures.tolist(), strict=True):
            ids = tokens[start : start + length].tolist()
            conversations.append(TrainingConversation(index, ids, answer_start, temperature))
            start += length
        return conversations

    def _check(self, tokens: npt.NDArray[Any], facts: npt.NDArray[Any], temperatures: npt.NDArray[Any]) -> None:
        """Refuse what `append` does not write: MLX looks up tokens without asking whether they are there."""
        if tokens.ndim != 1 or tokens.dtype.kind != "u" or (tokens >= self._vocabulary_size).any():
            raise ValueError("it has tokens that the model does not have")
        lengths, starts = facts[:, 1], facts[:, 2]
        if facts.dtype.kind != "i" or (starts < 0).any() or (starts > lengths).any() or lengths.sum() != len(tokens):
            raise ValueError("its conversations are not as long as its tokens")
        if temperatures.shape != facts.shape[:1]:
            raise ValueError("its conversations have no temperatures")

    def append(self, made: Sequence[TrainingConversation], states: npt.NDArray[np.float16] | None = None) -> None:
        """Write a shard behind the others: a crash leaves either all of it or nothing.

        Args:
            made: At least one conversation.
            states: (answer tokens, width): the target's hidden states that their answers' tokens were chosen from.
        """
        facts = [[item.number, len(item.tokens), item.answer_start] for item in made]
        number = len(self)
        if states is None:
            self._states_path(number).unlink(missing_ok=True)  # of a run that kept them and was killed just here
        else:
            self.keep_states(number, states)
        arrays: dict[str, Any] = {
            "tokens": np.concatenate([np.array(item.tokens, self._dtype) for item in made]),
            "facts": np.array(facts, np.int32),
            "temperatures": np.array([item.temperature for item in made], np.float64),
        }
        with atomic_file(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    def keep_states(self, number: int, states: npt.NDArray[np.float16]) -> None:
        """Write the hidden states of shard `number`'s answers: see `append`."""
        with atomic_file(self._states_path(number)) as temporary, temporary.open("wb") as file:
            np.save(file, states)

    def states(self, number: int) -> npt.NDArray[np.float16] | None:
        """Return the hidden states of a shard's answers, mapped from disk; None where they were not kept."""
        path = self._states_path(number)
        with _readable(path):
            return np.load(path, mmap_mode="r") if path.exists() else None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.npz"

    def _states_path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.states.npy"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{path} is damaged: {error}.", "Delete it and the files of that folder behind it, and resume the training."
        ) from error
