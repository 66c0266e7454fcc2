"""Standardised whitening, and a head rewritten for the target's own."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.objective import Standardization, Whitening, fold_weights, output_preconditioner

HIDDEN = 6
CANDIDATES = 9


def test_standardised_rows_have_mean_0_and_deviation_1() -> None:
    rows = np.random.default_rng(0).normal(3, [1, 50, 0.1], size=(400, 3))
    standard = np.array(Standardization.measure(rows)(mx.array(rows.astype(np.float32))))
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=1e-2)


def test_a_dimension_that_never_changes_is_not_blown_up() -> None:
    rows = np.stack([np.arange(8.0), np.full(8, 5.0)], axis=1)
    assert np.isfinite(np.array(Standardization.measure(rows)(mx.array(rows.astype(np.float32))))).all()


def test_preconditioned_rows_have_a_second_moment_of_one() -> None:
    draw = np.random.default_rng(1)
    rows = (draw.normal(size=(500, 4)) @ draw.normal(size=(4, 4)) + 2).astype(np.float32)
    better = rows @ np.array(output_preconditioner(rows))
    np.testing.assert_allclose(better.T @ better / len(rows), np.eye(4), atol=1e-3)


@pytest.mark.across_rows
def test_a_folded_head_says_the_same_of_the_targets_own_numbers() -> None:
    draw = np.random.default_rng(2)
    states = draw.normal(1, [2, 9, 0.3] * 4, (50, 12)).astype(np.float32)
    table = draw.normal(-1, 3, (20, HIDDEN)).astype(np.float32)
    rows = draw.normal(0, 4, (CANDIDATES, HIDDEN)).astype(np.float32)
    whitening = Whitening.measure(states, table, np.arange(20), rows)
    mx.random.seed(4)
    head = RecurrentHead(HeadConfig(HIDDEN, CANDIDATES, exit_size=7, state_size=8, target_layers=(0,)))
    folded = fold_weights(head, whitening)
    hidden = mx.array(states[:3])
    tokens = mx.array([4, 0, 19])

    def logits(network: RecurrentHead, hidden: mx.array, embeddings: mx.array, rows: mx.array) -> mx.array:
        state = network.advance(network.advance(network.initial_state((3,)), embeddings), embeddings[::-1])
        return network.features(network.context(hidden), state) @ rows.T

    trained = logits(head, whitening.hidden(hidden), whitening.embed(tokens), whitening.rows)
    own = logits(folded, hidden, mx.array(table)[tokens], mx.array(rows))
    np.testing.assert_allclose(np.array(own), np.array(trained), rtol=1e-3, atol=1e-3)
