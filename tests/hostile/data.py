"""Reads the hostile inputs of `cases/*.json`: what is long is written short there, and made when a case is.

In the place of any value may stand one of these; `expanded` returns what they stand for.

| written | is |
|---|---|
| `{"repeat": X, "times": N}` | a text or a list, N times over |
| `{"join": [X, Y]}` | texts behind one another |
| `{"counted": [HEAD, PART, BETWEEN, END], "times": N}` | PART with each number below N for `#`, and `<X>` as often |
| `{"nested": X, "around": Y, "times": N}` | Y within N of X, in the place of "@" |

Bytes that are no UTF-8 are surrogate escapes.
"""

import json
import re
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "cases"


def read(kind: str) -> Any:
    """Return the content of a file of cases, as it is written."""
    return json.loads((_FOLDER / f"{kind}.json").read_text())


def expanded(value: Any) -> Any:
    """Return a value with all that is written short in full."""
    match value:
        case {"repeat": part, "times": times}:
            return expanded(part) * times
        case {"join": parts}:
            return "".join(map(expanded, parts))
        case {"counted": [head, part, between, end], "times": times}:
            return head + between.join(_numbered(part, number) for number in range(times)) + end
        case {"nested": outer, "around": inner, "times": times}:
            for _ in range(times):
                inner = {key: [inner] if part == ["@"] else part for key, part in outer.items()}
            return inner
        case dict():
            return {key: expanded(each) for key, each in value.items()}
        case list():
            return [expanded(each) for each in value]
    return value


def _numbered(part: str, number: int) -> str:
    repeated = re.sub(r"<([^>]*)>", lambda match: match[1] * number, part) if part.startswith("<") else part
    return repeated.replace("#", str(number))


def as_bytes(text: str) -> bytes:
    """Return the bytes of a text of a case."""
    return text.encode("utf-8", "surrogateescape")
