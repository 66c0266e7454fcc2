"""What the configuration of an EAGLE-3 checkpoint says, in the terms of `Eagle3Config`.

Three layouts: SafeAILab's, which SpecForge, SGLang and NVIDIA write too; that of vLLM's speculators, whose layers are
described in `transformer_layer_config`; DeepSpec's. Which target layers are read, and which modules there are, was read
in those projects' code; of no published checkpoint could it be tried here.
"""

from collections.abc import Collection, Mapping
from typing import Any

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Layer, FeatureNorm
from rdchat.inference.models.safetensors_file import StoredTensor

HINT = "Get the drafter again, or use one that was made for this model."
_MOST = 2**31 - 1
_MOST_LAYERS = 100
_KINDS = (None, "llama", "mistral", "qwen2", "qwen3", "eagle3")  # of layers; their tensors tell them apart
_SCALINGS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"
    ),
}  # fmt: skip
_ROPE_NAMES = ("type", "rope_type", "rope_theta", "mrope_section")
# Switches that may be on: they are heeded here, shown by the tensors, or concern training and storage alone.
_HEEDED = {
    "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "use_aux_hidden_state", "attention_bias",
    "mlp_bias", "bias", "qkv_bias", "tie_word_embeddings", "use_input_layernorm_in_first_layer", "use_last_layernorm",
    "has_lm_head", "next_layer_regular", "use_cache", "embed_requires_grad", "has_no_defaults_at_init", "is_decoder",
    "return_dict", "is_causal", "use_sliding_window",
}  # fmt: skip
# Settings that would change what is computed, with the value that changes nothing.
_NEUTRAL: dict[str, object] = {
    "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
    "next_layer_regular": True, "is_causal": True, "parallel_draft_step": 1, "logit_scale": 1,
    "partial_rotary_factor": 1, "final_logit_softcapping": None, "attn_logit_softcapping": None,
    "query_pre_attn_scalar": None, "embedding_multiplier": 1, "residual_multiplier": 1, "attention_multiplier": None,
    "logits_scaling": 1, "num_local_experts": 0, "num_experts": 0, "hidden_activation": None,
}  # fmt: skip


def is_eagle3(config: Mapping[str, Any], names: Collection[str]) -> bool:
    """Tell whether a configuration and the names of tensors are an EAGLE-3 drafter's."""
    first = ("midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight")
    return config.get("speculators_model_type") == "eagle3" or ("fc.weight" in names and any(n in names for n in first))


def read_eagle3_config(
    drafter: str, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], depth: int
) -> Eagle3Config:
    """Return what a checkpoint's configuration and the header of its weights describe.

    Args:
        drafter: Its name, for messages.
        config: Its `config.json`.
        tensors: Its tensors by the names of `Eagle3Network`.
        depth: Number of the target's layers.

    Raises:
        ModelError: If a setting is missing, unknown, or cannot be; the message says which.
    """
    reader = _Reader(drafter, config)
    width, vocabulary = reader.size("hidden_size"), reader.size("vocab_size")
    heads, kv_heads, head_width = reader.heads(width)
    theta, scaling = reader.rope()
    own_embeddings, own_output = ("embed_tokens.weight" in tensors), ("lm_head.weight" in tensors)
    return Eagle3Config(
        hidden_size=width,
        intermediate_size=reader.size("intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        norm_epsilon=reader.number("rms_norm_eps", 1e-6),
        layers=reader.layers(tensors),
        target_layers=reader.target_layers(depth),
        target_width=reader.size("target_hidden_size", width),
        vocabulary_size=vocabulary,
        candidates=reader.size("draft_vocab_size", reader.size("truncated_vocab_size", vocabulary)),
        own_embeddings=own_embeddings,
        own_output=own_output,
        tied_output=own_embeddings and not own_output and reader.switch("tie_word_embeddings"),
        biases=frozenset(name.removesuffix(".bias") for name in tensors if name.endswith(".bias")),
        head_norms="layers.0.self_attn.q_norm.weight" in tensors,
        feature_norm=reader.feature_norm(),
        norm_before_residual=reader.switch("norm_before_residual"),
        norm_output=reader.switch("norm_output"),
        rope_theta=theta,
        rope_scaling=scaling,
        most_positions=reader.size("max_position_embeddings", 2048),
    )


class _Reader:
    """Reads settings of a stranger's configuration: the outer ones first, then those of the layers.

    Args:
        drafter: Its name, for messages.
        config: `config.json`.

    Raises:
        ModelError: If a setting is unknown or cannot be.
    """

    def __init__(self, drafter: str, config: Mapping[str, Any]) -> None:
        self._drafter = drafter
        self._speculators = "speculators_model_type" in config
        parts = [config, config.get("transformer_layer_config") or {}, config.get("eagle_config") or {}]
        if not all(isinstance(part, Mapping) for part in parts):
            raise self._error("transformer_layer_config and eagle_config must be lists of settings")
        self._outer, self._inner, self._eagle = parts
        if self._speculators and config["speculators_model_type"] != "eagle3":
            raise self._error(f"it is of the kind {_shown(config['speculators_model_type'])}, not eagle3")
        if self._speculators and "norm_before_residual" not in config:
            # speculators takes this for false, vLLM for true
            raise self._error("it does not say norm_before_residual, and others do not agree what that means")
        kind = (self._inner if self._speculators else config).get("model_type")
        if kind not in _KINDS:
            raise self._error(f"its layers are of the kind {_shown(kind)}, which rdchat cannot compute")
        if (act := self._get("hidden_act", "silu")) not in ("silu", "swish"):
            raise self._error(f"its hidden_act is {_shown(act)}, and rdchat computes silu alone")
        for part in parts:
            for name, value in part.items():
                if name in _NEUTRAL and value is not None and value != _NEUTRAL[name]:
                    raise self._error(f"rdchat cannot heed its setting {_shown(name)}: {_shown(value)}")
                if value is True and name not in _HEEDED:
                    raise self._error(f"rdchat does not know its setting {_shown(name)}")

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number."""
        value = self._get(name, default)
        if type(value) is not int or not 1 <= value <= _MOST:
            raise self._error(f"its {name} is {_shown(value)}, and has to be a size")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number."""
        return self._number(name, self._get(name, default))

    def switch(self, name: str) -> bool:
        """Return whether something is switched on."""
        value = self._get(name, False)
        if not isinstance(value, bool):
            raise self._error(f"its {name} is {_shown(value)}, and has to be true or false")
        return value

    def heads(self, width: int) -> tuple[int, int, int]:
        """Return the number of query heads, that of key and value heads, and the width of each."""
        queries = self.size("num_attention_heads")
        keys, each = self.size("num_key_value_heads", queries), self.size("head_dim", max(width // queries, 1))
        if queries % keys or each % 2:
            raise self._error(f"it has {queries:,} and {keys:,} heads of width {each:,}, which cannot be")
        return queries, keys, each

    def feature_norm(self) -> FeatureNorm:
        """Return how the target's features are normalised."""
        if not self.switch("norm_before_fc"):
            return FeatureNorm.EACH if self.switch("fc_norm") else FeatureNorm.NONE
        if self.switch("fc_norm"):
            raise self._error("norm_before_fc and fc_norm exclude each other")
        return FeatureNorm.TOGETHER

    def layers(self, tensors: Collection[str]) -> tuple[Eagle3Layer, ...]:
        """Return the drafter's layers; those with a norm for hidden states take an embedding."""
        count = self.size("num_hidden_layers", 1)
        if count > _MOST_LAYERS:
            raise self._error(f"it has {count:,} layers")
        window, types = self._get("sliding_window"), self._get("layer_types")
        if window is not None and self._get("use_sliding_window") is not False:
            window = self.size("sliding_window")
            if not isinstance(types, list) or len(types) != count:
                raise self._error("it does not say by layer_types which of its layers have the sliding_window")
        if not set(map(str, types or ())) <= {"full_attention", "sliding_attention"}:
            raise self._error(f"its layer_types are {_shown(types)}, of which rdchat knows no more than two")
        slides = [kind == "sliding_attention" for kind in types or [""] * count]
        takes = [number == 0 or f"layers.{number}.hidden_norm.weight" in tensors for number in range(count)]
        return tuple(Eagle3Layer(taken, window if slid else None) for taken, slid in zip(takes, slides, strict=False))

    def target_layers(self, depth: int) -> tuple[int, ...]:
        """Return the target's layers whose outputs are read.

        SafeAILab's code takes what enters the layers 2, n / 2 and n - 3, so the outputs of those before them. vLLM
        counts so too in the ids at the top of a configuration. Those in `eagle_config` (SpecForge, SGLang, NVIDIA) and
        DeepSpec's `target_layer_ids` name the layers whose outputs are read; but one of NVIDIA's for gpt-oss names the
        layer behind the last, so is meant the other way (SGLang, pull request 32334).
        """
        key = "eagle_aux_hidden_state_layer_ids"
        if ids := self._ids(self._outer.get(key), key):
            read = [number - 1 for number in ids]
        elif ids := self._ids(self._eagle.get(key), key):
            read = [number - 1 for number in ids] if max(ids) == depth else ids
        elif ids := self._ids(self._outer.get("target_layer_ids"), "target_layer_ids"):
            read = ids
        else:
            read = [1, depth // 2 - 1, depth - 4]
        made_for = self._outer.get("num_target_layers", depth)
        if made_for != depth:
            raise self._error(f"it was made for a model of {_shown(made_for)} layers, and this one has {depth}")
        if not all(0 <= number < depth for number in read):
            raise self._error(f"it reads the outputs of the layers {read}, and the model has {depth} layers")
        return tuple(read)

    def rope(self) -> tuple[float, dict[str, Any] | None]:
        """Return the base of the rotary embedding, and its scaling as mlx-lm takes it."""
        given = self._get("rope_parameters") or self._get("rope_scaling") or {}
        if not isinstance(given, Mapping):
            raise self._error(f"its rope_scaling is {_shown(given)}")
        theta = self._number("rope_theta", given.get("rope_theta", self._get("rope_theta", 10_000.0)))
        kind = given.get("rope_type") or given.get("type") or "default"
        if kind in ("default", "mrope"):  # of a text alone, the three parts of mrope's positions are the same
            known: tuple[str, ...] = ()
        elif isinstance(kind, str) and kind in _SCALINGS:
            known = _SCALINGS[kind]
        else:
            raise self._error(f"rdchat does not know its kind of rope scaling, {_shown(kind)}")
        for name, value in given.items():
            neutral = value is None or (name == "truncate" and value is True)
            if name not in (*known, *_ROPE_NAMES, "original_max_position_embeddings") and not neutral:
                raise self._error(f"rdchat cannot heed its rope setting {_shown(name)}")
        scaling = {name: self._number(name, given[name]) for name in known if given.get(name) is not None}
        if missing := [name for name in ("factor", "original_max_position_embeddings") if name in known]:
            missing = [name for name in missing if name not in scaling]
        if missing:
            raise self._error(f"its rope scaling lacks {missing[0]}")
        return theta, {"rope_type": kind, **scaling} if known else None

    def _get(self, name: str, default: object = None) -> Any:
        for part in (self._inner, self._outer) if self._speculators else (self._outer, self._eagle):
            if part.get(name) is not None:
                return part[name]
        return default

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            raise self._error(f"its {name} is {_shown(value)}, and has to be a positive number")
        return float(value)

    def _ids(self, value: object, name: str) -> list[int]:
        """Return the numbers of layers, none where there is no such setting."""
        if value is None or value == []:
            return []
        if not isinstance(value, list) or len(value) > _MOST_LAYERS or not all(type(each) is int for each in value):
            raise self._error(f"its {name} are {_shown(value)}, and have to be numbers of layers")
        return value

    def _error(self, what: str) -> ModelError:
        return ModelError(f"The drafter {self._drafter} does not fit: {what}.", HINT)


def _shown(value: object) -> str:
    """Return what a stranger wrote, at a length that can be shown."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else repr(value)
    return text[:60]
