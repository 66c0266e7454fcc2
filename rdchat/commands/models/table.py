"""Rows of text in columns, and sizes in words."""

from collections.abc import Sequence

from rdchat.errors import one_line


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, each column as wide as its widest cell; what strangers wrote cannot break a line."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def size_words(size: float) -> str:
    """Return bytes as people read them: 93 MB, 4.2 GB."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"
