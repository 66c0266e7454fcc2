"""The training maths: a hand-worked example, finite differences, what is masked."""

import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.training.objective import distillation, unroll, weighted_mean


def test_the_loss_of_a_hand_worked_example() -> None:
    """Logits 1, 0, -1; the target says the first with 3/4, the last with 1/4."""
    features = mx.array([[1.0, 0.0]])
    rows = mx.array([[1.0, 5.0], [0.0, 7.0], [-1.0, 2.0]])
    loss = distillation(features, rows, mx.array([[0, 2]]), mx.array([[0.75, 0.25]]))
    normalizer = math.log(math.e + 1 + 1 / math.e)
    assert loss.tolist() == pytest.approx([normalizer - 0.75 * 1 - 0.25 * -1])


@pytest.mark.across_rows
def test_the_loss_is_least_where_the_drafter_says_what_the_target_says() -> None:
    probs = mx.array([[0.5, 0.3, 0.2]])
    rows = mx.eye(3)
    columns = mx.array([[0, 1, 2]])
    gradient = mx.grad(lambda x: distillation(x, rows, columns, probs).sum())(mx.log(probs))
    assert mx.abs(gradient).max().item() < 1e-6


def random_case(seed: int, tokens: int = 7, named: int = 2) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(2, 3, 4))
    rows = draw.normal(size=(tokens, 4))
    columns = np.array([[draw.choice(tokens, named, replace=False) for _ in range(3)] for _ in range(2)])
    probs = draw.dirichlet(np.ones(named), size=(2, 3))
    floats = [mx.array(array.astype(np.float32)) for array in (features, rows, probs)]
    return floats[0], floats[1], mx.array(columns.astype(np.int32)), floats[2]


def head() -> RecurrentHead:
    mx.random.seed(3)
    return RecurrentHead(HeadConfig(4, 7, exit_size=5, state_size=6))


@pytest.mark.across_rows
def test_gradients_agree_with_finite_differences() -> None:
    _, rows, _, _ = random_case(4)
    draw = np.random.default_rng(5)
    hidden = mx.array(draw.normal(size=(2, 4)))
    embeddings = mx.array(draw.normal(size=(2, 3, 4)))
    _, _, columns, probs = random_case(6)
    weights = mx.array([[1.0, 0.8, 0.0], [1.0, 0.0, 0.0]])
    network = head()

    def loss(parameters: dict[str, mx.array]) -> mx.array:
        network.update(tree_unflatten(list(parameters.items())))
        features = unroll(network, hidden, embeddings)
        return weighted_mean(distillation(features, rows, columns, probs), weights)

    parameters = dict(tree_flatten(network.parameters()))
    gradients = mx.grad(loss)(parameters)
    for name, array in parameters.items():
        direction = mx.array(draw.normal(size=array.shape).astype(np.float32))
        step = 1e-2
        ahead, behind = ({**parameters, name: array + sign * step * direction} for sign in (1, -1))
        measured = (loss(ahead) - loss(behind)).item() / (2 * step)
        assert measured == pytest.approx(mx.sum(gradients[name] * direction).item(), rel=2e-2, abs=2e-4), name


def test_a_draft_is_unrolled_as_it_is_drafted() -> None:
    network = head()
    hidden = mx.random.normal((2, 4))
    embeddings = mx.random.normal((2, 3, 4))
    features = unroll(network, hidden, embeddings)
    state = network.initial_state((2,))
    for step in range(3):
        state = network.advance(state, embeddings[:, step])
        expected = network.features(network.context(hidden), state)
        np.testing.assert_allclose(np.array(features[:, step]), np.array(expected), rtol=1e-5)


def test_positions_without_weight_do_not_count() -> None:
    losses = mx.array([[1.0, 50.0], [3.0, mx.finfo(mx.float32).max]])
    assert weighted_mean(losses, mx.array([[1.0, 0.0], [1.0, 0.0]])).item() == 2
    assert weighted_mean(losses, mx.zeros((2, 2))).item() == 0


def test_value_and_grad_sees_every_parameter() -> None:
    network = head()
    _, rows, columns, probs = random_case(7)

    def loss(network: RecurrentHead) -> mx.array:
        features = unroll(network, mx.random.normal((2, 4)), mx.random.normal((2, 3, 4)))
        return distillation(features, rows, columns, probs).mean()

    _, gradients = nn.value_and_grad(network, loss)(network)
    assert all(mx.abs(array).max().item() > 0 for _, array in tree_flatten(gradients))
