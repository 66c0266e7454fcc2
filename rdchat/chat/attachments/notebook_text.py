"""Reads a Jupyter notebook: its cells and what they showed, without the data of pictures."""

import json
import re
from collections.abc import Iterator
from typing import Any

from rdchat.chat.attachments.html_text import fenced, html_to_text

# Of an output in several formats, Jupyter shows the first of these.
_FORMATS = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PICTURE = re.compile(r"data:image/[^;,\s]{1,40};base64,[A-Za-z0-9+/=]+")


def notebook_text(text: str) -> tuple[str, str]:
    """Return a notebook in Markdown, and a note; one in another format, as it is."""
    try:
        blocks = [block for cell in json.loads(text)["cells"] for block in _blocks_of(cell)]
    # Anything can be wrong in a foreign file.
    except Exception:
        return text, "It was read as JSON: it is damaged, or not in the present format of notebooks."
    has_pictures = '"image/' in text or "data:image/" in text
    return _PICTURE.sub("[picture]", "\n\n".join(blocks)), "Its pictures were left out." if has_pictures else ""


def _blocks_of(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    yield fenced(source.strip("\n")) if cell["cell_type"] == "code" else source
    for output in cell.get("outputs", ()):
        lines = output.get("text") or "\n".join(output.get("traceback", ()))
        data = output.get("data", {"text/plain": lines})
        # Some outputs show nothing.
        kind = next((each for each in (*_FORMATS, *data) if each in data), "")
        if not kind:
            continue
        if kind == "text/html":
            yield html_to_text("".join(data[kind]))
        elif kind.startswith("text/"):
            yield fenced(_COLOUR.sub("", "".join(data[kind])).strip("\n"))
        else:
            yield f"[{kind}]"
