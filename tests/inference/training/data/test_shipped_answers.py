"""Answers that ship: what is packed is read again, and a training takes it before it makes any."""

from pathlib import Path

import numpy as np
import pytest

from rdchat.errors import StorageError
from rdchat.inference.training.data.shards import TrainingConversation, read_answers, shipped_path
from scripts.pack_answers import write_answers


def some(count: int) -> list[TrainingConversation]:
    draw = np.random.default_rng(0)
    made = []
    for number in range(count):
        tokens = draw.integers(0, 2**16, int(draw.integers(5, 60))).tolist()
        made.append(TrainingConversation(number, tokens, int(draw.integers(1, len(tokens))), (0.0, 0.7)[number % 2]))
    return made


def test_what_was_packed_is_read_again(tmp_path: Path) -> None:
    path, made = shipped_path("0123456789abcdef0123", tmp_path), some(70)
    assert read_answers(path) == []
    write_answers(path, made)
    assert path.name == "0123456789abcdef.xz"
    assert read_answers(path) == made


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_damaged_file_says_so(tmp_path: Path, cut: int) -> None:
    path = shipped_path("0123456789abcdef0123", tmp_path)
    write_answers(path, some(20))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StorageError, match="is damaged"):
        read_answers(path)
