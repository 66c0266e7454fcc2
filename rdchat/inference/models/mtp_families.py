"""The families of models that are published with MTP layers, by mlx-lm's model types, and those that rdchat reads.

The layers are told by the names of their tensors: configurations are silent in some families.
"""

import re
from collections.abc import Mapping
from typing import Any

from rdchat.inference.models.model_config import LAYER_KEYS, text_config

QWEN = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
# DeepSeek-V3, and families with its names.
DEEPSEEK = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa")
MIMO = ("mimo",)
# Published without MTP layers; others train such layers for them.
PLAIN = ("llama", "qwen2", "qwen3")
FLOAT8 = "F8_E4M3"
SCALES = "_scale_inv"
# mlx-lm's `sanitize` multiplies block scales in.
FLOAT8_FAMILIES = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"}
# Repositories that have nothing else end their model type so.
BARE = "_mtp"
_ANY_MTP = re.compile(r"(?<![^.])mtp\w*\.", re.ASCII)
_LAYER = re.compile(r"(?:(?:model|language_model)\.)*layers\.(\d{1,5})\.", re.ASCII)
# Copies of the model's own tables.
_COPIES = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head|shared_head\.head)\.")
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


def is_mtp(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor is of an MTP layer: by its name, or by its number where they follow the other layers.

    Copies of the model's token tables are not.
    """
    if _COPIES.search(name):
        return False
    if _ANY_MTP.search(name) or str(config.get("model_type")).endswith(BARE):
        return True
    counted = _LAYER.match(name)
    counts = (text_config(config).get(key) for key in LAYER_KEYS)
    layers = next((count for count in counts if type(count) is int), None)
    return counted is not None and layers is not None and int(counted[1]) >= layers
