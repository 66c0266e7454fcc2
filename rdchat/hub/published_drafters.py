"""Finds drafters for a model on the hub: heads that name it, and smaller models of its family.

It uses names only; whether something fits is decided by its files after the download.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rdchat.hub.endpoint import HubError
from rdchat.hub.hub_model import HubModel, PublishedKind
from rdchat.hub.known_files import checksum

if TYPE_CHECKING:
    from rdchat.hub.hub_api import HubApi

# A draft model has at most this share of the model's bytes, as larger ones gain nothing.
_SMALLER = 0.4
# Results of each kind, those with the most downloads.
_MAX_HEADS = 8
_MAX_MODELS = 5
_TOKENIZER = "tokenizer.json"
# Asked of the hub with each word.
_MAX_RESULTS = 200
# Precision or format at the end of a model's name.
_FORMAT = re.compile(
    r"[-_.](?:\d-?bits?|[a-z]*fp\d+|bf16|f(?:p)?16|f(?:p)?32|int[48]|q\d(?:_\w+)?|mlx|gguf|awq|gptq|dwq|dynamic|qat)$",
    re.IGNORECASE,
)
# Parts of a model's name that drafters for it leave out.
_PURPOSE = re.compile(r"[-_.](?:instruct|chat|it|base|thinking|\d{4})(?=$|[-_.])", re.IGNORECASE)
# The number of weights in a model's name, such as `-4B` or `-A3B`.
_SIZE = re.compile(r"[-_.]?(?:e|a)?\d{1,9}(?:\.\d{1,9})?[bm](?=$|[-_.])", re.IGNORECASE)

# By kind of head: the words to search for, each in a request of its own, and the pattern of repositories' names.
_HEADS = {
    kind: (texts, re.compile(pattern, re.IGNORECASE))
    for kind, texts, pattern in (
        (PublishedKind.EAGLE3, ("eagle3", "eagle-3"), r"eagle[-_ ]?3"),
        (PublishedKind.DFLASH, ("dflash",), r"d-?flash"),
        (PublishedKind.DSPARK, ("dspark",), r"d-?spark"),
        (PublishedKind.DOMINO, ("domino",), r"domino"),
        (PublishedKind.JETSPEC, ("jetspec",), r"jet-?spec"),
        (PublishedKind.XPRESS, ("xpress",), r"(?<![a-z])x-?press"),
        (PublishedKind.ASSISTANT, ("it-assistant",), r"it-assistant"),
        (PublishedKind.RDCHAT, ("rdchat",), r"rdchat|redrafter|recurrent-?draft"),
    )
}


def base_name(name: str) -> str:
    """Return a model's name without publisher, precision and format: `Qwen3-4B` for `org/Qwen3-4B-4bit`."""
    base = name.rsplit("/", 1)[-1]
    while (shorter := _FORMAT.sub("", base)) != base:
        base = shorter
    return base


def family_name(name: str) -> str:
    """Return the part of a model's name before its size: `Qwen3` for `Qwen3-4B`; empty without a size."""
    base = base_name(name)
    size = _SIZE.search(base)
    return base[: size.start()] if size else ""


def find_published(api: "HubApi", name: str, folder: Path) -> Iterator[tuple[HubModel, ...]]:
    """Yield the drafters found by name, and again when the size of each is known.

    Args:
        api: The hub.
        name: Hub id of the model that needs a drafter, or its folder's name.
        folder: Its folder.

    Raises:
        NetworkError: If the hub cannot be reached, or refuses.
    """
    results = _heads(api, name)
    results += _smaller_models(api, name, _weight_bytes(folder), {each.repository for each in results})
    yield tuple(results)
    # The hub may identify a tokenizer by git's checksum of a small file, or a large one's sha256.
    digests = {checksum(folder / _TOKENIZER, letters) for letters in (40, 64)} - {""}
    for number, each in enumerate(results):
        results[number] = _with_size(api, each, digests)
        yield tuple(results)


def _heads(api: "HubApi", model: str) -> list[HubModel]:
    """Return the heads that name the model. Each request has one word, because how the hub joins several is unknown."""
    # `Qwen3-4B` for `org/Qwen3-4B-Instruct-2507-4bit`.
    base = _PURPOSE.sub("", base_name(model))
    results: dict[str, HubModel] = {}
    for kind, (words, pattern) in _HEADS.items():
        for word in words:
            for result in api.search_models(word, limit=_MAX_RESULTS, tag=""):
                name = result.repository.rsplit("/", 1)[-1]
                if pattern.search(name) and _names(name, base) and result.repository != model:
                    results.setdefault(result.repository, replace(result, kind=kind))
    return sorted(results.values(), key=lambda each: -each.downloads)[:_MAX_HEADS]


def _names(name: str, base: str) -> bool:
    """Return whether a repository's name contains a model's name as whole words: `Qwen3-4B`, not `Qwen3-4B0`."""
    text = r"[-_.]?".join(re.escape(word) for word in re.split(r"[-_.]", base) if word)
    return re.search(rf"(?<![a-z0-9]){text}(?![a-z0-9])", name, re.IGNORECASE) is not None


def _weight_bytes(folder: Path) -> int:
    """Return the bytes of a model's weights as stored; 0 if unknown."""
    try:
        return sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    except OSError:
        return 0


def _smaller_models(api: "HubApi", model: str, weight_bytes: int, known: set[str]) -> list[HubModel]:
    """Return smaller models of the model's family; `known` are the heads, which may have its name too."""
    family = family_name(model)
    max_bytes = _SMALLER * weight_bytes
    if not family or not max_bytes:
        return []
    results = [
        result
        for result in api.search_models(family, limit=_MAX_RESULTS)
        if result.weight_bytes
        and result.weight_bytes <= max_bytes
        and family_name(result.repository).casefold() == family.casefold()
        and result.repository not in known
        and not any(pattern.search(result.repository) for _, pattern in _HEADS.values())
    ]
    return [replace(result, kind=PublishedKind.MODEL) for result in results[:_MAX_MODELS]]


def _with_size(api: "HubApi", drafter: HubModel, digests: set[str]) -> HubModel:
    """Return the drafter with its size, or with the reason why it cannot be downloaded."""
    try:
        files = api.files(drafter.repository)
    except HubError as error:
        return replace(drafter, problem=error.message)
    same = any(file.name == _TOKENIZER and file.digest in digests for file in files.files)
    return replace(drafter, download_bytes=files.size, same_tokenizer=same)
