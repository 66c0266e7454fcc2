"""Small networks with random weights, of real mlx-lm architectures."""

import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

VOCABULARY = 300
COMMON: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY, "head_dim": 16,
    "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": False, "rope_scaling": None,
}  # fmt: skip
MOE: dict[str, Any] = {
    "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "moe_intermediate_size": 32, "norm_topk_prob": True,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA4: dict[str, Any] = {
    **COMMON, "model_type": "llama4_text", "num_hidden_layers": 4, "attention_bias": False, "attention_chunk_size": 8,
    "interleave_moe_layer_step": 2, "intermediate_size_mlp": 128, "num_experts_per_tok": 1, "num_local_experts": 2,
    "use_qk_norm": True,
}  # fmt: skip
GEMMA3N: dict[str, Any] = {
    **COMMON, "model_type": "gemma3n_text", "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8, "rope_local_base_freq": 10000.0,
    "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16, "final_logit_softcapping": 30.0,
    "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0], "altup_num_inputs": 2, "altup_coef_clip": 120.0,
    "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 8,
}  # fmt: skip
_LATENT: dict[str, Any] = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8}
_DEEPSEEK: dict[str, Any] = {
    **_LATENT, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_routed_experts": 4, "routed_scaling_factor": 1.0,
    "q_lora_rank": None, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "num_key_value_heads": 4, "attention_bias": False,
}  # fmt: skip
_CONVOLVED: dict[str, Any] = {"norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "full_attn_idxs": [1]}
TREES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "gemma3n": ("gemma3n", {"text_config": GEMMA3N}),
    "afm7": ("afm7", {"hidden_dim": 64, "num_layers": 4, "num_kv_reuse_layers": 2, "num_heads": 4, "num_kv_heads": 2}),
    "llama4_text": (
        "llama4_text", {"intermediate_size_mlp": 128, "no_rope_layers": [1, 1, 0], "use_qk_norm": True}
    ),
    "llama with llama3 rope": ("llama", {"rope_scaling": LLAMA3}),
    "llama with yarn rope": ("llama", {"rope_scaling": YARN}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {"sliding_window": 8, "sliding_window_pattern": 2}),
    "phi3": ("phi3", {}),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
    "deepseek_v3": ("deepseek_v3", _DEEPSEEK),
    "deepseek_v32": (
        "deepseek_v32",
        {**_DEEPSEEK, "q_lora_rank": 16, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 512},
    ),
    "qwen3_moe": ("qwen3_moe", MOE),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "cohere2": (
        "cohere2", {"sliding_window": 8, "sliding_window_pattern": 2, "logit_scale": 0.1, "layer_norm_eps": 1e-5}
    ),
    "lfm2": (
        "lfm2",
        {
            **_CONVOLVED, "block_dim": 64, "block_ff_dim": 128, "block_multiple_of": 8,
            "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False,
        },
    ),
    "mamba2": (
        "mamba2",
        {
            "num_heads": 8, "state_size": 16, "layer_norm_epsilon": 1e-5, "conv_kernel": 4, "expand": 2, "n_groups": 2,
            "use_bias": False, "use_conv_bias": True, "time_step_limit": (0.0, float("inf")), "time_step_rank": "auto",
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        {
            **MOE, "shared_expert_intermediate_size": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
            "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
            "full_attention_interval": 2, "partial_rotary_factor": 0.5,
        },
    ),
}  # fmt: skip
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama4": ("llama4", {"text_config": LLAMA4}),
    "mistral4": (
        "mistral4",
        {
            **_DEEPSEEK, "norm_topk_prob": True, "head_dim": None,
            "rope_parameters": {
                **YARN, "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
            },
        },
    ),
    "gpt2": (
        "gpt2",
        {"n_ctx": 512, "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 512, "layer_norm_epsilon": 1e-5},
    ),
    "ministral3": (
        "ministral3",
        {
            "rope_parameters": {
                "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 8,
                "type": "default", "rope_type": "default",
            }
        },
    ),
    "nanochat": ("nanochat", {}),
}  # fmt: skip
_DELTA: dict[str, Any] = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
_QWEN: dict[str, Any] = {**COMMON, **_DELTA, "full_attention_interval": 2}
_KIMI: dict[str, Any] = {
    **_LATENT, "num_key_value_heads": 4, "num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_token": 2,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "linear_attn_config": {
        "kda_layers": [1, 3], "full_attn_layers": [2], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4,
    },
}  # fmt: skip
_BAILING: dict[str, Any] = {
    "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "layer_group_size": 2, "topk_group": 1,
    "num_hidden_layers": 4,
}  # fmt: skip
_LIGHTNING: dict[str, Any] = {**_BAILING, "num_shared_experts": 1, "first_k_dense_replace": 1, "group_norm_size": 2}
# Families with recurrent or convolutional state that is committed in part; the first ones are among the trees too.
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: TREES[name] for name in ("lfm2", "mamba2", "qwen3_next")},
    "qwen3_5": ("qwen3_5", {"text_config": {**_QWEN, "model_type": "qwen3_5_text"}}),
    "qwen3_5_moe": (
        "qwen3_5_moe",
        {
            "text_config": {
                **_QWEN, **MOE, "model_type": "qwen3_5_moe_text", "shared_expert_intermediate_size": 32
            }
        },
    ),
    "kimi_linear": ("kimi_linear", {**_KIMI, "model_max_length": 512}),
    "kimi_k3": (
        "kimi_k3", {"text_config": {**COMMON, **_KIMI, "q_lora_rank": 16, "activation_situ_beta": 1.0}}
    ),
    "olmo_hybrid": (
        "olmo_hybrid",
        {
            **_DELTA, "linear_num_key_heads": 4, "linear_allow_neg_eigval": True, "attention_bias": False,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
    ),
    "bailing_moe_v3": (
        "bailing_moe_v3",
        {**_LATENT, **_BAILING, "moe_shared_expert_intermediate_size": 32, "n_group": 1, "q_lora_rank": 16},
    ),
    "bailing_moe_linear": ("bailing_moe_linear", {**_LIGHTNING, "norm_topk_prob": True}),
    "bailing_hybrid": (
        "bailing_hybrid",
        {**_LATENT, **_LIGHTNING, "n_group": 1, "routed_scaling_factor": 1.0, "num_key_value_heads": 4},
    ),
    "nemotron_h": (
        "nemotron_h",
        {
            "attention_bias": False, "mamba_num_heads": 8, "mamba_head_dim": 16, "mamba_proj_bias": False,
            "ssm_state_size": 16, "conv_kernel": 4, "n_groups": 2, "mlp_bias": False, "layer_norm_epsilon": 1e-5,
            "use_bias": False, "use_conv_bias": True, "hybrid_override_pattern": ["M", "*", "-", "M"],
        },
    ),
    "granitemoehybrid": (
        "granitemoehybrid",
        {
            "attention_bias": False, "embedding_multiplier": 1.0, "attention_multiplier": 0.25, "logits_scaling": 1.0,
            "residual_multiplier": 1.0, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8,
            "shared_intermediate_size": 64, "mamba_d_head": 16, "mamba_proj_bias": False, "mamba_d_state": 16,
            "mamba_d_conv": 4, "mamba_n_groups": 2, "mamba_conv_bias": True, "position_embedding_type": "nope",
        },
    ),
    "falcon_h1": (
        "falcon_h1",
        {"mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16, "mamba_n_heads": 8, "mamba_n_groups": 2},
    ),
    "plamo2": (
        "plamo2",
        {"hidden_size_per_head": 16, "mamba_d_state": 16, "mamba_num_heads": 8, "num_key_value_heads": 2},
    ),
    "lfm2_moe": (
        "lfm2_moe",
        {
            **_CONVOLVED, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
            "norm_topk_prob": True, "use_expert_bias": True, "num_dense_layers": 1,
        },
    ),
}  # fmt: skip
# Families whose layers run a recurrence of their own.
FED_AGAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": (
        "mamba",
        {"state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4},
    ),
    "jamba": (
        "jamba",
        {
            "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
            "mamba_d_conv": 4, "mamba_d_state": 8, "mamba_expand": 2, "num_experts": 4, "num_experts_per_tok": 2,
        },
    ),
    "rwkv7": (
        "rwkv7",
        {
            "norm_eps": 1e-5, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8,
            "decay_low_rank_dim": 8,
        },
    ),
    "recurrent_gemma": (
        "recurrent_gemma",
        {
            "attention_bias": False, "conv1d_width": 4, "logits_soft_cap": 30.0, "attention_window_size": 64,
            "block_types": ["recurrent", "attention", "recurrent"], "num_key_value_heads": 1,
        },
    ),
}  # fmt: skip


def network_of(name: str, options: dict[str, Any], dtype: str = "float32") -> nn.Module:
    """Return a network with random weights as float32, float16 or bfloat16, or quantised: `4bit`, in bfloat16."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)
    config = {**COMMON, "model_type": name, **options}
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "vocab_size": config["vocab_size"]}
    with mx.stream(mx.cpu):  # the same weights on every device
        network = module.Model(module.ModelArgs.from_dict(config))
        network.update(tree_map(_noisy, network.parameters()))
    if dtype != "float32":
        network.set_dtype(getattr(mx, dtype, mx.bfloat16))
    if dtype == "4bit":
        nn.quantize(network, 32, 4, class_predicate=_in_groups)
    network.eval()
    mx.eval(network.parameters())
    return network


def _in_groups(_name: str, module: nn.Module) -> bool:
    takes_modes = hasattr(module, "to_quantized") and type(module).__name__ != "FusedLinear"
    return takes_modes and module.weight.shape[-1] % 32 == 0


def _noisy(array: mx.array) -> mx.array:
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    return array + 0.1 * mx.random.normal(array.shape).astype(array.dtype)


_LILLE = {"block_size": 512, "layer_norm_eps": 1e-5, "n_embd": 64, "n_head": 4, "n_kv_heads": 2, "n_layer": 3}
WITHOUT_STATES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3n": TREES["gemma3n"],
    "lille-130m": ("lille-130m", _LILLE),
}
"""Families whose trunks give the logits themselves."""
