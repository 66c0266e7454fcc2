"""The list entries of the Discover page: found models, or the list for newcomers under its headings."""

from collections.abc import Sequence

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import Fit
from rdchat.services.models.discover.fit import Machine, sizes_found
from rdchat.services.models.discover.newcomers import Suggestion
from rdchat.ui.models.discover import words
from rdchat.ui.models.model_list import Entry


def found_entries(found: Sequence[FoundModel], machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return an entry for each model, in the same order.

    Args:
        found: The models.
        machine: Decides whether they fit; None while its memory is unknown.
        here: Hub ids of the models on this machine.
    """
    return [
        Entry(
            model.repository,
            words.split_name(model.repository)[1],
            words.row_facts(model),
            words.download_count(model.downloads),
            _marks(machine.fit(sizes_found(model)) if machine else None, model.repository in here, model.gated),
            tip=model.repository,
            item=model,
        )
        for model in found
    ]


def newcomer_entries(
    suggestions: Sequence[Suggestion], first: Sequence[Suggestion], machine: Machine | None, here: frozenset[str]
) -> list[Entry]:
    """Return the list for newcomers; the group that fits this machine best comes first."""
    entries: list[Entry] = []
    best = first[0].memory_gb if first else 0
    for memory in sorted({each.memory_gb for each in suggestions}, key=lambda memory: (memory != best, memory)):
        entries.append(Entry("", words.memory_heading(memory, here=memory == best)))
        for each in suggestions:
            if each.memory_gb == memory:
                gated = each.checked is not None and each.checked.gated
                marks = _marks(each.fit(machine) if machine else None, each.repository in here, gated)
                facts = words.suggestion_facts(each)
                entries.append(Entry(each.repository, each.name, facts, marks=marks, tip=each.repository))
    return entries


def _marks(fit: Fit | None, here: bool, gated: bool) -> tuple[tuple[str, str], ...]:
    marks = [("Here", "success")] if here else []
    if gated:
        marks.append(("Gated", "muted"))
    if fit in words.FIT_MARKS:
        marks.append((words.FIT_MARKS[fit], "warning" if fit is Fit.TIGHT else "muted"))
    return tuple(marks)
