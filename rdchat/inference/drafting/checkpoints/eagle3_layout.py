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
from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.api.drafter_facts import TargetMatch
from rdchat.inference.drafting.checkpoints.checkpoint import NEWER_HINT, OTHER_HINT, Checkpoint, Layout, fit_to
from rdchat.inference.drafting.checkpoints.settings import DECODER_HEADS, DECODER_LAYERS, Settings
from rdchat.inference.drafting.heads.eagle3_head import StoredEagle3
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Layer, FeatureNorm
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

_FIRST, _MIDDLE = "layers.0.", "midlayer."
_KINDS = ("llama", "mistral", "qwen2", "qwen3", "phi3", "eagle3")  # of layers; their tensors tell them apart
_MOST_LAYERS = 100
_LISTS = ("d2t", "t2d")  # of each candidate, its id less its place; of each token, whether it is a candidate
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
class _Target:
    """What a drafter says of its target; see `TargetNeeds`."""

    hidden_size: int
    vocabulary_size: int
    target_layers: tuple[int, ...]
    target_depth: int | None


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

    @property
    def target_depth(self) -> int | None:
        """Layers of the target, if they are named."""
        return None if self.top.data.get("num_target_layers") is None else self.top.size("num_target_layers")


def matches(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Tell whether a checkpoint is EAGLE-3's: its first layer has a norm for features beside that for a token."""
    first = any(f"{prefix}hidden_norm.weight" in tensors for prefix in (_FIRST, _MIDDLE))
    return first or config.get("speculators_model_type") == "eagle3"


def inspect(checkpoint: Checkpoint) -> Eagle3Config:
    """Check a checkpoint by itself; see `Layout`."""
    return eagle3_config(checkpoint, None)


def check(checkpoint: Checkpoint, model: LoadedModel) -> TargetMatch:
    """Check a checkpoint against a target; see `Layout`."""
    config, parts = eagle3_config(checkpoint, _depth(model)), _Parts.of(checkpoint)
    needs = _Target(config.target_width, config.vocabulary_size, config.target_layers, parts.target_depth)
    fit = fit_to(checkpoint, needs, parts.top.named_target, model)
    if config.shares_tables and config.hidden_size != config.target_width:
        reason = f"it uses the model's tables, of width {config.target_width:,}, and is {config.hidden_size:,} wide"
        raise checkpoint.error(reason, OTHER_HINT)
    return fit


def load(checkpoint: Checkpoint, model: LoadedModel) -> StoredEagle3:
    """Read a checkpoint; see `Layout`."""
    config = eagle3_config(checkpoint, _depth(model))
    names = {_stored_name(checkpoint, name): name for name in config.shapes()}
    read = checkpoint.read([*names, *_LISTS])
    offsets = read["d2t"] if "d2t" in read else mx.zeros(config.candidates, mx.int32)
    vocabulary = checkpoint.drafted_tokens(offsets, config.vocabulary_size)
    if config.candidates < config.vocabulary_size and "t2d" in read:
        chosen = np.flatnonzero(fetch(read["t2d"]))
        if not np.array_equal(chosen, fetch(vocabulary)):
            raise checkpoint.error("its lists d2t and t2d do not name the same tokens")

    def weights() -> dict[str, mx.array]:
        return {names[name]: tensor for name, tensor in checkpoint.lazy(names).items()}

    return StoredEagle3(config, weights, vocabulary)


EAGLE3 = Layout(HeadKind.EAGLE3, matches, inspect, check, load)


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
    tensors = {_own_name(name) for name in checkpoint.tensors}
    layers.word("model_type", "llama", _KINDS)
    layers.word("hidden_act", "silu", ("silu", "swish"))
    sizes = layers.read(*DECODER_LAYERS, *DECODER_HEADS)
    vocabulary, listed = sizes["vocabulary_size"], checkpoint.listed_tokens
    own_embeddings, own_output = "embed_tokens.weight" in tensors, "lm_head.weight" in tensors
    config = Eagle3Config(
        intermediate_size=sizes.pop("inner_size"),
        head_width=sizes.pop("head_size"),
        **sizes,
        layers=_layers(layers, tensors),
        target_layers=_target_layers(parts, depth),
        target_width=top.size("target_hidden_size", sizes["hidden_size"]),
        candidates=eagle.size("draft_vocab_size", eagle.size("truncated_vocab_size", listed or vocabulary)),
        own_embeddings=own_embeddings,
        own_output=own_output,
        tied_output=own_embeddings and not own_output and top.flag("tie_word_embeddings", False),
        biases=frozenset(name.removesuffix(".bias") for name in tensors if name.endswith(".bias")),
        head_norms="layers.0.self_attn.q_norm.weight" in tensors,
        feature_norm=_feature_norm(top),
        norm_before_residual=top.flag("norm_before_residual", False),
        norm_output=top.flag("norm_output", False),
        rope=layers.rope("full_attention"),
    )
    _check_config(checkpoint, config)
    return config


def _check_config(checkpoint: Checkpoint, config: Eagle3Config) -> None:
    turned = (config.rope.scaling or {}).get("partial_rotary_factor", 1) * config.head_width
    if config.heads % config.kv_heads or config.head_width % 2 or int(turned) < 2 or int(turned) % 2:
        heads = f"{config.heads:,} heads of width {config.head_width:,} and {config.kv_heads:,} of keys"
        raise checkpoint.error(f"it has {heads}, which do not go together")
    candidates, vocabulary = config.candidates, config.vocabulary_size
    if candidates > vocabulary:
        raise checkpoint.error(f"it drafts {candidates:,} of {vocabulary:,} tokens")
    expected, lists = config.shapes(), {"d2t": (candidates,), "t2d": (vocabulary,)}
    if candidates < vocabulary:
        expected |= {"d2t": lists["d2t"], "lm_head.weight": (candidates, config.hidden_size)}
    expected |= {name: shape for name, shape in lists.items() if name in checkpoint.tensors}
    shapes = {_stored_name(checkpoint, name): shape for name, shape in expected.items()}
    checkpoint.check_tensors(shapes, [name for name in checkpoint.tensors if name.endswith(_IGNORED)])


def _own_name(name: str) -> str:
    return name.replace(_MIDDLE, _FIRST, 1) if name.startswith(_MIDDLE) else name


def _stored_name(checkpoint: Checkpoint, name: str) -> str:
    """Return what a checkpoint calls a tensor of the network: the first layer is SafeAILab's `midlayer`."""
    middle = any(stored.startswith(_MIDDLE) for stored in checkpoint.tensors)
    return name.replace(_FIRST, _MIDDLE, 1) if middle and name.startswith(_FIRST) else name


def _depth(model: LoadedModel) -> int:
    return len(getattr(model.network, "layers", ()))


def _refuse(settings: Settings) -> None:
    """Refuse settings that ask for what is not computed here."""
    settings.refuse(_ASK_FOR_MORE)
    for name, value in settings.data.items():
        if value is True and name not in _SWITCHES:
            raise settings.checkpoint.error(f"rdchat does not know its setting {name[:100]}", NEWER_HINT)
        if (name in _ALWAYS_ON and value is False) or (name in _ONES and value not in (None, 1)):
            raise settings.wrong(name)


def _layers(layers: Settings, tensors: Collection[str]) -> tuple[Eagle3Layer, ...]:
    """Return the drafter's layers; those with a norm for hidden states take an embedding, too."""
    count = layers.size("num_hidden_layers", 1)
    if count > _MOST_LAYERS:
        raise layers.wrong("num_hidden_layers")
    kinds = layers.layer_kinds(count)
    # Qwen's configurations name a window that they do not use unless they say so
    used = layers.flag("use_sliding_window", layers.data.get("model_type") not in ("qwen2", "qwen3"))
    if used and layers.data.get("layer_types") is None and layers.data.get("sliding_window") is not None:
        raise layers.wrong("sliding_window")  # of which layers, it does not say
    windows = [layers.size("sliding_window") if used and kind == "sliding_attention" else None for kind in kinds]
    takes = [number == 0 or f"layers.{number}.hidden_norm.weight" in tensors for number in range(count)]
    return tuple(Eagle3Layer(taken, window) for taken, window in zip(takes, windows, strict=True))


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
    depth = depth or parts.target_depth or _MOST_LAYERS
    return 1, depth // 2 - 1, depth - 4


def _feature_norm(top: Settings) -> FeatureNorm:
    together, each = top.flag("norm_before_fc", False), top.flag("fc_norm", False)
    if together and each:
        raise top.wrong("fc_norm")
    return FeatureNorm.TOGETHER if together else FeatureNorm.EACH if each else FeatureNorm.NONE
