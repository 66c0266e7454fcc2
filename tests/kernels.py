"""Where MLX keeps the kernels that it compiles for the CPU, from test run to test run."""

import os
import tempfile
from pathlib import Path

from rdchat.files.privacy import private_folder


def prepared_marker(_kind: str) -> Path:
    """Say that all is compiled, in the place of `blas.compiled_marker`: replies draft from the first one on."""
    return Path(os.devnull)


def temporary_folder() -> Path:
    """Return the tests' folder for temporary files; in a process whose own folder it is, that folder."""
    usual = Path(tempfile.gettempdir())
    name = f"rdchat-tests-{os.getuid()}"
    return private_folder(usual if usual.name == name else usual / name)
