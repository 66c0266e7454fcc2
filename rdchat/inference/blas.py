"""Prepares this process for MLX; every package that imports MLX imports this module first.

It loads a fast BLAS, makes float32 products exact, and keeps compiled kernels where no other user can write: MLX runs
`mlx/VERSION/cpu/libKERNEL.so` in the folder for temporary files if it exists, whoever wrote it. All users often share
that folder, and the file names are predictable. On Linux they are in a folder for processors like this one: a home may
move between machines.
"""

import logging
import os
import shutil
import struct
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path

from rdchat import host, paths
from rdchat.errors import StorageError
from rdchat.files import is_ours, is_private, private_folder
from rdchat.inference import processor

_LOG = logging.getLogger(__name__)
# `std::filesystem::temp_directory_path` reads it first, each time that MLX calls it.
_VARIABLE = "TMPDIR"
_MLX = "mlx"
_KERNELS = "*/cpu/lib*.so"
HEADER = "mlx/backend/cpu/compiled_preamble.h"
"""The header that each kernel includes, in MLX's include folder."""
# In the header of a 64-bit ELF file: offset, entry size and number of entries of the section table, which comes last.
_ELF_END = struct.Struct("<40xQ10xHH2x")
# Another process may still be writing a file younger than this.
_BUSY_S = 60.0
# Holds the temporary folder for kernels, where no other can be used: it is removed when the process ends.
_made: "list[tempfile.TemporaryDirectory[str]]" = []


def keep_kernels_private() -> None:
    """Make MLX load and keep its kernels where no other user of the machine can write.

    A private `TMPDIR`, such as the one that macOS gives each user, stays. Otherwise it is a folder in the cache folder,
    so that kernels are kept between starts. If that is impossible, or another user may have put something into it,
    kernels are compiled at each start, and the log says so. It never raises: nearly every module of this package
    imports it, also those that need no kernels.

    Idempotent. Only the variable that C++ reads is set: Python's own temporary files, and children started with
    `os.environ`, are not affected.
    """
    folder = _keyed(Path(_made[-1].name) if _made else _named_folder() or _cached_folder() or _temporary_folder())
    # Where it cannot be made, there is no room for kernels either.
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        processor.header_for(kernel_header(), HEADER, mlx_headers())
    os.putenv(_VARIABLE, str(folder))


def kernel_folder() -> Path:
    """Return the folder in which MLX keeps its kernels, in one folder for each of its versions."""
    return _keyed(Path(_made[-1].name) if _made else _named_folder() or paths.kernels_dir()) / _MLX


def kernel_header() -> Path:
    """Return the file, beside the kernels, that g++ takes in the place of MLX's header; see `processor.header_for`."""
    return kernel_folder() / version("mlx") / "cpu" / HEADER


def mlx_headers() -> Path:
    """Return MLX's include folder; MLX need not be loaded."""
    return Path(str(distribution("mlx").locate_file("mlx/include")))


def compiled_marker(kind: str) -> Path:
    """Return the marker file of compiled kernels of a kind. It is in their folder, and is deleted with them."""
    return kernel_folder() / f"compiled-{sha256(kind.encode()).hexdigest()[:16]}"


def is_first_use() -> bool:
    """Return whether nothing was compiled on this machine yet."""
    return not any(kernel_folder().glob("compiled-*"))


def compiled_kernels() -> int:
    """Return the number of kernels that are compiled; 0 where a device keeps none as files."""
    return sum(1 for _ in kernel_folder().glob(_KERNELS))


def _named_folder() -> Path | None:
    """Return the folder that `TMPDIR` names, if only this user can and could put kernels there; otherwise None."""
    named = Path(os.environ.get(_VARIABLE, ""))
    return named if named.is_absolute() and is_private(named) and _none_planted(named) else None


def _cached_folder() -> Path | None:
    """Return the folder for kernels in the cache folder; None, and a line in the log, if it cannot be used."""
    folder = paths.kernels_dir()
    try:
        private_folder(folder)
        if not _none_planted(folder):
            raise StorageError(
                f"Another user of this machine may have put kernels into {folder}.", "Delete that folder."
            )
        if not _keyed(folder).exists():
            # Of earlier versions, which kept them for any processor.
            shutil.rmtree(folder / _MLX, ignore_errors=True)
        _remove_unfinished(_keyed(folder) / _MLX)
    except StorageError as error:
        # The warning goes to the terminal too: there is no log yet.
        _LOG.warning("MLX compiles its kernels at each start. %s", error)
        return None
    except OSError as error:
        # The disk is read-only or full.
        _LOG.info("MLX compiles its kernels at each start: %s", error)
        return None
    return folder


def _temporary_folder() -> Path:
    """Return a new private folder that is removed when the process ends."""
    _made.append(tempfile.TemporaryDirectory(prefix="rdchat-kernels-", ignore_cleanup_errors=True))
    return Path(_made[-1].name)


def _none_planted(folder: Path) -> bool:
    """Return whether no other user made the kernels in a folder, which may have been open to others before."""
    try:
        return all(is_ours(each.lstat()) for each in (_keyed(folder), _keyed(folder) / _MLX))
    except FileNotFoundError:
        return True


def _keyed(folder: Path) -> Path:
    """Return the folder in a folder that is for the kernels of this processor; on macOS the same folder."""
    return folder / processor.kernel_key()


def _remove_unfinished(folder: Path) -> None:
    """Remove kernels whose compiler was killed, which MLX could never load. Takes 10 µs for each kernel."""
    for kernel in folder.glob(_KERNELS):
        with suppress(OSError):
            if time.time() - kernel.stat().st_mtime > _BUSY_S and not _is_intact(kernel):
                kernel.unlink()


def _is_intact(kernel: Path) -> bool:
    """Return whether a file is a complete library: the table at its end is there."""
    with kernel.open("rb") as file:
        header = file.read(_ELF_END.size)
    if header[:4] != b"\x7fELF":
        # macOS: its compiler renames the file when it is complete.
        return header[:4] == b"\xcf\xfa\xed\xfe"
    if len(header) < _ELF_END.size:
        return False
    offset, size, number = _ELF_END.unpack(header)
    return bool(offset and offset + size * number <= kernel.stat().st_size)


keep_kernels_private()
processor.tell_core(kernel_folder().parent)
host.prefer_fast_blas()
host.switch_tf32_off()
