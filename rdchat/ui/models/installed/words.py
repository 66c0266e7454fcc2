"""Texts and list entries of the Installed page. Pure functions."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from rdchat.chat.settings import Settings
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.memory_facts import Fit, MachineMemory, MemoryNeed, fit_of, gigabytes
from rdchat.inference.api.model_card import ModelCard, Verifies
from rdchat.services.models.installed.removal import RemovalQuestion
from rdchat.ui.look import formatting
from rdchat.ui.look.formatting import file_size
from rdchat.ui.models.model_list import Entry

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict

Row = ModelCard | TrashedModel
_NAMED_FILES = 3
_LOADED_NOW = "It is loaded now, and is unloaded first."
_DRAFTS_NOW = "It is in use: replies are then drafted without it."
_VERIFIES = {
    Verifies.TREES: "Trees and chains",
    Verifies.CHAINS: "Chains",
    Verifies.NOTHING: "None",
}


def short_name(row: Row) -> str:
    """Return a name without its publisher."""
    return row.name.rpartition("/")[2]


def row_line(row: Row) -> str:
    """Return the second line of a row."""
    if isinstance(row, TrashedModel):
        return f"{'Deleted' if row.place is None else 'In the Trash'}  ·  {file_size(row.size)}"
    if row.is_unfinished:
        share = min(row.disk_bytes / row.download_bytes, 0.99)
        return f"Not complete  ·  {formatting.percent(share)} of {file_size(row.download_bytes)}"
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
        return [("On disk", here, "What is here of the download"), ("Version", model.revision, "Branch or commit")]
    on_disk = ("On disk", file_size(model.disk_bytes), "Size of all its files")
    if model.is_drafter:
        facts = [("Kind", drafter_kind(model), "A network that drafts for a model"), on_disk]
    else:
        facts = [
            ("Family", model.family or "Unknown", "The architecture, as mlx-lm calls it"),
            ("Parameters", formatting.parameters(sizes.parameters) if sizes else formatting.NONE, "Number of weights"),
            ("Stored as", model.quantization or formatting.NONE, "Precision of the weights in its files"),
            on_disk,
        ]
    if sizes is not None:
        facts.append(
            ("Context", f"{sizes.context_length:,} tokens", "The most that prompt and reply may have together")
        )
    if model.repository and model.revision != "main":
        facts.append(("Version", model.revision, "Branch or commit in the Hugging Face cache"))
    return facts


def verifies_words(model: ModelCard) -> tuple[str, str]:
    """Return which drafts a model can verify, and why not more."""
    if model.tried is None:
        when = "It is converted first; see the model made from it." if model.is_gguf else ""
        return "Not tried yet", when or "This is tried when the model is loaded."
    reason = f"No trees: {model.tried.reason}." if model.tried.reason else ""
    return _VERIFIES[model.tried.verifies], reason


def judge(need: MemoryNeed, gate: MemoryNeed, memory: MachineMemory) -> tuple[str, str, str]:
    """Return whether a model fits in words, what follows from that, and the name of a colour.

    Args:
        need: With the chosen context and drafter.
        gate: The least that loading it takes; the engine refuses a model by the same arithmetic.
        memory: The machine's.
    """
    room, fit = memory.room, fit_of(need, memory.room)
    words = f"{gigabytes(need.total_bytes)} of {gigabytes(memory.total_bytes)}"
    if fit_of(gate, room) is Fit.TOO_LARGE:
        over = gigabytes(gate.total_bytes - room.limit_bytes)
        return f"Needs {over} more than this machine gives", "", "danger"
    if fit is Fit.TOO_LARGE:
        over = gigabytes(need.total_bytes - room.limit_bytes)
        what = f"with {need.tokens:,} tokens" + (" and the drafter" if need.drafter_bytes else "")
        return f"Loads, but {what} it needs {over} more than this machine gives", "", "warning"
    if fit is Fit.TIGHT:
        return f"Tight: {words}", "It may be slow, and so may other apps. Close some first.", "warning"
    return f"Fits: {words}", "", "success"


def deletion_words(question: RemovalQuestion, in_use: bool, drafts_for: list[str]) -> str:
    """Return what deleting a model or a drafter would do, in sentences."""
    model, size = question.model, file_size(question.freed_bytes)
    if model.is_unfinished:
        return f"What is here of its download, {size}, is deleted for good."
    words = [f"It takes {size} of the disk."]
    if in_use:
        words.append(_DRAFTS_NOW if model.is_drafter else _LOADED_NOW)
    words.append(_where_words(question))
    if question.sharing:
        words.append(f"Files that it shares with version {', '.join(question.sharing)} stay.")
    if drafts_for:
        words.append(f"It drafts for {', '.join(drafts_for)}.")
    if question.with_unfinished:
        words.append("What is here of an unfinished download of it is deleted for good.")
    if question.can_be_undone:
        words.append("It goes to the Trash: you can put it back until you delete it there for good.")
    return " ".join(words)


def _where_words(question: RemovalQuestion) -> str:
    """Return who else may use a model, or how there can be one again."""
    model = question.model
    if question.shared_cache:
        return "It lies in the Hugging Face cache, so other programs may use it too."
    if model.is_drafter:
        return "It was trained on this machine."
    if not model.model:
        return "It is rdchat's default model, and is fetched again when it is wanted."
    return "It was converted on this machine, and can be made again from what it was made from."


def targets_of(model: ModelCard, settings: Settings) -> list[str]:
    """Return the names of the models that a model or a drafter was chosen to draft for."""
    own = {model.model, str(model.path)} - {""}
    chosen = (
        (item.model, item.draft.drafter if model.is_drafter else item.draft.draft_model) for item in settings.drafts
    )
    return [target.rpartition("/")[2] for target, drafts in chosen if drafts in own]


def verdict_words(verdict: "Verdict") -> tuple[str, str]:
    """Return the result of a verification in words, and the name of its colour."""
    problem = f" {verdict.hub_problem} So only what is here was checked." if verdict.hub_problem else ""
    version = f" {verdict.version_words}" if verdict.version_words else ""
    if verdict.is_whole:
        files = formatting.counted(len(verdict.intact), "file")
        sure = "has its checksum" if len(verdict.intact) == 1 else "have their checksums"
        return f"Verified: {files} {sure}.{version}{problem}", "warning" if problem else "success"
    parts = [
        f"{words}: {_listed(names)}"
        for words, names in (
            ("damaged", verdict.damaged),
            ("missing", verdict.missing),
            ("leading out of its folder", verdict.astray),
        )
        if names
    ]
    found = "; ".join(parts) or "the hub knows none of its files"
    return f"Not as the hub has it. {found[:1].upper()}{found[1:]}.{version}{problem}", "danger"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
    return ", ".join(names[:_NAMED_FILES]) + more


class SortBy(StrEnum):
    """The order of the list."""

    NAME = "Name"
    SIZE = "Size"
    NEWEST = "Newest"


def entries_of(rows: Iterable[Row], searched: str, sort: SortBy, loaded: Row | None) -> list[Entry]:
    """Return the rows that have all words of a search: models, then drafters, then deleted ones."""
    words = searched.casefold().split()
    found = [row for row in rows if all(word in _searched(row) for word in words)]
    found.sort(key=lambda row: (_group(row), _order(row, sort), short_name(row).casefold(), row.name.casefold()))
    return [_entry(row, row is loaded) for row in found]


def key_of(row: Row) -> str:
    """Return a key that stays the same while the row's figures change."""
    if isinstance(row, TrashedModel):
        return f"deleted {row.entry}"
    return f"{'download' if row.is_unfinished else 'model'} {row.path}"


def _entry(row: Row, loaded: bool) -> Entry:
    color = "muted" if isinstance(row, TrashedModel) else "warning" if row.problem or row.is_unfinished else "text"
    marks = (("Loaded", "success"),) if loaded else ()
    return Entry(key_of(row), short_name(row), row_line(row), marks=marks, color=color, tip=row.name, item=row)


def _searched(row: Row) -> str:
    if isinstance(row, TrashedModel):
        return f"{row.name} deleted".casefold()
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.place}".casefold()


def _group(row: Row) -> int:
    return 2 if isinstance(row, TrashedModel) else int(row.is_drafter)


def _order(row: Row, sort: SortBy) -> float:
    if sort is SortBy.SIZE:
        return -(row.size if isinstance(row, TrashedModel) else row.disk_bytes)
    if sort is SortBy.NEWEST:
        return -(row.deleted if isinstance(row, TrashedModel) else row.changed)
    return 0.0
