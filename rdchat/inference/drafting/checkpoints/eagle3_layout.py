"""EAGLE-3 drafters as others publish them.

    SafeAILab   a Llama configuration; `midlayer.*`, `d2t` and `t2d`; the target's embedding; SpecForge, SGLang and
                NVIDIA write it too, with an `eagle_config`
    speculators `transformer_layer_config` inside; `layers.0.*` and plain layers behind it; switches for the norms
    DeepSpec    a Qwen3 configuration with `target_layer_ids`; queries and keys normalised; tables of its own

Refused by name are values that are not known of settings that are, switches that are on and not known, settings known
to ask for more, and any tensor that is not accounted for. Code that `auto_map` names is never run. Tried on
random weights of these layouts, against the references' own code: no published drafter was at hand, and nothing was
tried on a Mac.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.checkpoints.checkpoint import NEWER_HINT, OTHER_HINT, Checkpoint, Layout, plain_name
from rdchat.inference.drafting.checkpoints.settings import Settings, check_heads, decoder_settings
from rdchat.inference.drafting.heads.eagle3_head import StoredEagle3
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, FeatureNorm
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

_KINDS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "eagle3")  # of layers; their tensors tell them apart
_ANY_DEPTH = 100  # stands for the target's layers where they are not known
_READ = "eagle_aux_hidden_state_layer_ids"
# Copies of the target's tables that only training needs, and what follows from the configuration.
_IGNORED = ("verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq")
_ASK_FOR_MORE = {
    "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier",
    "num_local_experts", "num_experts", "hidden_activation", "quantization", "quantization_config",
}  # fmt: skip
# Switches that may be on: they are heeded here, shown by the tensors, or concern training and storage alone.
_SWITCHES = {
    "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_hidden_state", "attention_bias",
    "mlp_bias", "bias", "qkv_bias", "tie_word_embeddings", "use_input_layernorm_in_first_layer", "use_last_layernorm",
    "has_lm_head", "next_layer_regular", "use_cache", "embed_requires_grad", "has_no_defaults_at_init", "is_decoder",
    "return_dict", "is_causal", "use_sliding_window", "use_qk_norm", "use_rotary_pos_emb",
}  # fmt: skip
_ALWAYS_ON = (
    "use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm", "next_layer_regular",
    "is_causal", "use_rotary_pos_emb",
)  # fmt: skip
_ONES = (
    "parallel_draft_step", "logit_scale", "partial_rotary_factor", "embedding_multiplier", "residual_multiplier",
    "logits_scaling",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where a layout keeps its settings."""

    top: Settings  # the whole configuration
    layers: Settings  # of the decoder layers
    eagle: Settings  # those of `eagle_config`, SafeAILab's among them
    speculators: bool  # vLLM's layout

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "_Parts":
        top = Settings(checkpoint, checkpoint.config)
        speculators = "speculators_model_type" in top.data
        if speculators:
            top.word("speculators_model_type", "", ["eagle3"])
            if top.data.get("norm_before_residual") is None:  # speculators takes that for false, vLLM for true
                raise checkpoint.error(
                    "its configuration lacks norm_before_residual, and others differ on what follows"
                )
        inner = top.within("eagle_config")
        layers = top.within("transformer_layer_config") if speculators else top
        for settings in (top, layers, inner):
            _refuse(settings)
        return cls(top, layers, Settings(checkpoint, {**inner.data, **top.data}), speculators)


def matches(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Tell whether a checkpoint is EAGLE-3's: its first layer has a norm for features beside that for a token."""
    first = any(plain_name(name) == "layers.0.hidden_norm.weight" for name in tensors)
    return first or config.get("speculators_model_type") == "eagle3"


def load(checkpoint: Checkpoint, config: Eagle3Config, _model: LoadedModel) -> StoredEagle3:
    """Read a checkpoint; see `Layout`."""
    wanted = list(config.shapes())
    read = checkpoint.read([*wanted, "d2t", "t2d"])
    offsets = read["d2t"] if "d2t" in read else mx.zeros(config.draft_vocabulary_size, mx.int32)
    vocabulary = checkpoint.offset_tokens(offsets, config.vocabulary_size)
    if config.reduced and "t2d" in read:
        chosen = np.flatnonzero(fetch(read["t2d"]))
        if not np.array_equal(chosen, fetch(vocabulary)):
            raise checkpoint.error("its lists d2t and t2d do not name the same tokens")
    return StoredEagle3(config, partial(checkpoint.lazy, wanted), vocabulary)


def eagle3_config(checkpoint: Checkpoint, depth: int | None) -> Eagle3Config:
    """Return the network that a checkpoint describes, once its tensors are those of that network.

    Args:
        checkpoint: The drafter.
        depth: Number of the target's layers; None for any that fits.

    Raises:
        ModelError: If a setting is missing or unknown, or a tensor missing, unknown, or of another shape or type.
    """
    parts = _Parts.of(checkpoint)
    top, layers, eagle = parts.top, parts.layers, parts.eagle
    layers.word("model_type", "llama", _KINDS)
    layers.word("hidden_act", "silu", ("silu", "swish"))
    sizes = decoder_settings(checkpoint, layers)
    vocabulary, listed = sizes["vocabulary_size"], checkpoint.listed_tokens
    windows = _windows(layers)
    tied = sizes["own_embeddings"] and not sizes["own_output"]
    config = Eagle3Config(
        **sizes,
        windows=windows,
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
    )
    _check_config(checkpoint, config)
    return config


EAGLE3 = Layout(HeadKind.EAGLE3, matches, eagle3_config, load)


def _check_config(checkpoint: Checkpoint, config: Eagle3Config) -> None:
    check_heads(checkpoint, config)
    candidates, vocabulary, width = config.draft_vocabulary_size, config.vocabulary_size, config.target_width
    if candidates > vocabulary:
        raise checkpoint.error(f"it drafts {candidates:,} of {vocabulary:,} tokens")
    expected, lists = config.shapes(), {"d2t": (candidates,), "t2d": (vocabulary,)}
    if config.reduced:
        expected |= {"d2t": lists["d2t"], "lm_head.weight": (candidates, config.hidden_size)}
    expected |= {name: shape for name, shape in lists.items() if name in checkpoint.tensors}
    checkpoint.check_tensors(expected, [name for name in checkpoint.tensors if name.endswith(_IGNORED)])
    if config.shares_tables and config.hidden_size != width:
        reason = f"it uses the model's tables, of width {width:,}, and is {config.hidden_size:,} wide"
        raise checkpoint.error(reason, OTHER_HINT)


def _refuse(settings: Settings) -> None:
    """Refuse settings that ask for what is not computed here."""
    settings.refuse(_ASK_FOR_MORE)
    for name, value in settings.data.items():
        if value is True and name not in _SWITCHES:
            raise settings.checkpoint.error(f"rdchat does not know its setting {name[:100]}", NEWER_HINT)
        if (name in _ALWAYS_ON and value is False) or (name in _ONES and value not in (None, 1)):
            raise settings.wrong(name)


def _windows(layers: Settings) -> tuple[int | None, ...]:
    """Return how many positions each layer's rows see."""
    kinds = layers.layer_kinds(layers.size("num_hidden_layers", 1))
    # Qwen's configurations name a window that they do not use unless they say so
    used = layers.flag("use_sliding_window", layers.data.get("model_type") not in ("qwen2", "qwen3"))
    if used and layers.data.get("layer_types") is None and layers.data.get("sliding_window") is not None:
        raise layers.wrong("sliding_window")  # of which layers, it does not say
    return tuple(layers.size("sliding_window") if used and kind == "sliding_attention" else None for kind in kinds)


def _target_layers(parts: _Parts, depth: int | None) -> tuple[int, ...]:
    """Return the target's layers whose outputs are read.

    SafeAILab's code takes what enters the layers 2, n / 2 and n - 3, so the outputs of those before them. vLLM counts
    so too in the ids at the top of a configuration. Those in `eagle_config` (SpecForge, SGLang, NVIDIA) and DeepSpec's
    `target_layer_ids` name the layers whose outputs are read; but a drafter of NVIDIA's for gpt-oss names the layer
    behind the last one, so counts as vLLM does (SGLang, pull request 32334).
    """
    inner = parts.top.within("eagle_config")
    if parts.top.data.get(_READ):
        return parts.top.places(_READ, -1)
    if inner.data.get(_READ):
        read = inner.places(_READ)
        return inner.places(_READ, -1) if max(read) == depth else read
    if parts.top.data.get("target_layer_ids"):
        return parts.top.places("target_layer_ids")
    depth = depth or parts.top.target_depth or _ANY_DEPTH
    return 1, depth // 2 - 1, depth - 4


def _feature_norm(top: Settings) -> FeatureNorm:
    together, each = top.flag("norm_before_fc", False), top.flag("fc_norm", False)
    if together and each:
        raise top.wrong("fc_norm")
    return FeatureNorm.TOGETHER if together else FeatureNorm.EACH if each else FeatureNorm.NONE
