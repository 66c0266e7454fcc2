"""Texts and list entries of the Installed page. Pure functions."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from rdchat.inference.api.model_facts import DraftKind, Fit, MachineMemory, MemoryNeed, ModelCard, fit_of, gigabytes
from rdchat.ui.models.model_list import Entry
from rdchat.ui.style import formatting
from rdchat.ui.style.formatting import file_size

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict

_NAMED_FILES = 3
_SUPPORT = {
    DraftKind.TREE: "Fully supported",
    DraftKind.CHAIN: "Supported, one draft per step",
    DraftKind.NONE: "Not supported",
}


def short_name(name: str) -> str:
    """Return a name without its publisher."""
    return name.rpartition("/")[2]


def drafter_name(drafter: ModelCard, models: Iterable[str]) -> str:
    """Return a drafter's name; if a model has the same one, say that it is the drafter."""
    name = short_name(drafter.name).casefold()
    short = map(short_name, models)
    return next((f"Drafter for {model}" for model in short if model.casefold() == name), drafter.name)


def row_line(row: ModelCard) -> str:
    """Return the second line of a row."""
    if row.is_unfinished:
        share = min(row.disk_bytes / row.download_bytes, 0.99)
        return f"Unfinished  ·  {formatting.percent(share)} of {file_size(row.download_bytes)}"
    parts = [file_size(row.disk_bytes)]
    if row.is_drafter:
        parts.append(drafter_kind(row))
    if row.problem:
        return "  ·  ".join([*parts, "cannot be used" if row.is_drafter else "cannot be loaded"])
    if row.sizes is not None:
        parts.append(formatting.parameters(row.sizes.parameters))
    if row.quantization:
        parts.append(row.quantization)
    if row.repository and row.revision != "main":
        parts.append(f"version {row.revision[:12]}")
    return "  ·  ".join(parts)


def drafter_kind(model: ModelCard) -> str:
    """Return what kind of drafter one is: "EAGLE-3 drafter"."""
    return f"{model.family} drafter" if model.family else "Drafter"


def facts_of(model: ModelCard) -> list[tuple[str, str, str]]:
    """Return the facts of a model, each with name, value and explanation."""
    sizes = model.sizes
    if model.is_unfinished:
        here = f"{file_size(model.disk_bytes)} of {file_size(model.download_bytes)}"
        return [("On disk", here, "Downloaded so far"), ("Version", model.revision, "Branch or commit")]
    on_disk = ("On disk", file_size(model.disk_bytes), "Size of all its files")
    if model.is_drafter:
        facts = [("Kind", drafter_kind(model), "A network that drafts for a model"), on_disk]
    else:
        facts = [
            ("Family", model.family or "Unknown", "The architecture, by its name in mlx-lm"),
            ("Parameters", formatting.parameters(sizes.parameters) if sizes else formatting.NONE, "Number of weights"),
            ("Stored as", model.quantization or formatting.NONE, "Precision of the weights in the files"),
            on_disk,
        ]
    if sizes is not None:
        facts.append(("Context", f"{sizes.context_length:,} tokens", "Limit for prompt and reply together"))
    if model.repository and model.revision != "main":
        facts.append(("Version", model.revision, "Branch or commit in the Hugging Face cache"))
    return facts


def support_text(model: ModelCard) -> tuple[str, str]:
    """Return how far drafting works with a model, and what limits it."""
    if model.tried is None:
        when = "rdchat converts this file first. See the converted model." if model.is_gguf else ""
        return "Tested when loaded", when or "rdchat tests drafting when it loads the model."
    reason = f"Reason: {model.tried.reason}." if model.tried.reason else ""
    return _SUPPORT[model.tried.kind], reason


def judge(need: MemoryNeed, gate: MemoryNeed, memory: MachineMemory) -> tuple[str, str, str]:
    """Return whether a model fits in words, advice, and the name of a colour.

    Args:
        need: With the chosen context and the drafter.
        gate: The least that loading it takes; the engine refuses a model by the same arithmetic.
        memory: The machine's.
    """
    room, fit = memory.room, fit_of(need, memory.room)
    words = f"{gigabytes(need.total_bytes)} of {gigabytes(memory.total_bytes)}"
    if fit_of(gate, room) is Fit.TOO_LARGE:
        over = gigabytes(gate.total_bytes - room.limit_bytes)
        return f"Too large: needs {over} more than is available", "", "danger"
    if fit is Fit.TOO_LARGE:
        over = gigabytes(need.total_bytes - room.limit_bytes)
        what = f"with {need.tokens:,} tokens" + (" and the drafter" if need.drafter_bytes else "")
        return f"Loads, but {what} it needs {over} more than is available", "", "warning"
    if fit is Fit.TIGHT:
        return f"Tight: {words}", "It may be slow. Close other apps first.", "warning"
    return f"Fits: {words}", "", "success"


def verdict_text(verdict: "Verdict") -> tuple[str, str]:
    """Return the result of a verification in words, and the name of its colour."""
    problem = f" {verdict.hub_problem}" if verdict.hub_problem else ""
    version = f" {verdict.version_text}" if verdict.version_text else ""
    if verdict.is_whole:
        files = formatting.counted(len(verdict.intact), "file")
        found = "The local files are intact." if problem else f"Verified: {files} intact."
        return f"{found}{version}{problem}", "warning" if problem else "success"
    parts = [
        f"{words}: {_listed(names)}"
        for words, names in (
            ("damaged", verdict.damaged),
            ("missing", verdict.missing),
            ("outside its folder", verdict.astray),
        )
        if names
    ]
    found = "; ".join(parts) or "Hugging Face has none of its files"
    return f"Not intact. {found[:1].upper()}{found[1:]}.{version}{problem}", "danger"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
    return ", ".join(names[:_NAMED_FILES]) + more


class SortBy(StrEnum):
    """The order of the list."""

    NAME = "Name"
    SIZE = "Size"
    NEWEST = "Newest"


def entries_of(rows: Iterable[ModelCard], searched: str, sort: SortBy, loaded: ModelCard | None) -> list[Entry]:
    """Return the rows that have all words of a search: models, then drafters."""
    words = searched.casefold().split()
    found = [row for row in rows if all(word in _searched(row) for word in words)]
    found.sort(key=lambda row: (_group(row), _order(row, sort), short_name(row.name).casefold(), row.name.casefold()))
    models = [row.name for row in found if not row.is_drafter]
    return [_entry(row, _title(row, models), row is loaded) for row in found]


def key_of(row: ModelCard) -> str:
    """Return a key that stays the same while the row's figures change."""
    return f"{'download' if row.is_unfinished else 'model'} {row.path}"


def _title(row: ModelCard, models: Iterable[str]) -> str:
    if row.is_drafter:
        return drafter_name(row, models).rpartition("/")[2]
    return short_name(row.name)


def _entry(row: ModelCard, title: str, loaded: bool) -> Entry:
    color = "warning" if row.problem or row.is_unfinished else "text"
    marks = (("Loaded", "success"),) if loaded else ()
    return Entry(key_of(row), title, row_line(row), marks=marks, color=color, tip=row.name, item=row)


def _searched(row: ModelCard) -> str:
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.origin}".casefold()


def _group(row: ModelCard) -> int:
    return int(row.is_drafter)


def _order(row: ModelCard, sort: SortBy) -> float:
    if sort is SortBy.SIZE:
        return -row.disk_bytes
    if sort is SortBy.NEWEST:
        return -row.changed
    return 0.0
