"""Packs a training's shards into the files of answers that ship with rdchat: `pack_answers.py SHARDS MODEL`.

SHARDS is the `shards` folder of a training (`rdchat train-drafter` names it), and MODEL the folder of its target. For
the default model, whose tokenizer is byte-level, the UTF-8 of the answers' tokens is written too.
"""

import argparse
import io
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

from rdchat.files import atomic_file
from rdchat.inference.drafting.shipped_answers import (
    DEFAULT_MODEL,
    PIECES,
    TEMPERATURE_STEPS,
    TrainingConversation,
    shipped_path,
)
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.training.data_maker import ShardFolder, answer_tokens, columns

SMALL_VOCABULARY = 2**16
PRESET = 9 | lzma.PRESET_EXTREME


def write_answers(path: Path, conversations: Sequence[TrainingConversation]) -> None:
    """Write conversations of a vocabulary of at most 65,536 tokens; see `atomic_file`.

    Args:
        path: Path of the file.
        conversations: At least one; temperatures in whole hundredths.
    """
    packed = io.BytesIO()
    temperatures = np.array([round(item.temperature * TEMPERATURE_STEPS) for item in conversations], np.uint8)
    tokens, facts = columns(conversations, np.uint16)
    np.savez(packed, tokens=tokens, facts=facts, temperatures=temperatures)
    with atomic_file(path) as temporary:
        temporary.write_bytes(lzma.compress(packed.getvalue(), preset=PRESET))


def pieces_of(tokenizer: Path, conversations: Sequence[TrainingConversation]) -> list[bytes]:
    """Return what `read_pieces` is to return, by a `tokenizer.json`."""
    stored = json.loads(tokenizer.read_bytes())
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    spelled = {token: text for text, token in stored["model"]["vocab"].items()}
    control = {added["id"] for added in stored["added_tokens"]}
    used = {token for item in conversations for token in item.answer} - control
    return [bytes(byte_of[each] for each in spelled[token]) if token in used else b"" for token in range(max(used) + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    shards = ShardFolder(options.shards, SMALL_VOCABULARY)
    conversations = [item for number in range(len(shards)) for item in shards.read_shard(number)]
    path = shipped_path(target_hash(options.model))
    write_answers(path, conversations)
    if path == shipped_path(DEFAULT_MODEL):
        pieces = b"\0".join(pieces_of(options.model / "tokenizer.json", conversations))
        with atomic_file(shipped_path(PIECES)) as temporary:
            temporary.write_bytes(lzma.compress(pieces, preset=PRESET))
    tokens = answer_tokens(conversations)
    size = path.stat().st_size
    print(f"{len(conversations):,} conversations, {tokens:,} answer tokens, {size:,} bytes: {path}")


if __name__ == "__main__":
    main()
