"""Models as the hub describes them. Plain data; importing this imports no HTTP client."""

import re
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Literal

from rdchat.hub.known_files import HubFile, is_repository, unpackable

SortBy = Literal["downloads", "likes", "last_modified"]
# What a search asks of each model, beside its name.
EXPANDED_FIELDS = ["config", "downloads", "gated", "lastModified", "likes", "safetensors", "tags"]
# Bits of the types of tensors; any other type has 8.
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U32": 32, "I32": 32, "U16": 16, "I16": 16}
# Limit of any count, also of bytes.
_MAX = 2**50
# A tag begins with this; the hub id of the original follows.
_QUANTIZED = "base_model:quantized:"
# The quantisation in a model's name, such as `4bit`, `Q4_K_M` or `mxfp4`.
_NAMED_BITS = re.compile(r"(?<![0-9])([2-8])-?bit|[Qq]([2-8])_|(mxfp4|mxfp8|nvfp4)", re.ASCII)


class PublishedKind(StrEnum):
    """The kind of a repository that may draft for a model, by its name; the values are for people."""

    EAGLE3 = "EAGLE-3"
    DFLASH = "DFlash"
    DSPARK = "DSpark"
    DOMINO = "Domino"
    JETSPEC = "JetSpec"
    XPRESS = "XPress"
    ASSISTANT = "Assistant"
    RDCHAT = "Recurrent"
    MODEL = "Smaller model"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository as the hub describes it: a model, or a drafter for one.

    Attributes:
        repository: The hub id.
        downloads: In the last month.
        likes: Of all time.
        changed: Day of its last change, such as 2026-11-22; empty if unknown.
        gated: Whether access must be requested on its page.
        licence: From its authors; may be empty.
        family: The architecture, such as `llama`; empty if unknown.
        quantization: Such as `4-bit`; empty if unknown.
        weight_bytes: Size of its safetensors files; None if unknown.
        float_bits: Bits of most of their floats: 16 or 32.
        quantized_from: Hub id of the model that it is a quantised version of; empty if unknown.
        commit: The commit of `files`; empty in the results of a search.
        files: All of its files, with the hub's names; empty in the results of a search.
        kind: What it may be for the model that it was searched for; None if it is not a drafter.
        download_bytes: Size of a drafter's download; None until the hub was asked.
        same_tokenizer: Whether a smaller model's tokenizer is the same file as the model's.
        problem: A sentence that says why it cannot be used as a drafter; empty if nothing speaks against it.
        packed: Why mlx-lm cannot unpack its weights; empty if it can, or the hub does not say how they are packed.
    """

    repository: str
    downloads: int = 0
    likes: int = 0
    changed: str = ""
    gated: bool = False
    licence: str = ""
    family: str = ""
    quantization: str = ""
    weight_bytes: int | None = None
    float_bits: int = 16
    quantized_from: str = ""
    commit: str = ""
    files: tuple[HubFile, ...] = ()
    kind: PublishedKind | None = None
    download_bytes: int | None = None
    same_tokenizer: bool = False
    problem: str = ""
    packed: str = ""

    @property
    def is_smaller_model(self) -> bool:
        """Whether it would draft as a smaller model; otherwise it is a drafter head, or no drafter."""
        return self.kind is PublishedKind.MODEL


def parse_model(name: str, answer: dict[str, Any]) -> HubModel:
    """Parse the hub's description of a model; values of a wrong type count as missing.

    Args:
        name: The hub id.
        answer: The hub's JSON.
    """
    config = answer["config"] if isinstance(answer.get("config"), dict) else {}
    tags = [tag for tag in answer["tags"] if isinstance(tag, str)] if isinstance(answer.get("tags"), list) else []
    licences = [tag for tag in tags if tag.startswith("license:")]
    family = config.get("model_type")
    packing = config.get("quantization_config")
    originals = {tag.removeprefix(_QUANTIZED) for tag in tags if tag.startswith(_QUANTIZED)}
    # A merge of several models has no one original.
    original = originals.pop() if len(originals) == 1 else ""
    counts = _tensor_counts(answer.get("safetensors"))
    weight_bytes = sum(count * _BITS.get(dtype, 8) // 8 for dtype, count in counts.items())
    # By bytes, of which a value of 32 bits has twice as many.
    is_float32 = 2 * counts.get("F32", 0) > max(counts.get("F16", 0), counts.get("BF16", 0))
    return HubModel(
        repository=name,
        downloads=_count(answer.get("downloads")) or 0,
        likes=_count(answer.get("likes")) or 0,
        changed=_day(answer.get("lastModified")),
        gated=bool(answer.get("gated")),
        licence=licences[0].removeprefix("license:")[:60] if licences else "",
        family=family[:60] if isinstance(family, str) else "",
        quantization=_quantization(config, name),
        packed=unpackable(str(family), packing) if isinstance(packing, dict) and "quant_method" in packing else "",
        weight_bytes=min(_MAX, weight_bytes) if counts else None,
        float_bits=32 if is_float32 else 16,
        quantized_from=original if is_repository(original) else "",
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
    match = _NAMED_BITS.search(name)
    return (match[3] or f"{match[1] or match[2]}-bit") if match else ""


def _tensor_counts(safetensors: Any) -> dict[str, int]:
    """Return the number of values of each type in the tensors, such as `BF16`; empty where the hub does not say."""
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    known = {dtype: _count(count) for dtype, count in counts.items()} if isinstance(counts, dict) else {}
    return {dtype: count for dtype, count in known.items() if count is not None}
