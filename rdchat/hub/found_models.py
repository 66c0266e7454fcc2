"""Models as the hub describes them. Plain data; importing this imports no HTTP client."""

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from rdchat.hub.known_files import HubFile, is_repository

SortBy = Literal["downloads", "likes", "last_modified"]
HITS_PER_QUERY = ["config", "downloads", "gated", "lastModified", "likes", "safetensors", "tags"]  # beside its name
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16}
_MAX = 2**50  # limit of any count, also of bytes
_QUANTIZED = "base_model:quantized:"  # a tag, before a hub id
_NAMED_BITS = re.compile(r"(?<![0-9])([2-8])-?bit|[Qq]([2-8])_|(mxfp4|mxfp8|nvfp4)", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model in the results of a search."""

    repository: str  # the hub id
    downloads: int  # in the last month
    likes: int  # of all time
    changed: str  # day of its last change, such as 2026-11-22; empty if unknown
    gated: bool  # whether access must be requested on its page
    licence: str  # from its authors; may be empty
    family: str  # the architecture, such as `llama`; empty if unknown
    quantization: str  # such as `4-bit`; empty if unknown
    weight_bytes: int | None  # of its safetensors files; None if unknown
    float_bits: int = 16  # of most of their floats: 16 or 32
    quantized_from: str = ""  # hub id of the model that it is a quantised version of; empty if unknown


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model as the hub has it at one commit."""

    facts: FoundModel  # the same facts as in a search
    commit: str  # the commit
    files: tuple[HubFile, ...]  # all of its files, with the hub's names


def found_model(name: str, answer: dict[str, Any]) -> FoundModel:
    """Parse the hub's description of a model; values of a wrong type count as missing.

    Args:
        name: The hub id.
        answer: The hub's JSON.
    """
    config = answer["config"] if isinstance(answer.get("config"), dict) else {}
    tags = answer["tags"] if isinstance(answer.get("tags"), list) else []
    licences = [tag for tag in tags if isinstance(tag, str) and tag.startswith("license:")]
    family = config.get("model_type")
    originals = {tag.removeprefix(_QUANTIZED) for tag in tags if isinstance(tag, str) and tag.startswith(_QUANTIZED)}
    counts = _tensor_counts(answer.get("safetensors"))
    weight_bytes = sum(count * _BITS.get(dtype, 8) // 8 for dtype, count in counts.items())
    is_float32 = 2 * counts.get("F32", 0) > max(counts.get("F16", 0), counts.get("BF16", 0))
    return FoundModel(
        repository=name,
        downloads=_count(answer.get("downloads")) or 0,
        likes=_count(answer.get("likes")) or 0,
        changed=_day(answer.get("lastModified")),
        gated=bool(answer.get("gated")),
        licence=licences[0].removeprefix("license:")[:60] if licences else "",
        family=family[:60] if isinstance(family, str) else "",
        quantization=_quantization(config, name),
        weight_bytes=min(_MAX, weight_bytes) if counts else None,
        float_bits=32 if is_float32 else 16,
        quantized_from=next((name for name in originals if len(originals) == 1 and is_repository(name)), ""),
    )


def _count(value: Any) -> int | None:
    """Return a number of downloads, likes or weights; None if it cannot be one."""
    return value if type(value) is int and 0 <= value <= _MAX else None


def _day(value: Any) -> str:
    """Return the day of a time in the hub's format; empty if it is not one."""
    try:
        return date.fromisoformat(value[:10]).isoformat() if isinstance(value, str) else ""
    except ValueError:
        return ""


def _quantization(config: dict[str, Any], name: str) -> str:
    settings = config.get("quantization_config") or config.get("quantization")
    bits = settings.get("bits") if isinstance(settings, dict) else None
    if type(bits) is int and 1 <= bits <= 32:
        return f"{bits}-bit"
    named = _NAMED_BITS.search(name)
    return (named[3] or f"{named[1] or named[2]}-bit") if named else ""


def _tensor_counts(safetensors: Any) -> dict[str, int]:
    """Return the number of values of each type in the tensors."""
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    known = {dtype: _count(count) for dtype, count in counts.items()} if isinstance(counts, dict) else {}
    return {dtype: count for dtype, count in known.items() if count is not None}
