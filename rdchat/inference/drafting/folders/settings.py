"""Reads the `config.json` of a published drafter: each setting with its type and range, refused by name."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rdchat.errors import ModelError
from rdchat.inference.drafting.folders.checkpoint import NEWER_HINT, Checkpoint
from rdchat.inference.drafting.heads.rope_config import RopeConfig

_MOST_SIZE = 2**31 - 1  # MLX counts one dimension in 32 bits
_MOST_LIST = 1000
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
# mlx-lm's yarn rounds as if `truncate` were true, whatever a model says; a text's mrope is plain rope
_ROPE_WORDS = frozenset({"type", "rope_type", "rope_theta", "truncate", "mrope_section", "mrope_interleaved"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Part of a configuration.

    Attributes:
        checkpoint: Whose, for errors.
        data: The settings; one that is null counts as missing.
    """

    checkpoint: Checkpoint
    data: Mapping[str, Any]

    def within(self, name: str) -> "Settings":
        """Return the settings inside another one; empty where there is none."""
        inner = self.data.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise self.wrong(name)
        return Settings(self.checkpoint, inner or {})

    def wrong(self, name: str) -> ModelError:
        """Return the error that a setting has a value that cannot be used."""
        value = repr(self.data.get(name))
        return self.checkpoint.error(f"its setting {name[:100]} is {value[:100]}")

    def size(self, name: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of a sane size."""
        value = self.data.get(name)
        value = default if value is None else value
        if value is None:
            raise self.checkpoint.error(f"its configuration lacks {name}")
        if type(value) is not int or not least <= value <= _MOST_SIZE:
            raise self.wrong(name)
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number."""
        value = self.data.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name)
        if not 0 < value < 1e30 or not math.isfinite(value):
            raise self.wrong(name)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.data.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(name)
        return value

    def word(self, name: str, default: str, known: Collection[str]) -> str:
        """Return one of the known words."""
        value = self.data.get(name)
        value = default if value is None else value
        if not isinstance(value, str) or value not in known:
            raise self.wrong(name)
        return value

    def words(self, name: str, default: list[str], known: Collection[str]) -> list[str]:
        """Return a list of known words."""
        values = self.data.get(name)
        values = default if values is None else values
        if not isinstance(values, list) or not all(isinstance(value, str) and value in known for value in values):
            raise self.wrong(name)
        return values

    def places(self, name: str, offset: int = 0) -> tuple[int, ...]:
        """Return a list of layers, each with an offset, which must be of the model's own."""
        values = self.data.get(name)
        if values is None:
            raise self.checkpoint.error(f"its configuration lacks {name}")
        if not isinstance(values, list) or not 0 < len(values) <= _MOST_LIST:
            raise self.wrong(name)
        if not all(type(value) is int and 0 <= value + offset < _MOST_LIST for value in values):
            raise self.wrong(name)
        return tuple(value + offset for value in values)

    def text(self, *names: str) -> str | None:
        """Return the first of these that is a text with something in it."""
        found = (self.data.get(name) for name in names)
        return next((value for value in found if isinstance(value, str) and value), None)

    @property
    def named_target(self) -> str | None:
        """What a whole configuration calls the target; in vLLM's layout other names are the drafter's own."""
        if self.data.get("speculators_config") is not None:
            return self.within("speculators_config").within("verifier").text("name_or_path")
        return self.text("target_model_name_or_path", "target_model", "_name_or_path")

    def refuse(self, names: Collection[str]) -> None:
        """Refuse settings that ask for what is not computed here; null, false and empty ones ask for nothing."""
        for name in sorted(names):
            if self.data.get(name):
                raise self.wrong(name)

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse settings that are not known."""
        unknown = sorted(str(name) for name in self.data.keys() - set(known))
        if unknown:
            raise self.checkpoint.error(f"rdchat does not know its setting {unknown[0][:100]}", NEWER_HINT)

    def rope(self, layer_type: str, *, whole_heads: bool = False) -> RopeConfig:
        """Return the rotary positions of layers of a type, as `rope_parameters` or `rope_scaling` say.

        Both may hold the base and name the kind in the older way, and the base in either goes before the one beside
        them, as in transformers.

        Args:
            layer_type: The type.
            whole_heads: Whether the default kind turns all of a head, whatever part is written beside it.
        """
        rope, older = self.within("rope_parameters"), self.within("rope_scaling")
        if isinstance(rope.data.get(layer_type), dict):
            rope = rope.within(layer_type)
        based = next((part for part in (rope, older) if part.data.get("rope_theta") is not None), self)
        theta = based.number("rope_theta", 10_000.0)
        if theta <= 1:  # a base without frequencies
            raise based.wrong("rope_theta")
        scaling = rope if rope.data.get("rope_type") or rope.data.get("type") else older
        traditional = not self.flag("rope_is_neox_style", True)
        most = self.size("max_position_embeddings", 2048)
        if not scaling.data:
            return RopeConfig(theta, None, traditional, most)
        named = "type" if scaling.data.get("rope_type") is None else "rope_type"
        kind = scaling.word(named, "default", _ROPE_NUMBERS)
        kind = "default" if kind == "mrope" else kind
        needed, options = _ROPE_NUMBERS[kind], _ROPE_OPTIONS.get(kind, frozenset())
        scaling.refuse_others(_ROPE_WORDS | needed | options | {"partial_rotary_factor"})
        partial = scaling.number("partial_rotary_factor", self.number("partial_rotary_factor", 1.0))
        ignored = whole_heads and kind == "default"
        if not ignored and (partial > 1 or (partial != 1 and kind != "proportional")):
            raise scaling.wrong("partial_rotary_factor")
        for name in needed:
            if scaling.data.get(name) is None:
                raise self.checkpoint.error(f"its configuration lacks {name} of the rope of kind {kind}")
        numbers = {
            name: self._rope_number(scaling, name)
            for name in sorted(needed | options)
            if scaling.data.get(name) is not None
        }
        if kind == "proportional":
            numbers["partial_rotary_factor"] = partial
        return RopeConfig(theta, {"rope_type": kind, **numbers}, traditional, most)

    @staticmethod
    def _rope_number(scaling: "Settings", name: str) -> float:
        if name.startswith("original"):
            return scaling.size(name)
        if name.startswith("mscale") and scaling.data.get(name) == 0:
            return 0.0
        return scaling.number(name, 1.0)
