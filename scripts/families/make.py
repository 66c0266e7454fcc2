"""Makes tiny random checkpoints of transformers, with the logits that transformers computes.

    python make.py OUT TYPE ...

It needs torch and transformers, and runs in an environment of its own (`make families`). Each type gets a process and
a folder; in it, a folder for the class's defaults, and one for each setting with another value. `wanted.npy` has the
logits, `note.json` the setting that was changed.
"""

import json
import math
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sizes import CHOSEN, EXPERTS, LAYERS, SMALL, SPECIAL
from type_processes import in_processes

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
LIMIT_S = 400
SAME = 1e-4
SHORT = 24
LONG = 40
WINDOW = 16
WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size", "index_topk")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "mamba_hidden_act")
# Settings that are sizes, or no part of the computation.
QUIET = re.compile(
    r"token|dropout|pdrop|initializer|jitter|loss|cache|output_(att|hid|router)|_init|pretraining|dtype|version|label|"
    r"return|problem|name|architect|vocab|_size|rank|num_|n_|layers|summary|use_mamba|conv_kernel|"
    r"time_step_(min|max|floor)|rescale|expand|cross|is_|max_|chunk|period|offset|floor|top_?k(_group)?$|depth|width|"
    r"image|vision|audio|head_dim|reorder"
)
_FROM = {"original_max_position_embeddings": 64}
ROPES: dict[str, dict[str, Any]] = {
    "theta": {"rope_theta": 77.0},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, **_FROM},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_FROM},
    "partial": {"partial_rotary_factor": 0.5},
}


def plain(config: Any) -> dict[str, Any]:
    """Return a configuration with all fields, as plain data."""
    return json.loads(config.to_json_string(use_diff=False))


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that describes the language model."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def smaller(config: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that make a configuration small."""
    numbers = [key for key, value in config.items() if isinstance(value, int) and value > 1]
    made = {key: size for key in numbers if (size := next((size for rule, size in SMALL if rule.search(key)), 0))}
    kinds = config.get("layer_types") or []
    need = max((kinds.index(kind) + 1 for kind in kinds), default=0)
    made |= {key: max(3, min(need, 8)) for key in LAYERS if config.get(key)}
    if config.get("num_key_value_heads"):
        made["num_key_value_heads"] = 4 if config["num_key_value_heads"] == config.get("num_attention_heads") else 2
    if "state_size" in config and config.get("head_dim"):
        made |= {"head_dim": 16, "num_heads": 8}
    elif config.get("head_dim") and "qk_rope_head_dim" not in config:
        made["head_dim"] = 32
    groups = [key for key in ("n_group", "num_expert_group") if (config.get(key) or 1) > 1]
    made |= dict.fromkeys(groups, 4) | ({"topk_group": 2} if groups and config.get("topk_group") else {})
    made |= {key: 16 if groups else 4 for key in EXPERTS if config.get(key)}
    made |= {key: 2 for key in (*CHOSEN, "n_groups", "mamba_n_groups") if (config.get(key) or 1) > 1}
    made |= {key: 1 for key in ("first_k_dense_replace", "num_dense_layers") if config.get(key)}
    for key, value in config.items():
        if key.endswith("_token_id") and isinstance(value, int) and value >= 128:
            made[key] = 3
        elif key.endswith("_config") and isinstance(value, dict) and "model_type" in value:
            made[key] = smaller(value)
    return made


def merged(into: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the values of another one."""
    into = json.loads(json.dumps(into))
    for key, value in more.items():
        nested = isinstance(value, dict) and not key.startswith("rope")
        into[key] = merged(into.get(key) or {}, value) if nested else value
    return into


def network(kind: type, arguments: dict[str, Any]) -> Any:
    """Return a model whose parameters are drawn by their names, so that equal names are equal in every variant."""
    import torch  # noqa: PLC0415  in each process
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: PLC0415

    config = kind(**arguments)
    torch.manual_seed(0)  # some classes draw their time steps
    makers = (AutoModelForImageTextToText, AutoModelForCausalLM)[:: 1 if hasattr(config, "text_config") else -1]
    try:
        model = makers[0].from_config(config, attn_implementation="eager", dtype=torch.float32)
    except ValueError as error:
        if "Unrecognized configuration" not in str(error):
            raise
        model = makers[1].from_config(config, attn_implementation="eager", dtype=torch.float32)
    buffers = [
        pair for pair in model.named_buffers() if re.search("bias|scalar", pair[0]) and pair[1].is_floating_point()
    ]
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *buffers]:
            noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
            wide = tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1
            drawn = (
                noise / math.sqrt(tensor.shape[-1]) * (4 if "embed" in name else 1) if wide else tensor + 0.2 * noise
            )
            tensor.copy_(drawn)
    return model.eval()


def logits_of(model: Any, count: int) -> Any:
    """Return the logits of a text of `count` tokens: (count, vocabulary)."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        ids = torch.arange(count)[None] * 37 % 89 + 20
        return model(input_ids=ids, use_cache=False).logits[0].float().numpy()


def changes_of(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield other values of the settings of a configuration, one at a time: name, changes, length of the text."""
    for key, value in part.items():
        if (new := other_value(key, value)) is not None:
            yield key, {key: new}, SHORT
    rope = part.get("rope_parameters") or {}
    kinds = part.get("layer_types") or []
    for name, more in ROPES.items() if rope else ():
        inner = [key for key in rope if isinstance(rope[key], dict) and (name == "theta" or key == "full_attention")]
        changed = {**rope, **{key: {**rope[key], **more} for key in inner}} if inner else {**rope, **more}
        yield f"rope {name}", {"rope_parameters": changed}, SHORT
    if window := {key: WINDOW for key in WINDOWS if isinstance(part.get(key), int)}:
        yield "small window", window, LONG
        if len(set(kinds)) > 1:
            yield "layer_types", {**window, "layer_types": kinds[::-1]}, LONG
    if "sliding_window" in part and (part["sliding_window"] is None or part.get("use_sliding_window") is False):
        on = {"use_sliding_window": True, "max_window_layers": 1} if "use_sliding_window" in part else {}
        yield "window on", {"sliding_window": WINDOW, **on, **({"layer_types": None} if kinds else {})}, LONG


def other_value(key: str, value: Any) -> Any:
    """Return another value of a setting; None where it is not to be changed."""
    if key in ACTIVATIONS and isinstance(value, str):
        return "gelu" if value == "silu" else "silu"
    if isinstance(value, bool) and (key == "tie_word_embeddings" or not QUIET.search(key)):
        return not value
    if isinstance(value, float) and not QUIET.search(key) and math.isfinite(value):
        return 0.05 if "eps" in key else value * 1.37 or 0.13
    return 2.0 if value is None and "soft" in key else None


def make(out: Path, name: str) -> dict[str, str]:
    """Make the folders of a type; return why some could not be made, by setting."""
    import numpy as np  # noqa: PLC0415
    from transformers import AutoConfig  # noqa: PLC0415

    config = AutoConfig.for_model(name)
    arguments = merged(smaller(plain(config)), SPECIAL.get(name, {}))
    shutil.rmtree(out / name, ignore_errors=True)
    base = {}
    failed = {}
    model = network(type(config), arguments)
    content = plain(model.config)
    for setting, own, count in [("", {}, SHORT), *changes_of(text_of(content))]:
        tied = own if setting == "tie_word_embeddings" else {}
        changes = own if text_of(content) is content else {"text_config": own, **tied}
        try:
            made = network(type(config), merged(arguments, changes)) if setting else model
            wanted = logits_of(made, count)
            folder = out / name / (setting.replace(" ", "-") or "base")
            made.save_pretrained(folder)
        except Exception as error:
            failed[setting or "base"] = f"{type(error).__name__}: {error}"[:300]
            continue
        base = base or {length: logits_of(model, length) for length in (SHORT, LONG)}
        span = wanted.max() - wanted.min()
        effect = float(abs(wanted - base[count]).max() / span)
        np.save(folder / "wanted.npy", wanted)
        (folder / "note.json").write_text(json.dumps({"setting": setting, "changes": changes, "effect": effect}))
        if setting and effect < SAME:
            shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    import torch
    import transformers.modeling_utils

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True, exist_ok=True)
    for name, problems in in_processes(sys.argv[2:], make, place, ".made.json", failed="base", limit_s=LIMIT_S):
        print(name, str(problems)[:200], flush=True)
