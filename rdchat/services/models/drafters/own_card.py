"""What the card of a drafter that was trained with rdchat says of how it drafts."""

import re
from pathlib import Path

_CARD = "card.md"
_MOST_BYTES = 200_000
_ROW = re.compile(r"\| (W\d+ L\d+(?: \+ lookup)?) \| \d+ \| (\d+\.\d+) \|")


def figures_of(folder: Path) -> dict[str, float]:
    """Return tokens per call of the model by setup, such as `W4 L5`; nothing where the card says nothing, or is none.

    They were measured at the end of the training, on questions that were kept out of it.
    """
    try:
        with (folder / _CARD).open(encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return {}
    return {row[1]: float(row[2]) for row in _ROW.finditer(text)}
