"""Conversations that ship with rdchat, so that nobody makes the default model's again: hours of decoding in megabytes.

A file of `assets/training/answers/` is the shards of a target without its hidden states, which are computed anew: an
`npz` of the same columns, compressed as a whole by LZMA, and named by the target's hash.
"""

import io
import lzma
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rdchat
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.inference.training.data.shards import TrainingConversation

_HASH_DIGITS = 16
_TEMPERATURE_STEPS = 100  # temperatures are kept as hundredths


def shipped_path(target_hash: str, folder: Path | None = None) -> Path:
    """Return where the answers of a target are, if there are any.

    Args:
        target_hash: See `models.fingerprint`.
        folder: Where they are looked for; None is the installed package.
    """
    folder = folder or Path(rdchat.__file__).parent / "training_texts" / "answers"
    return folder / f"{target_hash[:_HASH_DIGITS]}.xz"


def write_answers(path: Path, conversations: Sequence[TrainingConversation]) -> None:
    """Write conversations of a vocabulary of at most 65,536 tokens; see `atomic_file`.

    Args:
        path: What `shipped_path` gave.
        conversations: At least one; temperatures in whole hundredths.
    """
    packed = io.BytesIO()
    np.savez(
        packed,
        tokens=np.concatenate([np.array(item.tokens, np.uint16) for item in conversations]),
        facts=np.array([[item.number, len(item.tokens), item.answer_start] for item in conversations], np.int32),
        temperatures=np.array([round(item.temperature * _TEMPERATURE_STEPS) for item in conversations], np.uint8),
    )
    with atomic_file(path) as temporary:
        temporary.write_bytes(lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def read_answers(path: Path) -> list[TrainingConversation]:
    """Return what a file of `write_answers` holds; nothing where there is none.

    Raises:
        StorageError: If it is damaged.
    """
    if not path.exists():
        return []
    try:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as stored:
            tokens, facts, temperatures = (stored[name].tolist() for name in ("tokens", "facts", "temperatures"))
    except (OSError, lzma.LZMAError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} is damaged: {error}.", "Install rdchat again.") from error
    conversations, start = [], 0
    for (number, length, answer_start), hundredths in zip(facts, temperatures, strict=True):
        ids = tokens[start : start + length]
        conversations.append(TrainingConversation(number, ids, answer_start, hundredths / _TEMPERATURE_STEPS))
        start += length
    return conversations
