"""The list for newcomers: good models by the memory that they need, each with the drafter to get with it.

It ships as `assets/newcomers/newcomers.json`, which the package has under `newcomers`. docs/newcomers.md says how it
was checked; `scripts/check_newcomers.py` asks the hub.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rdchat.files.plain_data import plain


@dataclass(frozen=True, slots=True)
class Source:
    """A web page and the statement on it."""

    url: str
    says: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The hub's answer about a repository.

    Attributes:
        date: The day, as 2026-11-22.
        problem: Why it is not to be had; empty where it is.
        gated: Whether its authors give access on its page only.
    """

    date: str
    problem: str
    gated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedDrafter:
    """The drafter of a suggested model.

    Attributes:
        repository: The hub id.
        kind: Its kind, such as `DFlash`; none is a smaller model.
        licence: As the hub names it.
        size_from: Where that figure is from.
        sources: Where it is named for this model.
        checked: None where the hub was not asked.
    """

    repository: str
    kind: str
    licence: str
    weights_gb: float
    size_from: str
    sources: tuple[Source, ...]
    checked: Checked | None

    @property
    def weight_bytes(self) -> int:
        return round(self.weights_gb * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A model for newcomers.

    Attributes:
        memory_gb: Memory of the Macs that it was chosen for, in binary gigabytes, as Macs are sold.
        name: Its name for people.
        repository: The hub id.
        family: Its model type in mlx-lm.
        licence: As the hub names it.
        size_from: Where that figure is from.
        good_for: What it is good for, a sentence.
        why: Why it was chosen, and its drafter.
        chosen: The day on which its sources were read, as 2026-11-22.
        sources: Where it is named.
        checked: None where the hub was not asked.
    """

    memory_gb: int
    name: str
    repository: str
    family: str
    licence: str
    weights_gb: float
    size_from: str
    good_for: str
    why: str
    chosen: str
    sources: tuple[Source, ...]
    checked: Checked | None
    drafter: SuggestedDrafter

    @property
    def weight_bytes(self) -> int:
        return round(self.weights_gb * 1e9)


@cache
def suggestions() -> tuple[Suggestion, ...]:
    """Return the list, those for the least memory first."""
    text = resources.files("rdchat").joinpath("newcomers/newcomers.json").read_text(encoding="utf-8")
    return tuple(plain(Suggestion, fields) for fields in json.loads(text)["models"])


def suggestion_of(repository: str) -> Suggestion | None:
    """Return the suggestion of a model by its hub id; None where it is not on the list."""
    return next((each for each in suggestions() if each.repository == repository), None)


def drafter_for(repository: str) -> SuggestedDrafter | None:
    """Return the drafter that is suggested for a model; None where the model is not on the list."""
    suggestion = suggestion_of(repository)
    return suggestion.drafter if suggestion is not None else None


def downloaded_with(repository: str, revision: str, gguf: str) -> SuggestedDrafter | None:
    """Return the drafter that a model's download brings along; None where it names a revision or one file."""
    return drafter_for(repository) if revision == "main" and not gguf else None
