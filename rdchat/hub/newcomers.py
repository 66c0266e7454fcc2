"""The list for newcomers: good models by the memory that they need, each with the drafter to get with it.

It ships as `assets/newcomers/newcomers.json`, which the package has under `newcomers`. There each entry has its
sources; docs/newcomers.md says how they were checked, and `scripts/check_newcomers.py` asks the hub.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rdchat.files import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suggested:
    """A repository of the list.

    Attributes:
        repository: The hub id.
        licence: As the hub names it.
        weights_gb: Size of its weights, in decimal gigabytes.
    """

    repository: str
    licence: str
    weights_gb: float

    @property
    def weight_bytes(self) -> int:
        return round(self.weights_gb * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedDrafter(_Suggested):
    """The drafter of a suggested model.

    Attributes:
        kind: Its kind of drafter head, such as `DFlash`. No suggested drafter is a smaller model.
    """

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion(_Suggested):
    """A model for newcomers.

    Attributes:
        memory_gb: Memory of the Macs that it was chosen for, in binary gigabytes, as Macs are sold.
        active_share: Share of the weights that are read for each token; 1 for all.
        name: Its name for people.
        family: Its model type in mlx-lm.
        good_for: What it is good for, a sentence.
        why: Why it was chosen, and its drafter.
        drafter: The drafter that comes with it.
        sees: Whether its files have an image encoder of a kind that rdchat reads.
    """

    memory_gb: int
    active_share: float
    name: str
    family: str
    good_for: str
    why: str
    drafter: SuggestedDrafter
    sees: bool


@cache
def stored_suggestions() -> list[dict[str, Any]]:
    """Return the entries of the file, with their sources, those for the least memory first."""
    text = resources.files("rdchat").joinpath("newcomers/newcomers.json").read_text(encoding="utf-8")
    models: list[dict[str, Any]] = json.loads(text)["models"]
    return models


@cache
def suggestions() -> tuple[Suggestion, ...]:
    """Return the list, in the same order."""
    return tuple(plain(Suggestion, fields) for fields in stored_suggestions())


def suggestion_of(repository: str) -> Suggestion | None:
    """Return the suggestion of a model by its hub id; None where it is not on the list."""
    return next((each for each in suggestions() if each.repository == repository), None)


def drafter_for(repository: str) -> SuggestedDrafter | None:
    """Return the drafter that is suggested for a model; None where the model is not on the list."""
    suggestion = suggestion_of(repository)
    return suggestion.drafter if suggestion is not None else None


def downloaded_with(repository: str, revision: str) -> SuggestedDrafter | None:
    """Return the drafter that a model's download brings along; None where it names a revision."""
    return drafter_for(repository) if revision == "main" else None
