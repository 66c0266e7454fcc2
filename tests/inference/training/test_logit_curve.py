"""The teacher's probabilities are the target's, whatever function of the products its logits are."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.training.samples import TEACHER_TOKENS, LogitCurve, Teacher
from rdchat.inference.verification.target import TargetEmbeddings
from tests.inference import families
from tests.inference.fakes import loaded


def test_beyond_what_was_measured_logits_of_16_bits_go_on_as_those_of_32() -> None:
    """The slope of the last two points was 0, or ten times too steep."""
    products = np.linspace(-20, 30, 1025).astype(np.float32)
    for gain in (0.3, 1.0, 1.7):
        for last in range(1000, 1026):
            logits = np.array(mx.array(gain * products).astype(mx.bfloat16).astype(mx.float32))
            beyond = LogitCurve(products[:last], logits[:last])(np.array([40.0]))
            assert beyond == pytest.approx(gain * 40, rel=0.03)


@pytest.mark.parametrize("name", ["llama", "cohere2", "gemma2"])
def test_the_teacher_says_what_the_target_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.inference.fakes.ALPHABET", "x" * families.VOCABULARY)
    family, options = families.TREES[name]
    model = loaded(families.network_of(family, options))
    embeddings = TargetEmbeddings(model.network, families.VOCABULARY)
    curve = LogitCurve.measure(model, embeddings)
    tokens = mx.array([[5, 80, 7, 240, 17]])
    probs = np.array(mx.softmax(model.network(tokens)[0].astype(mx.float32), axis=-1))
    states = np.array(model.hooks.hidden[0].astype(mx.float32))
    teacher = Teacher(5, families.VOCABULARY)
    teacher.fill(0, states, embeddings.output_rows(mx.arange(families.VOCABULARY)).astype(mx.float32), curve)
    for row, columns, likely in zip(probs, teacher.columns, teacher.probs, strict=True):
        assert set(columns.tolist()) == set(np.argsort(-row)[:TEACHER_TOKENS].tolist())
        assert likely == pytest.approx(row[columns] / row[columns].sum(), abs=4e-3)
