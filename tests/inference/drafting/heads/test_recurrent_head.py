import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.recurrent_head import Cell, HeadConfig, Output, RecurrentHead
from rdchat.inference.verification.target import TargetEmbeddings
from tests.inference.fakes import ALPHABET

HIDDEN = 32
CANDIDATES = 20


def config(**changes: object) -> HeadConfig:
    return HeadConfig(
        **(
            {"hidden_size": HIDDEN, "draft_vocabulary_size": CANDIDATES, "exit_size": 24, "state_size": HIDDEN}
            | changes
        )
    )


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def weights(head: RecurrentHead, name: str) -> tuple[np.ndarray, np.ndarray]:
    layer = head
    for part in name.split("."):
        layer = layer[int(part)] if part.isdigit() else layer[part]
    weight = np.array(layer.weight, dtype=np.float64)
    bias = np.array(layer.bias, dtype=np.float64) if "bias" in layer else np.zeros(len(weight))
    return weight, bias


def linear(head: RecurrentHead, name: str, x: np.ndarray) -> np.ndarray:
    weight, bias = weights(head, name)
    return x @ weight.T + bias


def reference(head: RecurrentHead, hidden: np.ndarray, embeddings: list[np.ndarray]) -> np.ndarray:
    """The paper's head in plain NumPy, one chain, written from the formulas."""
    c = head.config
    state = np.zeros(c.state_size)
    for e in embeddings:
        if c.cell is Cell.SUM:
            state = state + e
        else:
            state = silu(linear(head, "from_token", e) + linear(head, "recurrence", state))
    if c.project_input:
        x = linear(head, "from_hidden", hidden) + linear(head, "from_state", state)
    else:
        x = np.concatenate([hidden, state])
    x = silu(x) if c.activate_input else x
    for i in range(c.blocks):
        x = x + silu(linear(head, f"blocks.{i}", x))
    return linear(head, "output", x)


SHAPES = [
    {},
    {"cell": Cell.RNN, "state_size": 12},
    {"cell": Cell.SUM},
    {"cell": Cell.RNN, "output": Output.OWN, "blocks": 3, "activate_input": False},
    {"target_layers": (0, 1), "blocks": 0},
    {"project_input": False, "exit_size": 2 * HIDDEN, "activate_input": False, "output": Output.OWN},
]


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_the_head_computes_the_formulas(changes: dict) -> None:
    mx.random.seed(3)
    head = RecurrentHead(config(**changes))
    hidden = mx.random.normal((head.config.input_size,))
    embeddings = [mx.random.normal((HIDDEN,)) for _ in range(4)]
    state = head.initial_state(())
    for e in embeddings:
        state = head.advance(state, e)
    found = np.array(head.features(head.context(hidden), state))
    expected = reference(head, np.array(hidden), [np.array(e) for e in embeddings])
    assert found.shape == (HIDDEN if head.config.output is Output.TIED else CANDIDATES,)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 0},
        {"inverse_temperature": 0},
        {"project_input": False},
        {"cell": Cell.SUM, "state_size": 5},
    ],
    ids=str,
)
def test_an_impossible_configuration_is_refused(change: dict) -> None:
    with pytest.raises(ModelError, match="The drafter"):
        config(**change)


def test_a_network_without_a_token_table_is_refused() -> None:
    with pytest.raises(ModelError, match="embeddings"):
        TargetEmbeddings(nn.Linear(4, 4), len(ALPHABET))
