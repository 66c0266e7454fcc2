"""A program that stands in for g++."""

import os
from pathlib import Path

import pytest


def put_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, **variables: str) -> Path:
    """Put a script called g++ first in the PATH, with variables for it; `LOG` names the file `log` in the folder.

    Returns:
        The script's file, in `folder / "bin"`.
    """
    program = folder / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for name, value in {"LOG": str(folder / "log"), **variables}.items():
        monkeypatch.setenv(name, value)
    return program
