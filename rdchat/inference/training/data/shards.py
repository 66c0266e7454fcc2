"""Conversations on disk: the shards of a training, each written completely or not at all, and answers of the package.

Shipped answers save hours of decoding. A file of `assets/training/answers/` holds a target's conversations: an `npz` of
the columns of a shard, compressed by LZMA, named by the target's hash.
"""

import io
import lzma
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rdchat
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file, make_folder

SHARDS = "shards"
"""The folder of a training's conversations in its own folder."""
_COLUMNS = ("tokens", "facts", "temperatures")
_HASH_DIGITS = 16
# Shipped answers store temperatures in hundredths.
TEMPERATURE_STEPS = 100


@dataclass(frozen=True, slots=True)
class TrainingConversation:
    """One question and its answer.

    Attributes:
        number: Number of the conversation in the training, from which its seed prompt is drawn.
        tokens: Question and answer as the target saw them, the chat template's tokens included.
        answer_start: Index of the answer's first token.
        temperature: Temperature of the answer.
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
        folder: Created if it does not exist.
        vocabulary_size: Decides whether ids are stored in 2 bytes.

    Raises:
        StorageFullError: If the disk is full; so do all methods that write.
        StorageError: If a file cannot be written.
    """

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._folder = folder
        self._dtype = np.uint16 if vocabulary_size <= 2**16 else np.uint32
        make_folder(folder)

    def __len__(self) -> int:
        return next(number for number in count() if not self._path(number).exists())

    def read(self, number: int) -> list[TrainingConversation]:
        """Return the conversations of shard `number`, from 0."""
        return _conversations(self._path(number))

    def append(self, made: Sequence[TrainingConversation]) -> None:
        """Add a shard of at least one conversation; a crash leaves all of it or nothing."""
        tokens, facts = columns(made, self._dtype)
        temperatures = np.array([item.temperature for item in made], np.float64)
        with atomic_file(self._path(len(self))) as temporary, temporary.open("wb") as file:
            np.savez(file, tokens=tokens, facts=facts, temperatures=temperatures)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.npz"


def columns(
    made: Sequence[TrainingConversation], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return the tokens of conversations, concatenated, and for each its number, length and answer start."""
    facts = [[item.number, len(item.tokens), item.answer_start] for item in made]
    return np.concatenate([np.array(item.tokens, dtype) for item in made]), np.array(facts, np.int32)


def _conversations(file: Path | io.BytesIO, steps: int = 1) -> list[TrainingConversation]:
    """Read a shard, whose temperatures are counted in `steps` of 1."""
    with np.load(file) as stored:
        tokens, facts, temperatures = (stored[name] for name in _COLUMNS)
    ends = np.cumsum(facts[:, 1]).tolist()
    rows = zip(ends, facts.tolist(), (temperatures / steps).tolist(), strict=True)
    return [
        TrainingConversation(number, tokens[end - length : end].tolist(), answer_start, temperature)
        for end, (number, length, answer_start), temperature in rows
    ]


def shipped_path(target_hash: str) -> Path:
    """Return the path of the shipped answers of a target, whether or not they exist."""
    return Path(rdchat.__file__).parent / "training_texts" / "answers" / f"{target_hash[:_HASH_DIGITS]}.xz"


def read_answers(path: Path) -> list[TrainingConversation]:
    """Return the conversations in a file made by `scripts/drafter/pack_answers.py`; none where there is no file.

    Raises:
        StorageError: If it is damaged.
    """
    if not path.exists():
        return []
    try:
        return _conversations(io.BytesIO(lzma.decompress(path.read_bytes())), TEMPERATURE_STEPS)
    except (OSError, lzma.LZMAError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is damaged: {error}.", "Install rdchat again.") from error
