"""Compiles the header of MLX's CPU kernels once: each kernel takes g++ a fifth of the time then."""

import subprocess
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from rdchat import host
from rdchat.inference.blas import kernel_folder
from rdchat.inference.verification.device import on_gpu

# As each kernel includes it.
_HEADER = "mlx/backend/cpu/compiled_preamble.h"
# With MLX's own options: g++ ignores a header that was compiled with others. It gets its name when it is complete.
_COMPILE = 'mkdir -p "${0%/*}"; g++ -std=c++17 -O3 -fPIC -x c++-header "-I$1" "$1/$2" -o "$0.$$" && mv "$0.$$" "$0"'


def header_compiled() -> AbstractContextManager[object]:
    """Return a block: while it runs, the header is compiled in a process of its own, unless that was done.

    g++ finds it beside the kernels, before the header itself. It ignores one that another g++ made.
    """
    compiled = kernel_folder() / version("mlx") / "cpu" / f"{_HEADER}.gch"
    if on_gpu() or host.MACOS or compiled.exists():
        return nullcontext()
    command = ["/bin/sh", "-c", _COMPILE, str(compiled), str(Path(mx.__file__).with_name("include")), _HEADER]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  a fixed command
