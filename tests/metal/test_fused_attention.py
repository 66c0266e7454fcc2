"""On Metal, each part of a verify call's attention is one fused operation, and the parts give what the call gives.

Elsewhere these tests are skipped. Not yet run on a Mac.
"""

import pytest

import rdchat.inference.blas  # noqa: F401  prepares for MLX, and must precede every import of it

# isort: split
import mlx.core as mx

from rdchat.inference.verification.hooks import ModelHooks
from tests.inference.launches import launches
from tests.inference.verification.attention_calls import TREE, heads_of, verified

pytestmark = pytest.mark.skipif(not mx.metal.is_available(), reason="needs Metal")


@pytest.mark.parametrize(("ratio", "parts"), [(8, 3), (16, 5)])
def test_parts_are_fused(ratio: int, parts: int) -> None:
    network = heads_of(16, 16 // ratio)
    hooks = ModelHooks(network)
    expected, _ = verified(network, hooks, TREE, in_parts=False)
    logits, _ = verified(network, hooks, TREE, in_parts=True)
    assert launches(logits).count("ScaledDotProductAttention") == parts * len(network.layers)
    assert "Softmax" not in launches(logits)
    assert mx.allclose(logits, expected, atol=1e-3)
    assert hooks.attention.may_pay(len(TREE))
