"""Finds what is published to draft for a model: heads that name it, and smaller models of its family.

By names alone, as a search of the hub goes: whether something fits is judged by its files once it is here.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rdchat.errors import NetworkError
from rdchat.hub.cache_layout import snapshot_of
from rdchat.hub.drafters.card_figures import CardFigure, figures_in
from rdchat.hub.found_models import FoundModel
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import HubError
from rdchat.hub.known_files import HubFile

_SMALLER = 0.4  # of the model's bytes that a draft model has at most: a larger one takes what it brings
_MOST_HEADS, _MOST_MODELS = 8, 5
_TOKENIZER = "tokenizer.json"
_ASKED = 200  # results of a search
_TAIL = re.compile(
    r"[-_.](?:\d-?bits?|[a-z]*fp\d+|bf16|f(?:p)?16|f(?:p)?32|int[48]|q\d(?:_\w+)*|mlx|gguf|awq|gptq|dwq|dynamic|qat)$",
    re.IGNORECASE,
)
_PURPOSE = re.compile(r"[-_.](?:instruct|chat|it|base|thinking|\d{4})(?=$|[-_.])", re.IGNORECASE)
_SIZE = re.compile(r"[-_.]?(?:e|a)?\d+(?:\.\d+)?[bm](?=$|[-_.])", re.IGNORECASE)


class PublishedKind(StrEnum):
    """The kind of a repository, by its name."""

    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"
    RDCHAT = "rdchat"
    MODEL = "model"

    @property
    def words(self) -> str:
        """Its name for people."""
        return {"eagle3": "EAGLE-3", "dflash": "DFlash", "dspark": "DSpark", "rdchat": "Recurrent"}.get(
            self.value, "Smaller model"
        )


_NAMED = {
    PublishedKind.EAGLE3: re.compile(r"eagle[-_ ]?3", re.IGNORECASE),
    PublishedKind.DFLASH: re.compile(r"d-?flash", re.IGNORECASE),
    PublishedKind.DSPARK: re.compile(r"d-?spark", re.IGNORECASE),
    PublishedKind.RDCHAT: re.compile(r"rdchat|redrafter|recurrent-?draft", re.IGNORECASE),
}
_SEARCHES = {
    "eagle3": PublishedKind.EAGLE3,
    "eagle-3": PublishedKind.EAGLE3,
    "dflash": PublishedKind.DFLASH,
    "dspark": PublishedKind.DSPARK,
    "rdchat": PublishedKind.RDCHAT,
}


@dataclass(frozen=True, slots=True)
class WantedModel:
    """The model that needs a drafter.

    Attributes:
        name: Its hub id, or its folder's name.
        folder: Of its files; None where only the name is known, and the hub's cache may have it.
    """

    name: str
    folder: Path | None = None

    @property
    def place(self) -> Path | None:
        """Where its files are; None where they are not here."""
        return self.folder or snapshot_of(self.name)

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights as they are stored; 0 where that is not known."""
        try:
            return sum(path.stat().st_size for path in self.place.glob("model*.safetensors")) if self.place else 0
        except OSError:
            return 0


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """A repository that may draft for a model.

    Attributes:
        repository: The hub id.
        kind: By its name.
        downloads: Of the last month.
        licence: As its authors name it; empty where they do not.
        size: Bytes that would be fetched; None before that was asked.
        figures: Of its card, as its publisher gives them.
        same_tokenizer: Whether a smaller model's tokenizer is the same file as the model's.
        problem: Why it cannot be used, a sentence; empty where nothing stands against it.
        gated: Whether its authors give access on its page only.
    """

    repository: str
    kind: PublishedKind
    downloads: int
    licence: str = ""
    size: int | None = None
    figures: tuple[CardFigure, ...] = ()
    same_tokenizer: bool = False
    problem: str = ""
    gated: bool = False

    @property
    def is_model(self) -> bool:
        """Whether it is a smaller model and no drafter head."""
        return self.kind is PublishedKind.MODEL


def base_name(name: str) -> str:
    """Return a model's name without its publisher, precision and format: `Qwen3-4B` of `org/Qwen3-4B-4bit`."""
    base = name.rsplit("/", 1)[-1]
    while (shorter := _TAIL.sub("", base)) != base:
        base = shorter
    return base


def family_name(name: str) -> str:
    """Return the part of a model's name before its size: `Qwen3` of `Qwen3-4B`; empty where it names no size."""
    base = base_name(name)
    size = _SIZE.search(base)
    return base[: size.start()] if size else ""


def find_published(api: HubApi, model: WantedModel) -> Iterator[tuple[FoundDrafter, ...]]:
    """Yield the drafters found by name, then again as each one's size and figures are known.

    Args:
        api: The hub.
        model: What is to be drafted for.

    Raises:
        NetworkError: If the hub cannot be asked, or refuses.
    """
    found = _heads(api, model)
    found += _smaller_models(api, model, {each.repository for each in found})
    yield tuple(found)
    digests = _digests(model.place)
    for place, each in enumerate(found):
        found[place] = _looked_at(api, each, digests)
        yield tuple(found)


def _heads(api: HubApi, model: WantedModel) -> list[FoundDrafter]:
    """Return the heads that name the model. The hub is asked for one word each: how it joins several is its secret."""
    base = _PURPOSE.sub("", base_name(model.name))
    found: dict[str, FoundDrafter] = {}
    for words, kind in _SEARCHES.items():
        for result in api.search(words, limit=_ASKED, mlx_only=False):
            name = result.repository.rsplit("/", 1)[-1]
            if _NAMED[kind].search(name) and _names(name, base) and result.repository != model.name:
                found.setdefault(result.repository, _published(result, kind))
    return sorted(found.values(), key=lambda each: -each.downloads)[:_MOST_HEADS]


def _names(name: str, base: str) -> bool:
    """Tell whether a repository's name holds a model's, and not that of a larger one: `Qwen3-4B`, not `Qwen3-4B0`."""
    words = r"[-_.]?".join(re.escape(word) for word in re.split(r"[-_.]", base) if word)
    return re.search(rf"(?<![a-z0-9]){words}(?![a-z0-9])", name, re.IGNORECASE) is not None


def _smaller_models(api: HubApi, model: WantedModel, known: set[str]) -> list[FoundDrafter]:
    family, most = family_name(model.name), _SMALLER * model.weight_bytes
    if not family or not most:
        return []
    results = [
        result
        for result in api.search(family, limit=_ASKED)
        if result.weight_bytes
        and result.weight_bytes <= most
        and family_name(result.repository).casefold() == family.casefold()
        and result.repository not in known
        and not any(pattern.search(result.repository) for pattern in _NAMED.values())
    ]
    return [_published(result, PublishedKind.MODEL) for result in results[:_MOST_MODELS]]


def _published(result: FoundModel, kind: PublishedKind) -> FoundDrafter:
    return FoundDrafter(result.repository, kind, result.downloads, result.licence, gated=result.gated)


def _looked_at(api: HubApi, found: FoundDrafter, digests: set[str]) -> FoundDrafter:
    """Return it with its size and figures from its files and card; without those that the hub does not give."""
    size, same, problem, figures = None, False, "", tuple[CardFigure, ...]()
    try:
        files = api.files(found.repository)
        size, same = files.size, any(_is_tokenizer(file) and file.digest in digests for file in files.files)
        if found.kind is not PublishedKind.MODEL:
            with suppress(NetworkError):  # figures are no part of it
                figures = figures_in(api.card(found.repository, files.commit))
    except HubError as error:
        problem = error.message
    return replace(found, size=size, figures=figures, same_tokenizer=same, problem=problem)


def _is_tokenizer(file: HubFile) -> bool:
    return file.name == _TOKENIZER


def _digests(folder: Path | None) -> set[str]:
    """Return both checksums by which the hub may know a tokenizer: git's of a small file, a large one's sha256."""
    try:
        data = (folder / _TOKENIZER).read_bytes() if folder else b""
    except OSError:
        return set()
    git = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    git.update(data)
    return {git.hexdigest(), hashlib.sha256(data).hexdigest()} if data else set()
