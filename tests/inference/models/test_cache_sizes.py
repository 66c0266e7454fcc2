"""Law: the cache that is told for a model is never smaller than what mlx-lm allocates for its tokens."""

from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.models.model_config import kv_values_per_token
from tests.grids import share
from tests.inference.families import CHAINS, COMMON, FED_AGAIN, HYBRIDS, TREES, network_of

_LATENT: dict[str, Any] = {
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8,
    "attention_bias": False,
}  # fmt: skip
_YARN = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "mscale": 1.0, "mscale_all_dim": 1.0}
_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "original_max_position_embeddings": 512}
_EXPERTS = {
    "moe_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v2": ("deepseek_v2", {**_LATENT, **_EXPERTS, "topk_method": "greedy", "rope_scaling": _YARN}),
    "minicpm3": (
        "minicpm3", {**_LATENT, "dim_model_base": 32, "scale_depth": 1.0, "scale_emb": 1.0, "rope_scaling": _FACTORS}
    ),
    "youtu_llm": ("youtu_llm", _LATENT),
    "longcat_flash": (
        "longcat_flash",
        {
            **_LATENT, "num_layers": 3, "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "moe_topk": 2,
            "n_routed_experts": 4, "zero_expert_num": 1, "zero_expert_type": "identity", "attention_method": "MLA",
            "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "routed_scaling_factor": 1.0,
        },
    ),
}  # fmt: skip
# Its own keys stand beside those of other families here.
_MIXED = {"gpt2"}
OTHERS = {name: each for name, each in (TREES | CHAINS | HYBRIDS | FED_AGAIN).items() if name not in _MIXED}


def grown(module: str, options: dict[str, Any], tokens: int = 256) -> float:
    """Return how many numbers the caches hold more for each further token."""
    network = network_of(module, options)
    caches = make_prompt_cache(network)
    held = []
    for _ in range(2):
        network(mx.zeros((1, tokens), mx.int32), cache=caches)
        arrays = [array for cache in caches for _, array in tree_flatten(cache.state) if isinstance(array, mx.array)]
        held.append(sum(array.size for array in arrays))
    return (held[1] - held[0]) / tokens


@pytest.mark.parametrize("family", [*LATENT, "deepseek_v3", "deepseek_v32", *share(sorted(OTHERS), 8)])
def test_no_cache_is_larger_than_told(family: str) -> None:
    """Modules that keep whole keys needed up to 22 times what was told."""
    module, options = (LATENT | OTHERS)[family]
    told = kv_values_per_token({**COMMON, "model_type": module, **options})
    assert grown(module, options) <= told
    if family in LATENT:
        assert grown(module, options) == told
