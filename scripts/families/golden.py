"""Writes tests/inference/golden/families.json: what transformers computes with weights that are drawn by their names.

    python scripts/families/golden.py

It needs torch and transformers. Each case has the config.json that transformers writes, the shapes of the checkpoint's
tensors by name, and the logits of the last of 24 tokens; `drawn_weights.py` draws the tensors.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from drawn_weights import drawn
from make import SHORT, logits_of, merged, network, plain, smaller
from safetensors import safe_open
from safetensors.numpy import save_file
from sizes import SPECIAL
from transformers import AutoConfig

OUT = Path("tests/inference/golden/families.json")
_FROM = {"original_max_position_embeddings": 64}
_YARN = {"rope_type": "yarn", "rope_theta": 77.0, "factor": 4.0, **_FROM}
_SHORT = {"short_factor": [1.0] * 7 + [3.0], "long_factor": [4.0] * 8}
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, **_SHORT, **_FROM}
# Each is of a kind that was different, or was refused: rope in one key, another default, a fault of the module.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with yarn": ("llama", {"rope_parameters": _YARN}),
    "qwen2": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}),
    "mixtral with linear": ("mixtral", {"rope_parameters": {"rope_type": "linear", "rope_theta": 77.0, "factor": 4.0}}),
    "qwen3_moe": ("qwen3_moe", {}),
    "gemma3_text": ("gemma3_text", {"layer_types": ["full_attention", "sliding_attention"] * 3}),
    "gemma3_text of another width": ("gemma3_text", {"hidden_size": 112, "sliding_window_pattern": 3}),
    "phi": ("phi", {}),
    "phi3 with longrope": ("phi3", {"rope_parameters": _LONGROPE, **_FROM}),
    "glm": ("glm", {}),
    "jamba": ("jamba", {}),
    "ernie4_5_moe": ("ernie4_5_moe", {}),
    "mamba2": ("mamba2", {}),
    "minicpm3": ("minicpm3", {"tie_word_embeddings": True}),
    "falcon_h1": ("falcon_h1", {"key_multiplier": 0.4}),
    "gpt_oss": ("gpt_oss", {}),
    "qwen3_5_moe": ("qwen3_5_moe", {}),
}


def case(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a case for a model type."""
    config = AutoConfig.for_model(name)
    model = network(type(config), merged(merged(smaller(plain(config)), SPECIAL.get(name, {})), changes))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = Path(folder, "model.safetensors")
        with safe_open(file, "np") as held:
            shapes = {key: held.get_slice(key).get_shape() for key in held.keys() if "visual" not in key}  # noqa: SIM118
            seen = {key: held.get_tensor(key) for key in held.keys() if "visual" in key}  # noqa: SIM118
        save_file(seen | {key: drawn(key, shape) for key, shape in shapes.items()}, file, {"format": "pt"})
        again = type(model).from_pretrained(folder, attn_implementation="eager").eval()
        written = json.loads(Path(folder, "config.json").read_text())
    written.pop("vision_config", None)
    logits = logits_of(again, SHORT)[-1]
    return {"config": written, "shapes": shapes, "logits": [round(float(each), 4) for each in logits]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {name: case(kind, changes) for name, (kind, changes) in CASES.items()}
    OUT.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()) + "\n}\n"
    )
