"""The entries of the lists of the Models window. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rdchat.hub import HubModel, Suggestion, suggestions
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.inference.api import Fit, ModelCard, ModelSizes
from rdchat.services.models.fit import Machine, pair_bytes, sizes_read, sizes_suggested
from rdchat.services.models.larger_model import for_machine, suggested_fit
from rdchat.ui.models.memory_section import judge
from rdchat.ui.models.model_texts import (
    DOT,
    compact,
    drafter_name,
    joined,
    row_line,
    share,
    short_name,
    size,
    totals_text,
)
from rdchat.ui.style import MACHINE, percent
from rdchat.wording import counted, size_text

# The mark of a model that does not simply fit, with its colour.
_FIT_MARKS = {Fit.TIGHT: ("Tight", "warning"), Fit.TOO_LARGE: ("Too large", "muted")}


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in the list, or a heading.

    Attributes:
        key: Identifies the model, while its figures change; empty for a heading.
        title: The name, or the heading.
        facts: Below the name, at the left.
        use: Below the name, at the right.
        marks: Texts beside the name, at the right, each with the name of its colour.
        color: Colour of the name.
        tip: Its tooltip.
        item: The model or the computer.
    """

    key: str
    title: str
    facts: str = ""
    use: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    color: str = "text"
    tip: str = ""
    item: Any = None

    @property
    def spoken(self) -> str:
        """All of it, for a screen reader."""
        parts = (self.title, *(mark for mark, _ in self.marks), self.facts.replace(DOT, ", "), self.use)
        return ", ".join(part for part in parts if part)


class SortBy(StrEnum):
    """The order of the list."""

    NAME = "Name"
    SIZE = "Size"
    NEWEST = "Newest"


def entries_of(rows: Iterable[ModelCard], searched: str, sort: SortBy, loaded: ModelCard | None) -> list[Entry]:
    """Return the entries of this computer: models, then drafters, that have all words of a search.

    Args:
        rows: The models and drafters on this machine.
        searched: What is typed into the search field.
        sort: The order of the models, and that of the drafters.
        loaded: The loaded model, which gets a mark.
    """
    words = searched.casefold().split()
    matches = [row for row in rows if all(word in _searched(row) for word in words)]
    matches.sort(
        key=lambda row: (row.is_drafter, _order(row, sort), short_name(row.name).casefold(), row.name.casefold())
    )
    models = [row.name for row in matches if not row.is_drafter]
    entries: list[Entry] = []
    for row in matches:
        heading = Entry("", "Drafters" if row.is_drafter else "Models")
        if heading not in entries:
            entries.append(heading)
        entry = Entry(
            key_of(row),
            short_name(drafter_name(row, models) if row.is_drafter else row.name),
            row_line(row),
            marks=(("Loaded", "success"),) if row is loaded else (),
            color="warning" if row.problem or row.is_unfinished else "text",
            tip=row.name,
            item=row,
        )
        entries.append(entry)
    return entries


def downloads_entry(listed: Sequence[Download]) -> Entry:
    """Return the entry of all downloads: how many there are, and how much of those that run is here."""
    going = [each for each in listed if not each.state.has_ended]
    failed = any(each.state is DownloadState.FAILED for each in listed)
    mark = (percent(share(*going) or 0.0), "muted") if going else ("Stopped", "danger")
    facts = totals_text(going) or counted(len(listed), "download")
    return Entry("downloads", "Downloads", facts, marks=(mark,) if going or failed else ())


def key_of(row: ModelCard) -> str:
    """Return a key that stays the same while the row's figures change."""
    return f"{'download' if row.is_unfinished else 'model'} {row.path}"


def _searched(row: ModelCard) -> str:
    """Return the text in which a search looks for its words."""
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.origin}".casefold()


def _order(row: ModelCard, sort: SortBy) -> float:
    if sort is SortBy.SIZE:
        return -row.disk_bytes
    if sort is SortBy.NEWEST:
        return -row.changed
    return 0.0


def results_listed(models: Sequence[HubModel], machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return an entry of the page Find for each model that a search found, in the same order.

    Args:
        models: The models.
        machine: Decides whether they fit; None while its memory is unknown.
        here: Hub ids of the models on this machine.
    """
    entries = []
    for model in models:
        publisher, _, name = model.repository.partition("/")
        facts = joined(publisher, model.quantization, size(model.weight_bytes))
        entry = Entry(model.repository, name, facts, f"{compact(model.downloads)} downloads", item=model)
        entries.append(_with_fit(entry, sizes_read(model), machine, here, gated=model.gated))
    return entries


def newcomer_entries(machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return the suggested models by the memory that they are for, which the page Find lists before a search.

    The group that fits this machine best comes first, and those that are too large come last. What a suggestion is for
    counts only where the machine is unknown: on a CPU a model needs more.
    """
    fitting = for_machine(machine) if machine is not None else ()
    best = fitting[0].memory_gb if fitting else 0

    def rank(each: Suggestion) -> tuple[bool, bool, int]:
        too_large = machine is not None and suggested_fit(each, machine) is Fit.TOO_LARGE
        return too_large, each.memory_gb != best, each.memory_gb

    entries: list[Entry] = []
    for each in sorted(suggestions(), key=rank):
        too_large, is_other, memory = rank(each)
        heading = f"For {memory} GB of memory"
        if too_large:
            heading = f"Too large for {MACHINE}"
        elif machine is not None:
            heading = f"{'Also fits' if is_other else 'Best for'} {MACHINE}"
        if Entry("", heading) not in entries:
            entries.append(Entry("", heading))
        both = size(each.weight_bytes + each.drafter.weight_bytes)
        marks = (("For images", "muted"),) if each.sees else ()
        entry = Entry(each.repository, each.name, f"{both} with its drafter", marks=marks)
        entries.append(_with_fit(entry, sizes_suggested(each), machine, here, gated=False))
    return entries


def _with_fit(
    entry: Entry, sizes: ModelSizes | None, machine: Machine | None, here: frozenset[str], *, gated: bool
) -> Entry:
    """Return the entry of a hub model, whose key is its hub id, with what depends on this machine.

    That is marks for an installed, gated, tight or too large one, its id and verdict as the tooltip, and the memory
    that it needs in place of its downloads if it is too large. It is judged by the whole memory; see `Machine.fit`.
    """
    marks = list(entry.marks)
    use = entry.use
    tip = entry.key
    if entry.key in here:
        marks.append(("Installed", "success"))
    if gated:
        marks.append(("Gated", "muted"))
    if machine is not None and sizes is not None:
        need = machine.need(sizes, pair_bytes(entry.key))
        memory = machine.when_idle.memory
        fit = need.fit(memory.room)
        if fit in _FIT_MARKS:
            marks.append(_FIT_MARKS[fit])
            # Twice the same need: no context is chosen here.
            tip += f"\n{judge(need, need, memory)[0]}"
        if fit is Fit.TOO_LARGE:
            use = f"needs {size_text(need.total_bytes)}"
    return replace(entry, use=use, marks=tuple(marks), tip=tip)
