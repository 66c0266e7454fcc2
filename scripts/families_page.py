"""Writes the table of the families that see into docs/families.md, and figures of that page where documents have them.

The table is made from `FAMILIES` in the code, as is the number of these families in README.md and docs/limits.md. The
sums of the other two tables, whose rows `make families` prints, are counted. `families_page.py --check` writes nothing,
and fails if a document would change.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from rdchat.inference.vision.families import FAMILIES, Family

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "families.md"
HEAD = "| family | model types | tokens of an image | besides rows |\n|---|---|---|---|\n"
PAGES = (PAGE, ROOT / "README.md", ROOT / "docs" / "limits.md")
# What the code cannot say of a family: its model types, the tokens of an image, and what else the text model needs.
DESCRIBED: Mapping[str, tuple[str, str, str]] = {
    "Qwen": (
        "`qwen3_vl`, `qwen3_5` and later, with experts too",
        "by its size, up to what was chosen",
        "DeepStack (3-VL)",
    ),
    "SmolVLM": ("`smolvlm`, `idefics3`", "64 or so for each tile", ""),
    "Gemma 3": ("`gemma3`", "256", ""),
    "Gemma 4": (
        "`gemma4`: E2B, E4B, 26B, 31B",
        "up to 280, and up to 1,120 with Full",
        "padding as ids (E2B, E4B, where rows do not see each other)",
    ),
    "LFM2-VL": (
        "`lfm2_vl`: LFM2-VL, LFM2.5-VL",
        "64 to 256; a large image has up to 10 tiles of 256 besides, as many as were chosen",
        "the text model is `lfm2`",
    ),
    "Qwen2-VL": ("`qwen2_vl` and its tunes", "by its size, up to what was chosen", ""),
    "Qwen2.5-VL": ("`qwen2_5_vl`; olmOCR, UI-TARS and other tunes of it", "by its size, up to what was chosen", ""),
    "Mistral 3": (
        "`mistral3`: Mistral Small 3.1 to 4, Magistral, Ministral 3; Pixtral 12B (`llava`, `pixtral`)",
        "by its size, up to what was chosen",
        "",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a document is stale")
    check: bool = parser.parse_args().check
    types = rows(PAGE.read_text(encoding="utf-8"), "| family | as written |")
    stale = [path for path in PAGES if renewed(path.read_text(encoding="utf-8"), types) != path.read_text("utf-8")]
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is stale: run scripts/families_page.py' if check else 'is written'}.")
        if not check:
            path.write_text(renewed(path.read_text(encoding="utf-8"), types), encoding="utf-8")
    return 1 if stale and check else 0


def renewed(text: str, types: list[list[str]]) -> str:
    """Return a document with its table of families that see, and with the figures, where it has them.

    Args:
        text: The document.
        types: The rows of the table of model types in docs/families.md.
    """
    text = re.sub(rf"^{re.escape(HEAD)}(?:\|.*\n)*", lambda _: HEAD + table(), text, flags=re.MULTILINE)
    text = re.sub(r"\[\d+ families\](?=\([\w/.]*#models-that-see\))", f"[{len(FAMILIES)} families]", text)
    text = re.sub(r"for each of \d+ model types", f"for each of {len(types)} model types", text)
    text = re.sub(r"^Of \d+ types:.*$", sums_of_types(types), text, flags=re.MULTILINE)
    towers = rows(text, "| tower | as written |")
    return re.sub(r"^Of \d+ cases:.*$", sums_of_towers(towers), text, flags=re.MULTILINE)


def table() -> str:
    """Return the rows of the table of families that see."""
    return "".join(f"| {family.name} | {' | '.join(cells(family))} |\n" for family in FAMILIES)


def cells(family: Family) -> tuple[str, str, str]:
    """Return a family's model types, the tokens of an image, and what the text model gets besides the image's rows."""
    types, tokens, more = DESCRIBED[family.name]
    if family.breaks:
        tokens += "; each row ends in a token of text"
    needs = []
    if family.by_axis:
        needs.append("positions by axis")
    if family.windows_only:
        needs.append("rows of an image see each other, with windows only")
    elif family.blocks:
        needs.append("rows of an image see each other")
    if more:
        needs.append(more)
    return types, tokens, "; ".join(needs) or "none"


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the rows of a page's table, whose first line begins with `head`; none without that table."""
    lines = page.partition(head)[2].splitlines()[2:]
    return [line[1:-1].split("|") for line in takewhile(lambda line: line.startswith("|"), lines)]


def sums_of_types(types: list[list[str]]) -> str:
    """Return the sentence with the sums of the table of model types."""
    found = Counter(row[1].strip() for row in types)
    settings = sum(len(settings_in(cell)) for row in types for cell in row[2:])
    keys = sum(int(number) for row in types for number in re.findall(r"(\d+) keys left out", row[2]))
    return (
        f"Of {len(types)} types: equal as written {found['equal']}, named {found['named']}, refused {found['refused']},"
        f" not run {found['not run']}; {settings} other settings, {keys:,} keys left out."
    )


def sums_of_towers(towers: list[list[str]]) -> str:
    """Return the sentence with the sums of the table of towers."""
    equal, named, refused = (sum(len(settings_in(row[place])) for row in towers) for place in (2, 3, 4))
    return f"Of {equal + named + refused} cases: equal {equal}, named {named}, refused {refused}."


def settings_in(cell: str) -> list[str]:
    """Return the settings that a cell lists, without the keys left out."""
    return [setting for setting in cell.strip().split(", ") if setting and "keys left out" not in setting]


if __name__ == "__main__":
    sys.exit(main())
