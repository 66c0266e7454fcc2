"""The entries of the list of installed models: filtered by the search, in the chosen order."""

from collections.abc import Iterable
from enum import StrEnum

from rdchat.hub.trash import TrashedModel
from rdchat.ui.models.installed.words import Row, row_line, short_name
from rdchat.ui.models.model_list import Entry


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
