"""The table of docs/drafters.md."""

import re
from functools import cache
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs/drafters.md").read_text(encoding="utf-8")


@cache
def rows() -> dict[str, tuple[str, str]]:
    """Return what the table says of each model type: of MTP layers, and of published drafters."""
    table: dict[str, tuple[str, str]] = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            types, layers, drafters = (cell.strip() for cell in line.strip("|").split("|"))
            for name in re.findall(r"`([^`]+)`", types):
                assert name not in table, f"{name} is there twice"
                table[name] = layers, drafters
    return table
