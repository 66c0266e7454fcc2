"""Answers that ship: what is packed is read again, and the default model has some."""

from pathlib import Path

import numpy as np
import pytest

from rdchat.errors import StorageError
from rdchat.inference.drafting.shipped_answers import TrainingConversation, read_answers, shipped_path
from rdchat.inference.training.data_maker import answer_tokens
from scripts.drafter.pack_answers import write_answers


def some(count: int) -> list[TrainingConversation]:
    draw = np.random.default_rng(0)
    made = []
    for number in range(count):
        tokens = draw.integers(0, 2**16, int(draw.integers(5, 60))).tolist()
        made.append(TrainingConversation(number, tokens, int(draw.integers(1, len(tokens))), (0.0, 0.7)[number % 2]))
    return made


def test_what_was_packed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.xz"
    made = some(70)
    assert read_answers(path) == []
    write_answers(path, made)
    assert read_answers(path) == made


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_damaged_file_says_so(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "answers.xz"
    write_answers(path, some(20))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StorageError, match="is damaged"):
        read_answers(path)


def test_the_default_model_has_a_million_answer_tokens() -> None:
    made = read_answers(shipped_path("72084bd78ad751e3"))
    assert (len(made), answer_tokens(made)) == (8160, 1_015_895)
