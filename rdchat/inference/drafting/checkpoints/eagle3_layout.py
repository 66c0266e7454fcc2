"""Reads EAGLE-3 drafters as others publish them.

    SafeAILab   a Llama configuration; `midlayer.*`, `d2t` and `t2d`; the target's embedding; SpecForge, SGLang and
                NVIDIA write it too, with an `eagle_config`
    speculators `transformer_layer_config` inside; `layers.0.*` and plain layers behind it; switches for the norms
    DeepSpec    a Qwen3 or Gemma 4 configuration with `target_layer_ids`; queries and keys normalised; tables of its own

Unknown values of known settings, unknown switches that are on, settings known to change the computation, and unknown
tensors are refused. Code named in `auto_map` is never run. Tested with random weights against the references' own code:
no published drafter was at hand, and nothing was tried on a Mac.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from rdchat.inference.drafting.checkpoints.checkpoint import NEWER_HINT, OTHER_HINT, Checkpoint, Layout, plain_name
from rdchat.inference.drafting.checkpoints.head_settings import (
    Parts,
    Settings,
    check_network,
    decoder_settings,
    load_network,
)
from rdchat.inference.drafting.heads.eagle3_head import BoundEagle3Head, Eagle3Config, FeatureNorm
from rdchat.inference.drafting.heads.head import HeadKind

# Model types whose layers differ only in their tensors.
_KINDS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "eagle3")
# Model types of Gemma 4, whose layers are recognised by their tensors.
_GEMMA_KINDS = ("gemma4_text", "gemma4_unified_text")
_ACTIVATION = "hidden_activation"
_SOFTCAP = "final_logit_softcapping"
# Number of the target's layers where it is not known, as where a drafter is looked at without a target.
_ANY_DEPTH = 100
# The layers of the target that are read; see `_target_layers`.
_READ = "eagle_aux_hidden_state_layer_ids"
# Copies of the target's tables that only training needs, and tensors that follow from the configuration.
_IGNORED = ("verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq")
# Settings that change the computation in ways rdchat does not support; Gemma 4's layers have two of them.
_ASK_FOR_MORE = {
    "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier",
    "num_local_experts", "num_experts", "hidden_activation", "quantization", "quantization_config",
    "enable_moe_block", "hidden_size_per_layer_input",
}  # fmt: skip
# Switches that may be on: rdchat applies them, the tensors show them, or they concern training and storage alone.
_SWITCHES = {
    "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_hidden_state", "attention_bias",
    "mlp_bias", "bias", "qkv_bias", "tie_word_embeddings", "use_input_layernorm_in_first_layer", "use_last_layernorm",
    "has_lm_head", "next_layer_regular", "use_cache", "embed_requires_grad", "has_no_defaults_at_init", "is_decoder",
    "return_dict", "is_causal", "use_sliding_window", "use_qk_norm", "use_rotary_pos_emb", "attention_k_eq_v",
}  # fmt: skip
# Switches that must not be off, and factors that must be 1.
_ALWAYS_ON = (
    "use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm", "next_layer_regular",
    "is_causal", "use_rotary_pos_emb",
)  # fmt: skip
_ONES = (
    "parallel_draft_step", "logit_scale", "partial_rotary_factor", "embedding_multiplier", "residual_multiplier",
    "logits_scaling",
)  # fmt: skip


def _parts_of(checkpoint: Checkpoint) -> Parts:
    """Return where a configuration has its settings, in any of the layouts; refuse what changes the computation."""
    top = Settings(checkpoint, checkpoint.config)
    speculators = "speculators_model_type" in top.data
    if speculators:
        top.word("speculators_model_type", "", ["eagle3"])
        # Speculators takes a missing value as false, and vLLM as true.
        if top.data.get("norm_before_residual") is None:
            raise checkpoint.error("its configuration lacks norm_before_residual, whose default differs between tools")
    inner = top.within("eagle_config")
    layers = top.within("transformer_layer_config") if speculators else top
    gemma = {_ACTIVATION, _SOFTCAP} if checkpoint.is_gemma else set()
    for settings in (top, layers, inner):
        _refuse(settings, gemma)
    return Parts(top, layers, Settings(checkpoint, {**inner.data, **top.data}), speculators)


def matches(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Return whether a checkpoint is EAGLE-3: its first layer has a norm for the features, or its settings say so."""
    first = any(plain_name(name) == "layers.0.hidden_norm.weight" for name in tensors)
    return first or config.get("speculators_model_type") == "eagle3"


def eagle3_config(checkpoint: Checkpoint, depth: int | None) -> Eagle3Config:
    """Return the network that a checkpoint describes, and check that its tensors are those of that network.

    Args:
        checkpoint: The drafter.
        depth: Number of the target's layers; None accepts any number.

    Raises:
        ModelError: If a setting is missing or unknown, or a tensor missing, unknown, or of another shape or type.
    """
    parts = _parts_of(checkpoint)
    top = parts.top
    layers = parts.layers
    eagle = parts.own
    gemma = checkpoint.is_gemma
    if gemma:
        layers.word("model_type", _GEMMA_KINDS[0], _GEMMA_KINDS)
        layers.word(_ACTIVATION, "gelu_pytorch_tanh", ("gelu_pytorch_tanh",))
    else:
        layers.word("model_type", "llama", _KINDS)
        layers.word("hidden_act", "silu", ("silu", "swish"))
    sizes = decoder_settings(checkpoint, layers)
    vocabulary = sizes["vocabulary_size"]
    listed = checkpoint.listed_tokens
    windows = _windows(layers)
    tied = sizes["own_embeddings"] and not sizes["own_output"]
    config = Eagle3Config(
        **sizes,
        windows=windows,
        # The first layer always does.
        takes_embedding=tuple(
            not number or f"layers.{number}.hidden_norm.weight" in checkpoint.tensors for number in range(len(windows))
        ),
        target_layers=_target_layers(parts, depth),
        target_width=top.size("target_hidden_size", sizes["hidden_size"]),
        target_depth=top.target_depth,
        draft_vocabulary_size=eagle.size("draft_vocab_size", eagle.size("truncated_vocab_size", listed or vocabulary)),
        tied_output=tied and top.flag("tie_word_embeddings", False),
        feature_norm=_feature_norm(top),
        norm_before_residual=top.flag("norm_before_residual", False),
        norm_output=top.flag("norm_output", False),
        rope=layers.rope("full_attention"),
        softcap=top.number(_SOFTCAP, 1.0) if gemma and top.data.get(_SOFTCAP) else None,
    )
    _check_config(checkpoint, config)
    return config


EAGLE3 = Layout(HeadKind.EAGLE3, matches, eagle3_config, partial(load_network, BoundEagle3Head))


def _check_config(checkpoint: Checkpoint, config: Eagle3Config) -> None:
    """Refuse tensors of another network, and tables that cannot be used."""
    check_network(checkpoint, config, [name for name in checkpoint.tensors if name.endswith(_IGNORED)])
    width = config.target_width
    if config.reduced and not config.own_output:
        raise checkpoint.error("the tensor lm_head.weight is missing")
    has_own_tables = config.own_embeddings and (config.own_output or config.tied_output)
    if not has_own_tables and config.hidden_size != width:
        reason = f"it uses the model's tables of width {width:,}, but its own width is {config.hidden_size:,}"
        raise checkpoint.error(reason, OTHER_HINT)


def _refuse(settings: Settings, known: Collection[str]) -> None:
    """Refuse settings, but the known ones, that change the computation in ways rdchat does not support."""
    settings.refuse(_ASK_FOR_MORE - set(known))
    for name, value in settings.data.items():
        if value is True and name not in _SWITCHES:
            raise settings.checkpoint.error(f"rdchat does not know its setting {name[:100]}", NEWER_HINT)
        if (name in _ALWAYS_ON and value is False) or (name in _ONES and value not in (None, 1)):
            raise settings.wrong(name)


def _windows(layers: Settings) -> tuple[int | None, ...]:
    """Return how many positions each layer's rows can see."""
    kinds = layers.layer_kinds(layers.size("num_hidden_layers", 1))
    # Qwen's configurations may name a window that is not used
    used = layers.flag("use_sliding_window", layers.data.get("model_type") not in ("qwen2", "qwen3"))
    if used and layers.data.get("layer_types") is None and layers.data.get("sliding_window") is not None:
        # The configuration does not name the layers.
        raise layers.wrong("sliding_window")
    return tuple(layers.size("sliding_window") if used and kind == "sliding_attention" else None for kind in kinds)


def _target_layers(parts: Parts, depth: int | None) -> tuple[int, ...]:
    """Return the target's layers whose outputs are read.

    SafeAILab's code reads the inputs of the layers 2, n / 2 and n - 3, which are the outputs of the layers before them.
    The ids at the top of a configuration count inputs too, as vLLM does. Those in `eagle_config` (SpecForge, SGLang,
    NVIDIA) and DeepSpec's `target_layer_ids` count outputs. But one drafter of NVIDIA's, for gpt-oss, names a layer
    after the last one, so it counts as vLLM does (SGLang, pull request 32334).
    """
    inner = parts.top.within("eagle_config")
    if parts.top.data.get(_READ):
        return parts.top.layer_numbers(_READ, -1)
    if inner.data.get(_READ):
        read = inner.layer_numbers(_READ)
        return inner.layer_numbers(_READ, -1) if max(read) == depth else read
    if parts.top.data.get("target_layer_ids"):
        return parts.top.layer_numbers("target_layer_ids")
    depth = depth or parts.top.target_depth or _ANY_DEPTH
    return 1, depth // 2 - 1, depth - 4


def _feature_norm(top: Settings) -> FeatureNorm:
    """Return how the features are normalised; a configuration must not ask for two ways."""
    together = top.flag("norm_before_fc", False)
    each = top.flag("fc_norm", False)
    if together and each:
        raise top.wrong("fc_norm")
    return FeatureNorm.TOGETHER if together else FeatureNorm.EACH if each else FeatureNorm.NONE
