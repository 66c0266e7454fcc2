"""The families of models that are published with MTP layers, by mlx-lm's model types, and those that rdchat reads."""

from collections.abc import Mapping
from typing import Any

from rdchat.inference.models.model_config import text_config

QWEN = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
# DeepSeek-V3, and families with its names.
DEEPSEEK = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa")
MIMO = ("mimo",)
# Published without MTP layers; others train such layers for them.
PLAIN = ("llama", "qwen2", "qwen3")
FLOAT8, SCALES = "F8_E4M3", "_scale_inv"
# mlx-lm's `sanitize` multiplies block scales in.
FLOAT8_FAMILIES = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"}
_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")
_REFUSED = {
    "bailing_hybrid": "its layers mix two kinds of attention, and the kind of its MTP layer is not certain",
    "bailing_moe_v3": "its layers mix two kinds of attention, and the kind of its MTP layer is not certain",
    "ernie4_5_moe": "its sources disagree on a norm before the output rows",
    "exaone_moe": "the window of its MTP layer is not certain",
    "longcat_flash": "its MTP layer is not one of the model's own decoder layers",
    "mimo_v2_flash": "its MTP layers have another attention than the model's",
    "nemotron_h": "its MTP part is a list of blocks of several kinds",
    "step3p5": "its MTP layers have output rows and norms of their own kind",
}


def stated_layers(config: Mapping[str, Any]) -> int:
    """Return the number of MTP layers that a model's configuration states."""
    counts = (text_config(config).get(key, config.get(key)) for key in _COUNTS)
    return next((count for count in counts if type(count) is int and count > 0), 0)


def unreadable(architecture: str) -> str:
    """Return why the MTP layers of a model type cannot be used, a clause; empty where they can."""
    known = {*QWEN, *DEEPSEEK, *MIMO, *PLAIN}
    return "" if architecture in known else _REFUSED.get(architecture, "rdchat does not know their layout")
