"""Models as the hub describes them. Plain data; importing this imports no HTTP client."""

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from rdchat.hub.known_files import HubFile

SortBy = Literal["downloads", "likes", "last_modified"]
ASKED_OF_EACH = ["config", "downloads", "gated", "lastModified", "likes", "safetensors", "tags"]  # beside its name
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16}
_MOST = 2**50  # of anything that is counted, bytes too
_NAMED_BITS = re.compile(r"(?<![0-9])([2-8])-?bit|[Qq]([2-8])_|(mxfp4|mxfp8|nvfp4)", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that a search found.

    Attributes:
        repository: The hub id.
        downloads: Of the last month.
        likes: Of all time.
        changed: The day of its last change, as 2026-11-22; empty where the hub does not say.
        gated: Whether its authors give access on its page only.
        licence: As its authors name it; empty where they do not.
        family: The architecture, such as `llama`; empty where the hub does not say.
        quantization: Such as `4-bit`; empty where nothing says.
        weight_bytes: Of its safetensors; None where the hub does not say.
        float_bits: Of most of their floats: 16 or 32.
    """

    repository: str
    downloads: int
    likes: int
    changed: str
    gated: bool
    licence: str
    family: str
    quantization: str
    weight_bytes: int | None
    float_bits: int = 16


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model as the hub has it at one commit.

    Attributes:
        facts: What a search tells of it too.
        commit: The commit.
        files: All of its files, with names as the hub gives them.
    """

    facts: FoundModel
    commit: str
    files: tuple[HubFile, ...]


@dataclass(frozen=True, slots=True)
class HubCommit:
    """A version of a model.

    Attributes:
        commit: Its hash.
        day: Of which it is.
    """

    commit: str
    day: date


def found_model(name: str, told: dict[str, Any]) -> FoundModel:
    """Parse the hub's description of a model; values of a wrong type count as missing.

    Args:
        name: The hub id.
        told: The hub's JSON.
    """
    config = told["config"] if isinstance(told.get("config"), dict) else {}
    tags = told["tags"] if isinstance(told.get("tags"), list) else []
    licences = [tag for tag in tags if isinstance(tag, str) and tag.startswith("license:")]
    family = config.get("model_type")
    counts = _tensor_counts(told.get("safetensors"))
    return FoundModel(
        repository=name,
        downloads=_count(told.get("downloads")) or 0,
        likes=_count(told.get("likes")) or 0,
        changed=_day(told.get("lastModified")),
        gated=bool(told.get("gated")),
        licence=licences[0].removeprefix("license:")[:60] if licences else "",
        family=family[:60] if isinstance(family, str) else "",
        quantization=_quantization(config, name),
        weight_bytes=_weight_bytes(counts),
        float_bits=_float_bits(counts),
    )


def _count(value: Any) -> int | None:
    """Return a number that can be one of downloads, likes or weights; None where it cannot."""
    return value if type(value) is int and 0 <= value <= _MOST else None


def _day(value: Any) -> str:
    """Return the day of a time as the hub writes it; empty where it is none."""
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
    """Return how many numbers of each type the tensors hold."""
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    known = {dtype: _count(count) for dtype, count in counts.items()} if isinstance(counts, dict) else {}
    return {dtype: count for dtype, count in known.items() if count is not None}


def _weight_bytes(counts: dict[str, int]) -> int | None:
    return min(_MOST, sum(count * _BITS.get(dtype, 8) // 8 for dtype, count in counts.items())) if counts else None


def _float_bits(counts: dict[str, int]) -> int:
    return 32 if 2 * counts.get("F32", 0) > max(counts.get("F16", 0), counts.get("BF16", 0)) else 16
