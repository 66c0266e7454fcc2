"""Reads the `config.json` of a published drafter: each setting with its type and range (`Settings`).

The rest is what the layouts of block drafters, EAGLE-3 and Gemma 4's assistant have in common: settings of decoder
layers, checks of sizes, and reading the network.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rdchat.errors import ModelError
from rdchat.inference.device import fetch, on_gpu
from rdchat.inference.drafting.checkpoints.checkpoint import NEWER_HINT, Checkpoint
from rdchat.inference.drafting.heads.decoder import DecoderConfig, RopeConfig
from rdchat.inference.drafting.heads.head import BoundNetwork
from rdchat.inference.models.safetensors_file import MAX_SIZE
from rdchat.inference.verification import LoadedModel

_MAX_LIST = 1000
_MAX_LAYERS = 100
# By kind of rope: the numbers that it needs, and those that it may have.
_ROPE_NUMBERS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
    "yarn": frozenset({"factor", "original_max_position_embeddings"}),
    "proportional": frozenset(),
    "mrope": frozenset(),
}
_ROPE_OPTIONS: dict[str, frozenset[str]] = {
    "yarn": frozenset({"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}),
    "proportional": frozenset({"partial_rotary_factor", "factor"}),
}
# mlx-lm's yarn always rounds as with `truncate`; for plain text, mrope equals plain rope
_ROPE_KEYS = frozenset({"type", "rope_type", "rope_theta", "truncate", "mrope_section", "mrope_interleaved"})

Kind = Callable[[Any], bool]
"""Returns whether a value is valid for a setting."""


def _is_positive(value: Any) -> bool:
    """Return whether a value is a positive number of sane size; an infinity or NaN is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, or a part of it; each method reads one setting and raises ModelError where it is wrong.

    Attributes:
        checkpoint: The drafter, named in errors.
        data: Settings by name; null counts as missing.
    """

    checkpoint: Checkpoint
    data: Mapping[str, Any]

    def within(self, name: str) -> "Settings":
        """Return the settings nested in another one; empty where there is none."""
        inner = self.data.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise self.wrong(name)
        return Settings(self.checkpoint, inner or {})

    def wrong(self, name: str) -> ModelError:
        """Return the error for a setting whose value cannot be used."""
        value = repr(self.data.get(name))
        return self.checkpoint.error(f"its setting {name[:100]} is {value[:100]}")

    def value(self, name: str, kind: Kind, default: Any = None) -> Any:
        """Return a setting of a kind, or the default where it is missing.

        Raises:
            ModelError: If it is missing and has no default, or is of another kind.
        """
        value = self.data.get(name)
        value = default if value is None else value
        if value is None:
            raise self.checkpoint.error(f"its configuration lacks {name}")
        if not kind(value):
            raise self.wrong(name)
        return value

    def size(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """Return a whole number within sane limits."""
        return int(self.value(name, lambda value: type(value) is int and minimum <= value <= MAX_SIZE, default))

    def number(self, name: str, default: float) -> float:
        """Return a positive number."""
        return float(self.value(name, _is_positive, default))

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self.value(name, lambda value: isinstance(value, bool), default))

    def word(self, name: str, default: str, known: Collection[str]) -> str:
        """Return one of the known words."""
        return str(self.value(name, lambda value: isinstance(value, str) and value in known, default))

    def layer_kinds(self, count: int) -> list[str]:
        """Return for each of `count` layers whether its attention is full or sliding."""
        known = {"full_attention", "sliding_attention"}
        kinds = self.value("layer_types", lambda value: isinstance(value, list), ["full_attention"] * count)
        if len(kinds) != count or not all(isinstance(kind, str) and kind in known for kind in kinds):
            raise self.wrong("layer_types")
        return list(kinds)

    def layer_numbers(self, name: str, offset: int = 0) -> tuple[int, ...]:
        """Return a list of the target's layers, each plus an offset, checked against the number of layers."""
        values = self.value(name, lambda value: isinstance(value, list) and 0 < len(value) <= _MAX_LIST)
        if not all(type(value) is int and 0 <= value + offset < _MAX_LIST for value in values):
            raise self.wrong(name)
        return tuple(value + offset for value in values)

    def first_text(self, *names: str) -> str | None:
        """Return the first of these settings that is a non-empty string."""
        values = (self.data.get(name) for name in names)
        return next((value for value in values if isinstance(value, str) and value), None)

    @property
    def target_depth(self) -> int | None:
        """Number of the target's layers; None where it is not given."""
        return None if self.data.get("num_target_layers") is None else self.size("num_target_layers")

    @property
    def named_target(self) -> str | None:
        """The target's name in the configuration; in vLLM's layout other names are the drafter's own."""
        if self.data.get("speculators_config") is not None:
            return self.within("speculators_config").within("verifier").first_text("name_or_path")
        return self.first_text("target_model_name_or_path", "target_model", "_name_or_path")

    def refuse(self, names: Collection[str]) -> None:
        """Refuse settings that change the computation; null, false and empty values are allowed."""
        for name in sorted(names):
            if self.data.get(name):
                raise self.wrong(name)

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse unknown settings."""
        unknown = sorted(str(name) for name in self.data.keys() - set(known))
        if unknown:
            raise self.checkpoint.error(f"rdchat does not support its setting {unknown[0][:100]}", NEWER_HINT)

    def rope(self, layer_type: str, *, complete_heads: bool = False) -> RopeConfig:
        """Return the rotary positions for a type of layer.

        A configuration has them in three places: in `rope_parameters`, perhaps in an entry for the type of layer; in
        `rope_scaling`, its older form; and beside these two. As in transformers, each value has an order of its own:

        - The base: from `rope_parameters`, else from `rope_scaling`, else from beside them.
        - The kind with its numbers: from `rope_parameters` if that names a kind, else from `rope_scaling`, where the
          default kind is meant if none is named. `type` is the older name of `rope_type` in both.
        - The share of a head's values that is rotated (`partial_rotary_factor`): from the place of the kind, else from
          beside them. Less than all is refused, except in the proportional kind.

        Args:
            layer_type: Type of the layer.
            complete_heads: Whether the drafter's network has no share in the default kind: it rotates complete heads,
                and a share in its configuration is a copy of the target's.
        """
        rope = self.within("rope_parameters")
        older = self.within("rope_scaling")
        if isinstance(rope.data.get(layer_type), dict):
            rope = rope.within(layer_type)
        has_base = next((part for part in (rope, older) if part.data.get("rope_theta") is not None), self)
        theta = has_base.number("rope_theta", 10_000.0)
        # Such a base gives no frequencies.
        if theta <= 1:
            raise has_base.wrong("rope_theta")
        # The place of the kind and its numbers.
        scaling = rope if rope.data.get("rope_type") or rope.data.get("type") else older
        kind_key = "type" if scaling.data.get("rope_type") is None else "rope_type"
        kind = scaling.word(kind_key, "default", _ROPE_NUMBERS)
        if kind == "mrope":
            kind = "default"
        needed = _ROPE_NUMBERS[kind]
        options = _ROPE_OPTIONS.get(kind, frozenset())
        scaling.refuse_others(_ROPE_KEYS | needed | options | {"partial_rotary_factor"})
        has_share = scaling if scaling.data.get("partial_rotary_factor") is not None else self
        partial = has_share.number("partial_rotary_factor", 1.0)
        ignored = complete_heads and kind == "default"
        if not ignored and (partial > 1 or (partial != 1 and kind != "proportional")):
            raise has_share.wrong("partial_rotary_factor")
        for name in needed:
            if scaling.data.get(name) is None:
                raise self.checkpoint.error(f"its configuration lacks {name} for its {kind} rope")
        numbers = {
            name: scaling.rope_number(name) for name in sorted(needed | options) if scaling.data.get(name) is not None
        }
        if kind == "proportional":
            numbers["partial_rotary_factor"] = partial
        return RopeConfig(
            theta,
            {"rope_type": kind, **numbers} if scaling.data else None,
            traditional=not self.flag("rope_is_neox_style", True),
            max_positions=self.size("max_position_embeddings", 2048),
        )

    def rope_number(self, name: str) -> float:
        """Return a number of a rope's settings; only a factor of the attention (`mscale`) may be 0."""
        if name.startswith("original"):
            return self.size(name)
        if name.startswith("mscale") and self.data.get(name) == 0:
            return 0.0
        return self.number(name, 1.0)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a block drafter's or EAGLE-3's configuration, wherever a layout keeps them.

    Attributes:
        top: The complete configuration.
        layers: Settings of the decoder layers.
        own: Settings of the kind of drafter, or those at the top.
        speculators: Whether it is vLLM's layout.
    """

    top: Settings
    layers: Settings
    own: Settings
    speculators: bool


def load_network(
    kind: type[BoundNetwork], checkpoint: Checkpoint, config: DecoderConfig, model: LoadedModel
) -> BoundNetwork:
    """Read a block or EAGLE-3 drafter; see `Layout`. Tensors that its network does not use are not read."""
    names = list(config.shapes())
    vocabulary = None
    tensors = checkpoint.read_tensors([*names, "d2t", "t2d"])
    if "d2t" in tensors:
        # Draft token i is token i + d2t[i] of the target.
        ids = fetch(tensors["d2t"]).astype(np.int64) + np.arange(tensors["d2t"].shape[0])
        vocabulary = checkpoint.drafted_tokens("d2t", ids, config.vocabulary_size)
        chosen = np.flatnonzero(fetch(tensors["t2d"])) if config.reduced and "t2d" in tensors else None
        if chosen is not None and not np.array_equal(chosen, fetch(vocabulary)):
            raise checkpoint.error("its lists d2t and t2d do not name the same tokens")
    return kind(config, partial(checkpoint.lazy, names), vocabulary, model, stored_bits(checkpoint))


def stored_bits(checkpoint: Checkpoint) -> int | None:
    """Return the bits of a drafter's weights, where it was published quantised and stays so: on a GPU; else None.

    `BoundNetwork` chooses the bits where this is None.
    """
    return max((bits for _, bits in checkpoint.packed.values()), default=None) if on_gpu() else None


def decoder_settings(checkpoint: Checkpoint, layers: Settings) -> dict[str, Any]:
    """Return the fields of `DecoderConfig` that all layouts have, from the settings and tensors.

    Args:
        checkpoint: The drafter.
        layers: Settings of the decoder layers, named as in Hugging Face's configurations.

    Raises:
        ModelError: If a size is missing or impossible, or there are too many layers.
    """
    hidden = layers.size("hidden_size")
    heads = layers.size("num_attention_heads")
    tensors = checkpoint.tensors
    if layers.size("num_hidden_layers", 1) > _MAX_LAYERS:
        raise layers.wrong("num_hidden_layers")
    gemma = checkpoint.is_gemma
    # With Gemma's full attention, the values of some models are the keys.
    shared = gemma and layers.flag("attention_k_eq_v", False)
    kv_heads = "num_global_key_value_heads" if shared else "num_key_value_heads"
    return {
        "hidden_size": hidden,
        "vocabulary_size": layers.size("vocab_size"),
        "inner_size": layers.size("intermediate_size"),
        "heads": heads,
        "kv_heads": layers.size(kv_heads, None if gemma else heads),
        "head_size": layers.size("global_head_dim") if gemma else layers.size("head_dim", max(hidden // heads, 1)),
        "norm_epsilon": layers.number("rms_norm_eps", 1e-6),
        "own_embeddings": "embed_tokens.weight" in tensors,
        "own_output": "lm_head.weight" in tensors,
        "biases": frozenset(name.removesuffix(".bias") for name in tensors if name.endswith(".bias")),
        "qk_norm": "layers.0.self_attn.q_norm.weight" in tensors,
        "gemma": gemma,
        "values_from_keys": shared,
    }


def check_network(checkpoint: Checkpoint, config: DecoderConfig, ignored: Collection[str]) -> None:
    """Check that the tensors are those of a network that can be computed, besides ignored ones.

    `t2d` may have any shape: other programs never read it, and `load_network` compares it with `d2t`.

    Raises:
        ModelError: If key heads cannot be shared, `check_rope` or `check_tensors` refuses them, or it does not say
            which tokens it drafts.
    """
    if config.heads % config.kv_heads:
        raise checkpoint.error(f"its {config.heads} query heads cannot share {config.kv_heads} key heads")
    check_rope(checkpoint, config.rope, config.head_size)
    drafted = config.draft_vocabulary_size
    if drafted > config.vocabulary_size:
        raise checkpoint.error(f"it proposes {drafted:,} tokens, more than the {config.vocabulary_size:,} there are")
    if config.reduced and "d2t" not in checkpoint.tensors:
        raise checkpoint.error(f"it drafts {drafted:,} tokens and does not say which (d2t)")
    expected = config.shapes() | ({"d2t": (drafted,)} if "d2t" in checkpoint.tensors else {})
    checkpoint.check_tensors(expected, {*ignored, "t2d"})


def check_rope(checkpoint: Checkpoint, rope: RopeConfig, head_size: int) -> None:
    """Refuse a rope that rotates no pairs of a head's values, or half a pair."""
    turned = (rope.scaling or {}).get("partial_rotary_factor", 1) * head_size
    if head_size % 2 or int(turned) < 2 or int(turned) % 2:
        raise checkpoint.error(f"its rope cannot rotate {turned:g} of {head_size} values in pairs")
