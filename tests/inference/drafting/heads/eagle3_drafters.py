"""EAGLE-3 drafters with random weights, and a text to draft below."""

import json
from functools import cache
from pathlib import Path
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
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

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


LAYOUTS = ("safeailab", "speculators", "deepspec")
LLAMA = {
    "model_type": "llama", "hidden_act": "silu", "intermediate_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip


def sizes_of(model: LoadedModel) -> tuple[int, int, int]:
    """Return the hidden size, vocabulary and number of layers of a target."""
    vocabulary = model.info.vocabulary_size
    return TargetEmbeddings(model.network, vocabulary).width, vocabulary, len(model.network.layers)


def eagle3_config(model: LoadedModel, layout: str) -> dict[str, Any]:
    """Return a configuration for a target of two layers or more."""
    width, vocabulary, depth = sizes_of(model)
    read = [0, 1, max(depth - 2, 0)]
    layer = LLAMA | {"hidden_size": width, "vocab_size": vocabulary}
    if layout == "safeailab":
        aux = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": read}
        return layer | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 20, "eagle_config": aux}
    if layout == "deepspec":
        ids = {"target_layer_ids": [*read, *read[:2]], "num_target_layers": depth, "ttt_length": 7}
        return layer | {"architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3", "attention_bias": False} | ids
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 20,
        "norm_before_residual": True, "norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": [i + 1 for i in read],
        "transformer_layer_config": layer, "speculators_config": {"verifier": {"name_or_path": "someone/tiny"}},
    }  # fmt: skip


def eagle3_tensors(model: LoadedModel, layout: str, config: dict[str, Any]) -> dict[str, mx.array]:
    """Return random weights for `config`, under the names that its layout has."""
    width, vocabulary, _ = sizes_of(model)
    layer = config.get("transformer_layer_config", config)
    queries, keys = (layer[name] * layer["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    inner = layer["intermediate_size"]
    candidates = config.get("draft_vocab_size", vocabulary)
    features = width * (5 if layout == "deepspec" else 3)
    first = "midlayer" if layout == "safeailab" else "layers.0"
    shapes = {
        "fc.weight": (width, features), "norm.weight": (width,), "lm_head.weight": (candidates, width),
        f"{first}.self_attn.q_proj.weight": (queries, 2 * width), f"{first}.self_attn.k_proj.weight": (keys, 2 * width),
        f"{first}.self_attn.v_proj.weight": (keys, 2 * width), f"{first}.self_attn.o_proj.weight": (width, queries),
        f"{first}.mlp.gate_proj.weight": (inner, width), f"{first}.mlp.up_proj.weight": (inner, width),
        f"{first}.mlp.down_proj.weight": (width, inner),
    }  # fmt: skip
    norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    shapes |= {f"{first}.{norm}.weight": (width,) for norm in norms}
    if layout == "deepspec":
        heads = {f"{first}.self_attn.{name}_norm.weight": (layer["head_dim"],) for name in "qk"}
        shapes |= heads | {"embed_tokens.weight": (vocabulary, width)}
    if layout == "speculators":
        shapes["input_norm.weight"] = (features,)
    rng = np.random.default_rng(3)
    tensors = {
        name: mx.array(rng.normal(0.0 if len(shape) > 1 else 1.0, 0.2, shape).astype(np.float32))
        for name, shape in shapes.items()
    }
    if candidates < vocabulary:
        ids = np.sort(rng.choice(vocabulary, candidates, replace=False))
        tensors["d2t"] = mx.array(ids - np.arange(candidates), mx.int64)
        tensors["t2d"] = mx.array(np.isin(np.arange(vocabulary), ids))
    return tensors


def eagle3_folder(folder: Path, model: LoadedModel, layout: str = "safeailab", **changes: Any) -> Path:
    """Write a checkpoint; `changes` are settings at the top, where None removes one."""
    config = eagle3_config(model, layout)
    tensors = eagle3_tensors(model, layout, config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | changes))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def golden_folders() -> list[Path]:
    """Return the checkpoints that come with the logits of a reference implementation."""
    return sorted((Path(__file__).parents[2] / "golden").glob("eagle3_*"))
