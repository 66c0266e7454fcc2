"""Reads files of conversations that a model wrote: the shards of a training, and answers that come with rdchat.

A shard is an `npz` of columns. A file of shipped answers, which save hours of decoding, is one shard compressed by LZMA
and named by the hash of the model that wrote it (`assets/training/answers/` in the sources). No MLX here.
"""

import io
import lzma
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import rdchat
from rdchat.errors import StorageError

# Shipped answers store temperatures in hundredths.
TEMPERATURE_STEPS = 100
_COLUMNS = ("tokens", "facts", "temperatures")
_HASH_DIGITS = 16
# The default model, by its `target_hash`, and its tokenizer, by its `tokenizer_key`: its answers can be used on a
# machine that never had it.
DEFAULT_MODEL = "72084bd78ad751e3"
DEFAULT_TOKENIZER = "b20a3b2cea931c9a"
PIECES = "pieces"


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

    def text(self, pieces: Sequence[bytes]) -> str:
        """Return the answer's text, without control tokens; `pieces` are those of its vocabulary (`read_pieces`)."""
        return b"".join(pieces[token] for token in self.answer).decode(errors="replace")


def conversations_in(file: Path | io.BytesIO, steps: int = 1) -> list[TrainingConversation]:
    """Read a shard, with `steps` times each temperature: with 100 steps, 70 is the temperature 0.7.

    A row of its facts is a conversation's number, its number of tokens, and where its answer starts.
    """
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
        return conversations_in(io.BytesIO(_unpacked(path)), TEMPERATURE_STEPS)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error


def read_pieces() -> list[bytes]:
    """Return the UTF-8 of each token of the default model's answers, perhaps a part of a character.

    It is empty for control tokens, and for tokens that no answer has.

    Raises:
        StorageError: If the file is missing or damaged.
    """
    return _unpacked(shipped_path(PIECES)).split(b"\0")


def _unpacked(path: Path) -> bytes:
    try:
        return lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StorageError:
    return StorageError(f"{path} is damaged: {error}.", "Install rdchat again.")
