"""EAGLE-3 drafters with random weights, and a text to draft below."""

from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from rdchat.inference.api import BeamShape
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.eagle3_head import (
    BoundEagle3Head,
    Eagle3Config,
    Eagle3Network,
    FeatureNorm,
)
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.eagle3_folders import sizes_of

TREE = BeamShape(3, 5)
CHAIN = BeamShape(1, 5)


def bound(model: LoadedModel, bits: int = 0, **changes: Any) -> BoundEagle3Head:
    """Return a drafter of random weights; `changes` are fields of its `Eagle3Config`."""
    width, vocabulary, depth = sizes_of(model)
    fields: dict[str, Any] = {
        "hidden_size": width, "inner_size": 64, "heads": 4, "kv_heads": 2, "head_size": 8,
        "norm_epsilon": 1e-5, "windows": (None,), "takes_embedding": (True,),
        "target_layers": (0, depth - 1), "target_width": width,
        "vocabulary_size": vocabulary, "draft_vocabulary_size": vocabulary - 5, "own_output": True,
        "rope": RopeConfig(10_000.0),
    }  # fmt: skip
    mx.random.seed(7)
    with mx.stream(mx.cpu):
        network = Eagle3Network(Eagle3Config(**(fields | changes)))
        mx.eval(network.parameters())
    ids = mx.arange(vocabulary - network.config.draft_vocabulary_size, vocabulary, dtype=mx.int32)
    weights = dict(tree_flatten(network.parameters()))
    return BoundEagle3Head(network.config, lambda: weights, ids, model, bits)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "head norms and biases": {"qk_norm": True, "biases": frozenset({"layers.0.self_attn.k_proj", "fc"})},
    "normalised output": {"norm_output": True, "norm_before_residual": True, "feature_norm": FeatureNorm.EACH},
    "two layers": {"windows": (None, None), "takes_embedding": (True, False), "feature_norm": FeatureNorm.TOGETHER},
    "two layers with embeddings": {"windows": (None, None), "takes_embedding": (True, True)},
    "sliding": {"windows": (4, None), "takes_embedding": (True, False)},
    "sliding second": {"windows": (None, 3), "takes_embedding": (True, False)},
    "own tables": {"own_embeddings": True, "own_output": False, "tied_output": True, "draft_vocabulary_size": 31},
    "tables of another width": {"own_embeddings": True, "hidden_size": 24},
    "the target's output rows": {"own_output": False, "draft_vocabulary_size": 31},
}


@cache
def features_of_a_text() -> tuple[list[int], mx.array]:
    """Return a text and numbers in the place of the target's features of it; the last token is a root."""
    rng = np.random.default_rng(1)
    text = [int(token) for token in rng.integers(0, 31, 13)]
    return text, mx.array(rng.normal(size=(12, 64)).astype(np.float32))
