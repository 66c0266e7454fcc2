"""What the oracle of families knows of single model types: sizes that make their classes small."""

import re

# The sizes that make a class large, first match first; every other field stays at the class's default.
_RULES = (
    (r"shared.*intermediate|expert.*intermediate|moe_(inter|hidden)|expert_ffn|share_expert_dim|q_lora", 32),
    (r"index_(head_dim|n_heads)|dim_model_base", 32),
    (r"vocab_size|mamba_d_ssm", 128),
    (r"intermediate_size|ffn_hidden|n_inner|merged_hidden", 256),
    (r"^head_dim|qk_head_dim", 0),
    (r"lora_rank|_head_dim|linear_head|mamba_d_(state|head)|state_size|per_layer_input|laurel|block_size", 16),
    (r"^hidden_size$|d_model|n_embd|lru_width|embed_dim|out_hidden|num_position", 64),
    (r"projector_.*(size|dim)|projection_hidden|vision_output", 64),
    (r"mamba_n(um)?_heads|dt_rank|step_rank|rotary_dim", 8),
    (r"linear_num_key|attn_layer_period|layer_group|^depth$|kv_shared_layers", 2),
    (r"^n_heads?$|^num_heads$|num_attention_heads|zero_expert_num|linear_num|sliding_attention_heads", 4),
    (r"attn_layer_offset", 1),
)
SMALL = [(re.compile(names), size) for names, size in _RULES]
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_CONV = ["conv", "full_attention", "conv"]
# What a class cannot work out from its defaults, or what mlx-lm's module fixes.
SPECIAL = {
    "gemma3n": {
        "text_config": {
            "activation_sparsity_pattern": [0.95] + [0.0] * 5,
            "num_kv_shared_layers": 1,
            "num_hidden_layers": 6,
        }
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "head_dim": 16, "num_key_value_heads": 1},
    "lfm2": {"layer_types": _CONV},
    "lfm2_moe": {"layer_types": _CONV},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4},
    "nemotron": {"num_key_value_heads": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "longcat_flash": {"head_dim": 16},
    "muse_spark": {"audio_config": {"num_hidden_layers": 4}},
    "qwen2_vl": {"text_config": {"hidden_size": 512}, "vision_config": {"hidden_size": 512}},
    "qwen2_5_vl": {"text_config": {"hidden_size": 512}, "vision_config": {"out_hidden_size": 512}},
    **{name: {"head_dim": 16} for name in ("cohere2", "helium", "internlm3", "hunyuan_v1_dense")},
}
