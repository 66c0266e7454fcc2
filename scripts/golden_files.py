"""Trees, random weights and files of the golden scripts."""

import json
from pathlib import Path
from typing import Any

import numpy as np

# Tokens, or places among the candidates, and parents. Levels of 2, 3 and 2 nodes.
TREE = ([3, 7, 11, 5, 5, 9, 2], [-1, -1, 0, 0, 1, 2, 4])

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
# A text model of Gemma 4 without sizes.
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
    "head_dim": 4, "rms_norm_eps": 1e-6, "attention_bias": False, "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 512, "attention_dropout": 0.0, "attention_k_eq_v": True, "enable_moe_block": False,
    "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
    "final_logit_softcapping": 5.0, "sliding_window": 512, "tie_word_embeddings": False,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip


def path_to(node: int, parents: list[int]) -> list[int]:
    """Return the nodes from below the root to this one."""
    above = path_to(parents[node], parents) if parents[node] >= 0 else []
    return [*above, node]


def draw(weights: Any, middle: float, generator: Any) -> None:
    """Give a tensor random values around `middle` that 16 bits hold exactly."""
    import torch  # noqa: PLC0415  mlx-vlm's environment has none

    wide = 0.25 if weights.ndim > 1 else 0.15
    weights.copy_((middle + wide * torch.randn(weights.shape, generator=generator)).half().float())


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, Any], expected: dict[str, Any]) -> None:
    """Write a model's config.json and its weights in 16 bits, and what a reference computes, if that is given."""
    from safetensors.torch import save_file  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored = {name: value.half() if value.is_floating_point() else value for name, value in tensors.items()}
    save_file({name: value.contiguous() for name, value in stored.items()}, folder / "model.safetensors")
    if expected:
        np.savez_compressed(folder / "expected.npz", **{name: value.numpy() for name, value in expected.items()})
    print(f"{folder.name}: {sum(path.stat().st_size for path in folder.glob('*.*')) / 1000:.0f} kB")
