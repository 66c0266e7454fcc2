"""Reads the figures of speed in the tables of a drafter's card."""

import re
from dataclasses import dataclass

_FIGURE = re.compile(
    r"accept(?:ance|ed)?[ -]*(?:len|tokens)|tokens? per (?:target )?(?:call|step|round|pass)|speed[ -]?up"
    r"|(?<!\w)(?:τ|tau)(?!\w)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,2}(?:\.\d{1,3})?\s*(?:x|\u00d7|times)?", re.IGNORECASE)
_RULE = re.compile(r":?-+:?")
_MARKS = re.compile(r"[*_`$\\]|<[^>]*>|\[([^]]*)\]\([^)]*\)")
_LONGEST = 60  # characters of a name
_MOST = 40  # figures


@dataclass(frozen=True, slots=True)
class CardFigure:
    """A figure of a card in the card's own words: its row, its column, and its value."""

    of: str
    measure: str
    value: str


def figures_in(card: str) -> tuple[CardFigure, ...]:
    """Return the figures of a card's tables, in order, those of a table below one another."""
    found: list[CardFigure] = []
    for header, rows in _tables(card):
        for column, measure in enumerate(header):
            if column and _FIGURE.search(measure):
                found += [
                    CardFigure(_plain(row[0]), measure, _plain(row[column]))
                    for row in rows
                    if len(row) > column and _NUMBER.fullmatch(_plain(row[column]))
                ]
    return tuple(found[:_MOST])


def _tables(card: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return header and rows of each Markdown table; a header without its line of dashes is none."""
    tables: list[tuple[list[str], list[list[str]]]] = []
    before: list[str] | None = None
    inside = False
    for line in card.splitlines():
        cells = _cells(line)
        if cells is None:
            before, inside = None, False
        elif inside:
            tables[-1][1].append(cells)
        elif before is not None and len(cells) == len(before) and all(_RULE.fullmatch(cell) for cell in cells):
            tables.append(([_plain(cell) for cell in before], []))
            inside = True
        else:
            before = cells
    return tables


def _cells(line: str) -> list[str] | None:
    line = line.strip()
    if not line.startswith("|") or line.count("|") < 2:
        return None
    return [cell.strip() for cell in line.removesuffix("|")[1:].split("|")]


def _plain(cell: str) -> str:
    """Return a cell's words without marks, on one line."""
    words = _MARKS.sub(lambda mark: mark[1] or "", cell)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in words).split())[:_LONGEST]
