"""The list for newcomers: good models by the memory that they need, each with what drafts for it.

It ships as `assets/newcomers/newcomers.json`, which the package has under `newcomers`. Nobody tried these models here;
`scripts/check_newcomers.py` asks the hub about them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rdchat.inference.api.memory_facts import Fit, ModelSizes
from rdchat.services.models.discover.fit import Machine, sizes_of

_ALMOST = 0.97  # a Mac of 16 GB may tell of a little less


@dataclass(frozen=True, slots=True)
class Source:
    """Where something is written: an address, and what it says there."""

    url: str
    says: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What the hub said of a repository.

    Attributes:
        date: When, as 2026-11-22.
        problem: Why it is not to be had; empty where it is.
        licence: As its authors name it.
        gated: Whether its authors give access on its page only.
        download_bytes: Of all files that would be fetched.
    """

    date: str
    problem: str
    licence: str
    gated: bool
    download_bytes: int


@dataclass(frozen=True, slots=True)
class SuggestedDrafter:
    """What drafts for a suggested model.

    Attributes:
        repository: The hub id.
        kind: Such as `DFlash`, or `draft model`.
        weight_bytes: Of its weights; None where nobody knows.
        size_from: Where that figure is from.
        sources: Where it is named for this model.
        checked: What the hub said of it; None where it was not asked.
    """

    repository: str
    kind: str
    weight_bytes: int | None
    size_from: str
    sources: tuple[Source, ...]
    checked: Checked | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A model for newcomers.

    Attributes:
        memory_gb: Of the Macs that it was chosen for, in binary gigabytes, as Macs are sold.
        name: For people.
        repository: The hub id.
        licence: As its sources name it; empty where they do not.
        weight_bytes: Of its weights.
        size_from: Where that figure is from.
        good_for: What for, a sentence.
        why: Why it was chosen.
        chosen: When, as 2026-11-22.
        sources: Where it is named.
        checked: What the hub said of it; None where it was not asked.
        drafter: What drafts for it.
    """

    memory_gb: int
    name: str
    repository: str
    licence: str
    weight_bytes: int
    size_from: str
    good_for: str
    why: str
    chosen: str
    sources: tuple[Source, ...]
    checked: Checked | None
    drafter: SuggestedDrafter

    @property
    def quantization(self) -> str:
        """As a search would name it; all suggestions are quantised."""
        return "8-bit" if self.repository.endswith("8bit") else "4-bit"

    @property
    def sizes(self) -> ModelSizes:
        """What its need of memory is reckoned from."""
        return sizes_of(self.weight_bytes, self.quantization)

    def fit(self, machine: Machine) -> Fit | None:
        """Return whether it fits a machine together with its drafter."""
        return machine.fit(self.sizes, self.drafter.weight_bytes or 0)


@cache
def suggestions() -> tuple[Suggestion, ...]:
    """Return the list, those for the least memory first."""
    text = resources.files("rdchat").joinpath("newcomers/newcomers.json").read_text(encoding="utf-8")
    return tuple(_suggestion(fields) for fields in json.loads(text)["models"])


def for_machine(machine: Machine) -> tuple[Suggestion, ...]:
    """Return what was chosen for a machine of this memory and fits it, the first choice first.

    Where nothing of that does, it is what was chosen for the next smaller machines.
    """
    fitting = [each for each in suggestions() if each.fit(machine) in {Fit.FITS, Fit.TIGHT} and _is_for(each, machine)]
    best = max((each.memory_gb for each in fitting), default=0)
    return tuple(each for each in fitting if each.memory_gb == best)


def _is_for(suggestion: Suggestion, machine: Machine) -> bool:
    return suggestion.memory_gb * 2**30 * _ALMOST <= machine.memory.total_bytes or suggestion.memory_gb == 8


def _suggestion(fields: dict[str, Any]) -> Suggestion:
    drafter = fields["drafter"]
    return Suggestion(
        memory_gb=fields["memory_gb"],
        name=fields["name"],
        repository=fields["repository"],
        licence=fields["licence"],
        weight_bytes=round(fields["weights_gb"] * 1e9),
        size_from=fields["size_from"],
        good_for=fields["good_for"],
        why=fields["why"],
        chosen=fields["chosen"],
        sources=_sources(fields),
        checked=_checked(fields),
        drafter=SuggestedDrafter(
            repository=drafter["repository"],
            kind=drafter["kind"],
            weight_bytes=None if drafter["weights_gb"] is None else round(drafter["weights_gb"] * 1e9),
            size_from=drafter["size_from"],
            sources=_sources(drafter),
            checked=_checked(drafter),
        ),
    )


def _sources(fields: dict[str, Any]) -> tuple[Source, ...]:
    return tuple(Source(source["url"], source["says"]) for source in fields["sources"])


def _checked(fields: dict[str, Any]) -> Checked | None:
    checked = fields["checked"]
    if checked is None:
        return None
    return Checked(checked["date"], checked["problem"], checked["licence"], checked["gated"], checked["download_bytes"])
