"""Models as the hub tells of them, in plain data; importing this imports no client."""

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from rdchat.hub.known_files import HubFile

SortBy = Literal["downloads", "likes", "last_modified"]
ASKED_OF_EACH = ["config", "downloads", "gated", "lastModified", "likes", "safetensors", "tags"]  # beside its name
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16}
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


def found_model(model: Any) -> FoundModel:
    """Return what `huggingface_hub` tells of a model."""
    config = model.config if isinstance(model.config, dict) else {}
    tags = [tag for tag in model.tags or () if isinstance(tag, str)]
    licence = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    return FoundModel(
        repository=model.id,
        downloads=model.downloads or 0,
        likes=model.likes or 0,
        changed=model.last_modified.date().isoformat() if model.last_modified else "",
        gated=bool(model.gated),
        licence=licence[:60],
        family=str(config.get("model_type") or "")[:60],
        quantization=_quantization(config, model.id),
        weight_bytes=_weight_bytes(counts := _tensor_counts(model.safetensors)),
        float_bits=_float_bits(counts),
    )


def _quantization(config: dict[str, Any], name: str) -> str:
    settings = config.get("quantization_config") or config.get("quantization")
    bits = settings.get("bits") if isinstance(settings, dict) else None
    if isinstance(bits, int):
        return f"{bits}-bit"
    named = _NAMED_BITS.search(name)
    return (named[3] or f"{named[1] or named[2]}-bit") if named else ""


def _tensor_counts(safetensors: Any) -> dict[str, int]:
    """Return how many numbers of each type the tensors hold."""
    counts = getattr(safetensors, "parameters", None)
    return {str(dtype): int(count) for dtype, count in counts.items()} if isinstance(counts, dict) else {}


def _weight_bytes(counts: dict[str, int]) -> int | None:
    return sum(count * _BITS.get(dtype, 8) // 8 for dtype, count in counts.items()) if counts else None


def _float_bits(counts: dict[str, int]) -> int:
    return 32 if 2 * counts.get("F32", 0) > max(counts.get("F16", 0), counts.get("BF16", 0)) else 16
