"""Cleans text for the clipboard."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but tab and line feed


def without_controls(text: str) -> str:
    """Return a text without control characters: pasted into a terminal, they could run a model's code."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
