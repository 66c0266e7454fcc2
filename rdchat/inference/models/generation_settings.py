"""Reads generation_config.json: the sampling that a model's authors recommend, and what a reply may not contain."""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import read_object
from rdchat.inference.api.requests import SamplingDefaults, SamplingParams

# Smaller models lose the thread at the usual temperature.
_SMALL_PARAMETERS = 500_000_000
_SMALL_TEMPERATURE = 0.2
_NUMBERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
# Maximum of a recommendation; more is a mistake in the file.
_HIGHEST = {"temperature": 2.0, "top_k": 1000}
# The end of a reply is compared with all of them after each token.
_MOST_STOPS = 64
_LONGEST_STOP = 1000
# They choose no token: ids of other uses, limits of length, details of beams, and how transformers computes.
_HARMLESS = {
    "bos_token_id", "cache_config", "cache_implementation", "chat_format", "compile_config",
    "continuous_batching_config", "decoder_start_token_id", "disable_compile", "diversity_penalty", "early_stopping",
    "is_assistant", "length_penalty", "low_memory", "num_beam_groups", "num_return_sequences", "pad_token_id",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits",
    "return_dict_in_generate", "speculation_type", "target_lookbehind", "transformers_version", "use_cache", "use_mtp",
    "user_token_id",
}  # fmt: skip
_HARMLESS_PREFIXES = ("_", "assistant_", "max_", "num_assistant_", "output_")
# Values that change nothing, besides those that are false.
_NEUTRAL = {
    "do_sample": True,
    "encoder_repetition_penalty": 1,
    "guidance_scale": 1,
    "num_beams": 1,
    "top_k": -1,
    "typical_p": 1,
}


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """What a generation_config.json means.

    Attributes:
        sampling: The sampling where the person chose none.
        suppressed: Tokens that a reply never has.
        stop: Strings that end a reply, as an end token does.
        unread: Settings that change which tokens are written, and that are not followed, or not in full.
    """

    sampling: SamplingDefaults
    suppressed: frozenset[int]
    stop: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def warning(self) -> str:
        """A sentence that names the settings that are not followed; empty where there are none."""
        named = ", ".join(name[:60] for name in self.unread)
        return f"rdchat does not follow {named} of its generation_config.json: replies can differ." if named else ""


def read_generation_settings(folder: Path, parameters: int, end_tokens: Collection[int] = ()) -> GenerationSettings:
    """Return what the generation_config.json of a folder means. What is wrong in it is not followed.

    Args:
        folder: The model's.
        parameters: Number of weights.
        end_tokens: Tokens that end a reply. As bad words they are allowed, as in transformers.
    """
    path = folder / "generation_config.json"
    written: dict[str, Any] = {}
    with suppress(RdchatError, OSError):
        written = read_object(path) if path.exists() else {}
    sampling = _sampling(written, parameters)
    parts = {name: _listed(written.get(name)) for name in _PARTS}
    used = {name: list(filter(fits, parts[name])) for name, fits in _PARTS.items()}
    used["stop_strings"] = used["stop_strings"][:_MOST_STOPS]
    followed = sampling.from_model.union(name for name in _PARTS if used[name] == parts[name])
    unread = [name for name, value in written.items() if name not in followed and _changes_text(name, value)]
    bad = {word[0] for word in used["bad_words_ids"]}.difference(end_tokens)
    suppressed = bad.union(used["suppress_tokens"])
    return GenerationSettings(sampling, frozenset(suppressed), tuple(used["stop_strings"]), tuple(sorted(unread)))


def _is_token(part: object) -> bool:
    return type(part) is int


def _is_one_token(word: object) -> bool:
    return isinstance(word, list) and len(word) == 1 and _is_token(word[0])


def _is_text(part: object) -> bool:
    return isinstance(part, str) and 0 < len(part) <= _LONGEST_STOP


_PARTS = {
    "suppress_tokens": _is_token,
    "eos_token_id": _is_token,
    "bad_words_ids": _is_one_token,
    "stop_strings": _is_text,
}
"""What the parts of settings must be to be followed."""


def _listed(value: object) -> list[Any]:
    """Return the parts of a setting that is a list, or one part of it alone; none where it is absent or empty."""
    if isinstance(value, list):
        return value
    return [value] if value or type(value) is int else []


def _changes_text(name: str, value: object) -> bool:
    """Return whether a setting that is not followed may change a reply: any that is not known to be harmless."""
    known = name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES)
    return bool(value) and not known and value != _NEUTRAL.get(name)


def _sampling(written: Mapping[str, Any], parameters: int) -> SamplingDefaults:
    small = parameters < _SMALL_PARAMETERS
    params = SamplingParams(temperature=_SMALL_TEMPERATURE) if small else SamplingParams()
    if written.get("do_sample") is False:
        written = {**written, "temperature": 0.0}
    from_model = set[str]()
    for name in _NUMBERS:
        value: Any = written.get(name)
        is_number = type(value) is int or (type(value) is float and name != "top_k")
        if is_number and value <= _HIGHEST.get(name, math.inf):
            with suppress(RdchatError, OverflowError):
                params = replace(params, **{name: value if name == "top_k" else float(value)})  # type: ignore[arg-type]
                from_model.add(name)
    return SamplingDefaults(params, frozenset(from_model), small)
