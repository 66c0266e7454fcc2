"""Where MLX keeps the kernels that it compiles for the CPU, from test run to test run."""

import os
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rdchat import host
from rdchat.files.privacy import private_folder

_HEADER = Path("mlx", "backend", "cpu", "compiled_preamble.h")  # as each kernel includes it


def temporary_folder() -> Path:
    """Return the tests' folder for temporary files; in a process whose own folder it is, that folder."""
    usual, name = Path(tempfile.gettempdir()), f"rdchat-tests-{os.getuid()}"
    return private_folder(usual if usual.name == name else usual / name)


def precompile_header(temporary: Path) -> None:
    """Compile the header of MLX's kernels, unless that is done: kernels take g++ a quarter of the time then.

    g++ finds it beside the kernels, before the header itself. It ignores one that another g++ made.
    """
    if host.MACOS or shutil.which("g++") is None:
        return
    compiled = temporary / "mlx" / version("mlx") / "cpu" / _HEADER.with_name(_HEADER.name + ".gch")
    if compiled.exists():
        return
    spec = find_spec("mlx")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    include = Path(next(iter(spec.submodule_search_locations)), "include")
    compiled.parent.mkdir(parents=True, exist_ok=True)
    draft = compiled.with_name(f"{os.getpid()}.gch")
    # with MLX's own options, or g++ would not take it
    options = ["-std=c++17", "-O3", "-Wall", "-fPIC", f"-I{include}", "-x", "c++-header"]
    done = subprocess.run(["g++", *options, include / _HEADER, "-o", draft], capture_output=True, check=False)
    if done.returncode == 0:
        draft.rename(compiled)  # whole: another test run may compile meanwhile
    else:
        draft.unlink(missing_ok=True)
