"""Texts of the Discover page. Pure functions."""

from datetime import date

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import GATE_TOKENS, Fit, ModelSizes, gigabytes
from rdchat.services.models.discover.fit import Machine
from rdchat.services.models.discover.newcomers import Checked, SuggestedDrafter, Suggestion
from rdchat.ui.look import formatting

DOT = "  ·  "
_NBSP = "\N{NO-BREAK SPACE}"
_MOST_LEFT_OUT = 30
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


def row_facts(model: FoundModel) -> str:
    """Return the second line of an entry of the search."""
    parts = (split_name(model.repository)[0], model.quantization, size(model.weight_bytes))
    return DOT.join(part for part in parts if part)


def popularity(model: FoundModel) -> str:
    """Return how much a model is used, and when it changed."""
    parts = [f"{model.downloads:,} downloads last month", formatting.counted(model.likes, "like")]
    if when := day(model.changed):
        parts.append(f"changed {when}")
    return DOT.join(part.replace(" ", _NBSP) for part in parts)  # a line breaks between them


def make_words(model: FoundModel) -> str:
    """Return quantisation, family and licence of a model."""
    parts = (model.quantization, model.family, f"Licence: {model.licence}" if model.licence else "No licence named")
    return DOT.join(part for part in parts if part)


def memory_words(sizes: ModelSizes | None, machine: Machine | None, drafter_bytes: int = 0) -> tuple[str, Fit | None]:
    """Return whether a model fits in words with the figures, and as a `Fit`; None if it is unknown."""
    if sizes is None or machine is None:
        return ("The hub does not say how large its weights are." if machine is not None else ""), None
    room, fit = machine.memory.room, machine.fit(sizes, drafter_bytes)
    also = " and its drafter" if drafter_bytes else ""
    needed = f"about {gigabytes(machine.need(sizes, drafter_bytes).total_bytes)}"
    figures = f"{needed} with {GATE_TOKENS:,} tokens of context{also}, of {gigabytes(room.limit_bytes)}"
    if fit is Fit.TOO_LARGE:
        return f"Too large for {formatting.MACHINE}: {figures} that models may take.", fit
    if fit is Fit.TIGHT:
        free = f", {gigabytes(room.free_bytes)} of it free now" if room.free_bytes < room.limit_bytes else ""
        return f"Tight on {formatting.MACHINE}: {figures} that models may take{free}.", fit
    return f"Fits {formatting.MACHINE}: {figures} that models may take.", fit


def suggestion_facts(suggestion: Suggestion) -> str:
    """Return the second line of an entry of the list for newcomers."""
    kind = suggestion.drafter.kind
    return DOT.join((size(suggestion.weight_bytes), f"with a {kind}" + ("" if kind == "draft model" else " drafter")))


def memory_heading(memory_gb: int, here: bool) -> str:
    """Return the heading over the suggestions for a size of memory."""
    return f"For {memory_gb} GB of memory" + (f": fits {formatting.MACHINE}" if here else "")


def check_words(checked: Checked | None, chosen: str) -> str:
    """Return when and how a suggestion was checked."""
    if checked is None:
        return (
            f"Chosen on {day(chosen)} from what is written elsewhere. Not tried, and not yet checked against the hub."
        )
    if checked.problem:
        return f"Checked on {day(checked.date)}: {checked.problem}"
    return f"Chosen on {day(chosen)}, not tried. The hub had it on {day(checked.date)}."


def drafter_words(drafter: SuggestedDrafter) -> str:
    """Return the drafter of a suggestion."""
    known = size(drafter.weight_bytes) or "size not known yet"
    return f"Drafts for it: {drafter.repository} ({drafter.kind}, {known})"


def download_count(number: int) -> str:
    """Return how often a model is downloaded."""
    return f"{compact(number)} downloads"


def left_out_words(names: tuple[str, ...]) -> str:
    """Return which files of a repository are not downloaded; empty for none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
    listed = ", ".join(names[:_MOST_LEFT_OUT])
    return f"Left out, as rdchat reads only data that it knows, never code or pickles: {listed}{more}."
