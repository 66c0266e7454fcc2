"""Texts and list entries of the Discover page. Pure functions."""

from collections.abc import Sequence
from datetime import date

from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import Fit, ModelSizes, gigabytes
from rdchat.services.models.discover.fit import Machine, sizes_read
from rdchat.services.models.discover.newcomers import Checked, Suggestion
from rdchat.ui.models.model_list import Entry
from rdchat.ui.style import formatting

DOT = "  ·  "
_NBSP = "\N{NO-BREAK SPACE}"
_MAX_LEFT_OUT = 30
FIT_MARKS = {Fit.TIGHT: "Tight", Fit.TOO_LARGE: "Too large"}
FIT_COLORS = {Fit.FITS: "success", Fit.TIGHT: "warning", Fit.TOO_LARGE: "danger"}


def split_name(repository: str) -> tuple[str, str]:
    """Return the publisher and the name of a hub id."""
    publisher, _, name = repository.partition("/")
    return publisher, name


def compact(number: int) -> str:
    """Return `987`, `32 K` or `1.4 M`."""
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1e3:.{1 if number < 9_950 else 0}f} K"
    return f"{number / 1e6:.{1 if number < 9.95e6 else 0}f} M"


def size(count: int | None) -> str:
    """Return `4.61 GB`; empty where it is not known."""
    return formatting.file_size(count) if count else ""


def day(changed: str) -> str:
    """Return `1 Nov 2026` for `2026-11-01`; empty where it is no day."""
    try:
        then = date.fromisoformat(changed)
    except ValueError:
        return ""
    return f"{then.day}{_NBSP}{then:%b}{_NBSP}{then.year}"


def row_facts(model: HubModel) -> str:
    """Return the second line of an entry of the search."""
    parts = (split_name(model.repository)[0], model.quantization, size(model.weight_bytes))
    return DOT.join(part for part in parts if part)


def popularity(model: HubModel) -> str:
    """Return how much a model is used, and when it changed."""
    parts = [f"{model.downloads:,} downloads last month", formatting.counted(model.likes, "like")]
    if when := day(model.changed):
        parts.append(f"changed {when}")
    return DOT.join(part.replace(" ", _NBSP) for part in parts)  # so that lines break between the parts


def make_text(model: HubModel) -> str:
    """Return the quantisation, family and licence of a model."""
    parts = (model.quantization, model.family, f"Licence: {model.licence}" if model.licence else "No licence given")
    return DOT.join(part for part in parts if part)


def memory_text(sizes: ModelSizes | None, machine: Machine | None, drafter_bytes: int = 0) -> tuple[str, Fit | None]:
    """Return whether a model fits this machine, as a sentence with figures and as a `Fit`; None if it is unknown."""
    if sizes is None or machine is None:
        return ("The size of its weights is unknown." if machine is not None else ""), None
    room, fit = machine.memory.total_room, machine.fit(sizes, drafter_bytes)
    need, available = machine.need(sizes, drafter_bytes), gigabytes(room.limit_bytes)
    held = f"{formatting.dtype_text(need.precision)}, {need.tokens:,} tokens of context"
    needs = f"needs about {gigabytes(need.total_bytes)} ({held}{', with its drafter' if drafter_bytes else ''})"
    if fit is Fit.TOO_LARGE and not machine.memory.on_gpu:
        precision, has = formatting.dtype_text(need.precision), gigabytes(machine.memory.total_bytes)
        needed = f"about {gigabytes(need.total_bytes)}"
        return f"Too large: {precision} on a CPU needs {needed}; {formatting.MACHINE} has {has}.", fit
    if fit is Fit.TOO_LARGE:
        return f"Too large for {formatting.MACHINE}: {needs}, but only {available} is available.", fit
    if fit is Fit.TIGHT:
        free = f", and {gigabytes(room.free_bytes)} is free now" if room.free_bytes < room.limit_bytes else ""
        return f"Tight on {formatting.MACHINE}: {needs}, {available} is available{free}.", fit
    return f"Fits {formatting.MACHINE}: {needs}, {available} is available.", fit


def check_text(checked: Checked | None, chosen: str) -> str:
    """Return when and how a suggestion was checked."""
    if checked is None:
        return (
            f"Chosen on {day(chosen)} from published tests. Not tried with rdchat, and not yet found on Hugging Face."
        )
    if checked.problem:
        return f"Checked on {day(checked.date)}: {checked.problem}"
    return f"Chosen on {day(chosen)}. Not tried with rdchat. Last seen on Hugging Face on {day(checked.date)}."


def left_out_text(names: tuple[str, ...]) -> str:
    """Return which files of a repository are not downloaded; empty for none."""
    if not names:
        return ""
    more = f" and {len(names) - _MAX_LEFT_OUT} more" if len(names) > _MAX_LEFT_OUT else ""
    listed = ", ".join(names[:_MAX_LEFT_OUT])
    return f"Not downloaded, as rdchat never reads code or pickles: {listed}{more}."


def results_listed(found: Sequence[HubModel], machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return an entry for each model, in the same order.

    Args:
        found: The models.
        machine: Decides whether they fit; None while its memory is unknown.
        here: Hub ids of the models on this machine.
    """
    return [
        Entry(
            model.repository,
            split_name(model.repository)[1],
            row_facts(model),
            _too_large(sizes_read(model), machine) or f"{compact(model.downloads)} downloads",
            _marks(machine.fit(sizes_read(model)) if machine else None, model.repository in here, model.gated),
            tip=_tip(model.repository, *memory_text(sizes_read(model), machine)),
            item=model,
        )
        for model in found
    ]


def newcomer_entries(
    suggestions: Sequence[Suggestion], first: Sequence[Suggestion], machine: Machine | None, here: frozenset[str]
) -> list[Entry]:
    """Return the list for newcomers; the group that fits this machine best comes first."""
    entries: list[Entry] = []
    installed_text = f": fits {formatting.MACHINE}"
    best = first[0].memory_gb if first else 0
    for memory in sorted({each.memory_gb for each in suggestions}, key=lambda memory: (memory != best, memory)):
        entries.append(Entry("", f"For {memory} GB of memory{installed_text if memory == best else ''}"))
        for each in suggestions:
            if each.memory_gb == memory:
                gated = each.checked is not None and each.checked.gated
                marks = _marks(each.fit(machine) if machine else None, each.repository in here, gated)
                kind = each.drafter.kind if each.drafter.kind == "draft model" else f"{each.drafter.kind} drafter"
                facts = f"{size(each.weight_bytes)}{DOT}with a {kind}"
                drafter_bytes = each.drafter.weight_bytes or 0
                tip = _tip(each.repository, *memory_text(each.sizes, machine, drafter_bytes))
                need = _too_large(each.sizes, machine, drafter_bytes)
                entries.append(Entry(each.repository, each.name, facts, need, marks=marks, tip=tip))
    return entries


def _too_large(sizes: ModelSizes | None, machine: Machine | None, drafter_bytes: int = 0) -> str:
    """Return the memory that a model needs if it is too large, else nothing."""
    if sizes is None or machine is None or machine.fit(sizes, drafter_bytes) is not Fit.TOO_LARGE:
        return ""
    need = machine.need(sizes, drafter_bytes)
    return f"needs {gigabytes(need.total_bytes)} in {formatting.dtype_text(need.precision)}"


def _tip(repository: str, memory: str, fit: Fit | None) -> str:
    """Return the tooltip of an entry: its hub id, and why it does not fit."""
    return f"{repository}\n{memory}" if fit in FIT_MARKS else repository


def _marks(fit: Fit | None, here: bool, gated: bool) -> tuple[tuple[str, str], ...]:
    marks = [("Installed", "success")] if here else []
    if gated:
        marks.append(("Gated", "muted"))
    if fit in FIT_MARKS:
        marks.append((FIT_MARKS[fit], "warning" if fit is Fit.TIGHT else "muted"))
    return tuple(marks)
