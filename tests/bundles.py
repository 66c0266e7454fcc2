"""Stands in for a double-clickable app's program on Linux: it runs the entry point whatever its arguments are."""

import sys
from pathlib import Path


def write_stub(folder: Path) -> Path:
    """Make `rdchat.app/Contents/MacOS/rdchat` in a folder: a program that hands its arguments to rdchat."""
    stub = folder / "rdchat.app" / "Contents" / "MacOS" / "rdchat"
    stub.parent.mkdir(parents=True)
    stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rdchat "$@"\n')
    stub.chmod(0o755)
    return stub
