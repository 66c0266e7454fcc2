"""The entries of the lists in the Models window, and their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rdchat.hub.hub_model import HubModel
from rdchat.hub.newcomers import suggestions
from rdchat.inference.api.model_facts import Fit, ModelCard, ModelSizes, gigabytes
from rdchat.services.models.fit import Machine, pair_bytes, sizes_read, sizes_suggested
from rdchat.services.models.newcomers import for_machine
from rdchat.ui.models.memory_section import judge
from rdchat.ui.models.texts import DOT, compact, drafter_name, row_facts, row_line, short_name, size
from rdchat.ui.style import formatting

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
        item: The model.
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
    """Return the rows that have all words of a search: models, then drafters."""
    text = searched.casefold().split()
    matches = [row for row in rows if all(word in _searched(row) for word in text)]
    matches.sort(
        key=lambda row: (row.is_drafter, _order(row, sort), short_name(row.name).casefold(), row.name.casefold())
    )
    models = [row.name for row in matches if not row.is_drafter]
    return [
        Entry(
            key_of(row),
            short_name(drafter_name(row, models) if row.is_drafter else row.name),
            row_line(row),
            marks=(("Loaded", "success"),) if row is loaded else (),
            color="warning" if row.problem or row.is_unfinished else "text",
            tip=row.name,
            item=row,
        )
        for row in matches
    ]


def key_of(row: ModelCard) -> str:
    """Return a key that stays the same while the row's figures change."""
    return f"{'download' if row.is_unfinished else 'model'} {row.path}"


def _searched(row: ModelCard) -> str:
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.origin}".casefold()


def _order(row: ModelCard, sort: SortBy) -> float:
    if sort is SortBy.SIZE:
        return -row.disk_bytes
    if sort is SortBy.NEWEST:
        return -row.changed
    return 0.0


def results_listed(models: Sequence[HubModel], machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return an entry for each model, in the same order.

    Args:
        models: The models.
        machine: Decides whether they fit; None while its memory is unknown.
        here: Hub ids of the models on this machine.
    """
    entries = []
    for model in models:
        use = f"{compact(model.downloads)} downloads"
        sizes = sizes_read(model)
        entry = Entry(model.repository, short_name(model.repository), row_facts(model), use, item=model)
        entries.append(_judged(entry, sizes, machine, here, gated=model.gated))
    return entries


def newcomer_entries(machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return the list for newcomers; the group that fits this machine best comes first."""
    entries: list[Entry] = []
    installed_text = f": fits {formatting.MACHINE}"
    first = for_machine(machine) if machine is not None else ()
    best = first[0].memory_gb if first else 0
    if len(first) < sum(each.memory_gb == best for each in suggestions()):
        installed_text = ""
    for memory in sorted({each.memory_gb for each in suggestions()}, key=lambda memory: (memory != best, memory)):
        entries.append(Entry("", f"For {memory} GB of memory{installed_text if memory == best else ''}"))
        for each in suggestions():
            if each.memory_gb == memory:
                both = size(each.weight_bytes + each.drafter.weight_bytes)
                marks = (("For images", "muted"),) if each.sees else ()
                entry = Entry(each.repository, each.name, f"{both} with its drafter", marks=marks)
                entries.append(_judged(entry, sizes_suggested(each), machine, here, gated=False))
    return entries


def _judged(
    entry: Entry, sizes: ModelSizes | None, machine: Machine | None, here: frozenset[str], *, gated: bool
) -> Entry:
    """Return an entry with its marks, its tooltip, and the memory that it needs if it is too large."""
    drafter_bytes = pair_bytes(entry.key)
    fit = machine.fit(sizes, drafter_bytes) if machine is not None else None
    marks = list(entry.marks)
    use = entry.use
    tip = entry.key
    if entry.key in here:
        marks.append(("Installed", "success"))
    if gated:
        marks.append(("Gated", "muted"))
    if fit in _FIT_MARKS and machine is not None and sizes is not None:
        marks.append(_FIT_MARKS[fit])
        need = machine.need(sizes, drafter_bytes)
        tip += f"\n{judge(need, need, machine.idle.memory)[0]}"
        if fit is Fit.TOO_LARGE:
            use = f"needs {gigabytes(need.total_bytes)} in {formatting.dtype_text(need.precision)}"
    return replace(entry, use=use, marks=tuple(marks), tip=tip)
