"""Small Gemma 4 targets and assistants: the golden ones, and random ones for the alphabet's vocabulary."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import gemma4_text

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.assistant_head import BoundAssistant
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, loaded
from tests.inference.families import network_of

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = ("ordered", "dense")
WINDOW = 8
FULL = "full_attention"
SLIDING = "sliding_attention"
ROPE = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "head_dim": 16, "global_head_dim": 32, "rope_parameters": ROPE}
TARGET: dict[str, Any] = HEADS | {
    "num_hidden_layers": 4, "num_kv_shared_layers": 2, "num_key_value_heads": 2, "sliding_window": WINDOW,
    "layer_types": [SLIDING, FULL] * 2, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": len(ALPHABET), "final_logit_softcapping": 30.0, "use_double_wide_mlp": True,
}  # fmt: skip
TEXT: dict[str, Any] = HEADS | {
    "model_type": "gemma4_text", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 0, "vocab_size": len(ALPHABET),
    "sliding_window": WINDOW, "layer_types": [SLIDING, FULL], "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512,
}  # fmt: skip


def golden_folder(case: str) -> Path:
    """Return the folder of a golden case."""
    return GOLDEN / f"assistant_{case}"


@cache
def golden_target(case: str) -> LoadedModel:
    """Return the target of a golden case, as mlx-lm reads it."""
    folder = golden_folder(case) / "target"
    config = json.loads((folder / "config.json").read_text())
    network = gemma4_text.Model(gemma4_text.ModelArgs.from_dict(config))
    weights = network.sanitize(dict(mx.load(str(folder / "model.safetensors"))))
    network.load_weights([(name, tensor.astype(mx.float32)) for name, tensor in weights.items()])
    network.eval()
    model = loaded(network)
    return replace(model, info=replace(model.info, architecture="gemma4_text", vocabulary_size=config["vocab_size"]))


@cache
def shared_gemma(dtype: str = "float32") -> LoadedModel:
    """Return a small Gemma 4 of the alphabet's vocabulary; none may change it."""
    model = loaded(network_of("gemma4_text", {**TARGET, "vocab_size": len(ALPHABET)}, dtype))
    return replace(model, info=replace(model.info, architecture="gemma4_text", dtype=dtype))


def assistant_folder(
    folder: Path, *, clusters: int = 0, text: dict[str, Any] | None = None, width: int = 24, **changes: Any
) -> Path:
    """Write an assistant of random weights for `shared_gemma`; None removes a setting."""
    inner = TEXT | {"hidden_size": width} | (text or {})
    config = {"model_type": "gemma4_assistant", "backbone_hidden_size": 64, "text_config": inner} | changes
    queries = 4
    sliding = HEADS["head_dim"]
    full = HEADS["global_head_dim"]
    shapes = {
        "pre_projection.weight": (width, 128), "post_projection.weight": (64, width),
        "model.embed_tokens.weight": (inner["vocab_size"], width), "model.norm.weight": (width,),
    }  # fmt: skip
    for number, kind in enumerate(TEXT["layer_types"]):
        name = f"model.layers.{number}"
        rows = queries * (full if kind == FULL else sliding)
        norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        shapes |= {f"{name}.{norm}_layernorm.weight": (width,) for norm in norms} | {
            f"{name}.self_attn.q_proj.weight": (rows, width), f"{name}.self_attn.o_proj.weight": (width, rows),
            f"{name}.self_attn.q_norm.weight": (rows // queries,), f"{name}.mlp.gate_proj.weight": (40, width),
            f"{name}.mlp.up_proj.weight": (40, width), f"{name}.mlp.down_proj.weight": (width, 40),
            f"{name}.layer_scalar": (1,),
        }  # fmt: skip
    if clusters:
        shapes["masked_embedding.centroids.weight"] = (clusters, width)
        config |= {"use_ordered_embeddings": True, "num_centroids": clusters, "centroid_intermediate_top_k": 9}
    rng = np.random.default_rng(5)
    tensors = {
        name: mx.array(rng.normal(0.0 if len(shape) > 1 else 1.0, 0.3, shape).astype(np.float32))
        for name, shape in shapes.items()
    }
    if clusters:
        tensors["masked_embedding.token_ordering"] = mx.array(rng.permutation(len(ALPHABET)), mx.int64)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def stored(folder: Path, model: LoadedModel) -> BoundAssistant:
    """Read an assistant."""
    head = load_drafter(folder, model)
    assert isinstance(head, BoundAssistant)
    return head
