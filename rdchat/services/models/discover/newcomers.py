"""The list for newcomers: good models by the memory that they need, each with what drafts for it.

It ships as `assets/newcomers/newcomers.json`, which the package has under `newcomers`. Nobody tried these models here;
`scripts/check_newcomers.py` asks the hub about them.
"""

import json
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from importlib import resources
from typing import Any

from rdchat.inference.api.memory_facts import Fit, ModelSizes
from rdchat.services.models.discover.fit import Machine, sizes_of

_ALMOST = 0.97  # a Mac of 16 GB may report a little less


@dataclass(frozen=True, slots=True)
class Source:
    """A web page and the statement on it."""

    url: str
    says: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The hub's answer about a repository."""

    date: str  # when, as 2026-11-22
    problem: str  # why it is not to be had; empty where it is
    licence: str  # as its authors name it
    gated: bool  # whether its authors give access on its page only
    download_bytes: int  # of all files that would be fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedDrafter:
    """The drafter of a suggested model."""

    repository: str  # the hub id
    kind: str  # such as `DFlash`, or `draft model`
    weight_bytes: int | None  # None where it is not known
    size_from: str  # where that figure is from
    sources: tuple[Source, ...]  # where it is named for this model
    checked: Checked | None  # None where the hub was not asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A model for newcomers."""

    memory_gb: int  # of the Macs that it was chosen for, in binary gigabytes, as Macs are sold
    name: str  # for people
    repository: str  # the hub id
    licence: str  # as its sources name it; empty where they do not
    weight_bytes: int
    size_from: str  # where that figure is from
    good_for: str  # what for, a sentence
    why: str  # why it was chosen
    chosen: str  # when, as 2026-11-22
    sources: tuple[Source, ...]  # where it is named
    checked: Checked | None  # None where the hub was not asked
    drafter: SuggestedDrafter

    @property
    def quantization(self) -> str:
        """As a search would name it; all suggestions are quantised."""
        return "8-bit" if self.repository.endswith("8bit") else "4-bit"

    @property
    def sizes(self) -> ModelSizes:
        """The sizes that its need of memory is computed from."""
        return sizes_of(self.weight_bytes, self.quantization)

    def fit(self, machine: Machine) -> Fit | None:
        """Return whether it fits a machine together with its drafter."""
        return machine.fit(self.sizes, self.drafter.weight_bytes or 0)


@cache
def suggestions() -> tuple[Suggestion, ...]:
    """Return the list, those for the least memory first."""
    text = resources.files("rdchat").joinpath("newcomers/newcomers.json").read_text(encoding="utf-8")
    models = json.loads(text)["models"]
    return tuple(
        Suggestion(**_parsed(fields | {"drafter": SuggestedDrafter(**_parsed(fields["drafter"]))})) for fields in models
    )


def for_machine(machine: Machine) -> tuple[Suggestion, ...]:
    """Return the suggestions for the largest size of memory that fit a machine, the best first."""
    fitting = [each for each in suggestions() if each.fit(machine) in {Fit.FITS, Fit.TIGHT} and _is_for(each, machine)]
    best = max((each.memory_gb for each in fitting), default=0)
    return tuple(each for each in fitting if each.memory_gb == best)


def _is_for(suggestion: Suggestion, machine: Machine) -> bool:
    return suggestion.memory_gb * 2**30 * _ALMOST <= machine.memory.total_bytes or suggestion.memory_gb == 8


def _parsed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a model or a drafter; in the file sizes are in gigabytes."""
    size, checked = fields["weights_gb"], fields["checked"]
    return {name: value for name, value in fields.items() if name != "weights_gb"} | {
        "weight_bytes": None if size is None else round(size * 1e9),
        "sources": tuple(Source(**source) for source in fields["sources"]),
        "checked": None if checked is None else Checked(*(checked[field.name] for field in dataclass_fields(Checked))),
    }
