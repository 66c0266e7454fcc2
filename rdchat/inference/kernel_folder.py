"""Keeps the kernels that MLX compiles for the CPU in a folder that no other user can write to.

MLX runs `mlx/VERSION/cpu/libKERNEL.so` of the folder for temporary files if it is there, whoever wrote it. That folder
is often one that all users share, and the names can be known beforehand.
"""

import logging
import os
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rdchat import paths
from rdchat.errors import StorageError
from rdchat.files.privacy import is_ours, is_private, private_folder

_LOG = logging.getLogger(__name__)
_VARIABLE = "TMPDIR"  # which `std::filesystem::temp_directory_path` looks at first, each time that MLX asks it
_MLX = "mlx"
_ELF_END = struct.Struct("<40xQ10xHH2x")  # of a 64-bit header: place, size and number of what stands last in a file
_BUSY_S = 60.0  # a file as young as that may be one that another process writes just now
_made: "list[tempfile.TemporaryDirectory[str]]" = []  # removed when the process ends


def keep_kernels_private() -> None:
    """Have MLX load and keep its kernels where no other user of the machine can write.

    A `TMPDIR` that is private stays, such as the one that macOS gives each user. Else it is a folder of the cache
    folder, so that kernels last from start to start. Where there can be none, or another user may have put something
    into it, kernels are compiled anew at each start; the log says so. It raises nothing: nearly every module of this
    package imports it, those that need no kernels too.

    Idempotent. Only the variable that C++ reads is set: Python's own temporary files, and children that are started
    with `os.environ`, stay where they were.
    """
    if _made:
        return
    named = Path(os.environ.get(_VARIABLE, ""))
    if named.is_absolute() and is_private(named) and _none_planted(named):
        return
    os.putenv(_VARIABLE, str(_lasting_folder() or _fleeting_folder()))


def _lasting_folder() -> Path | None:
    folder = paths.kernels_dir()
    try:
        private_folder(folder)
        if not _none_planted(folder):
            raise StorageError(f"Another user of this machine may have put kernels into {folder}.", "Delete it.")
        _remove_unfinished(folder / _MLX)
    except StorageError as error:
        _LOG.warning(
            "MLX compiles its kernels anew at each start. %s", error
        )  # on the terminal too: there is no log yet
        return None
    except OSError as error:  # on a disk that is read only, or full
        _LOG.info("MLX compiles its kernels anew at each start: %s", error)
        return None
    return folder


def _fleeting_folder() -> Path:
    _made.append(tempfile.TemporaryDirectory(prefix="rdchat-kernels-", ignore_cleanup_errors=True))
    return Path(_made[-1].name)


def _none_planted(folder: Path) -> bool:
    """Tell whether nobody else made the kernels in a folder, which others could enter in earlier times."""
    try:
        return is_ours((folder / _MLX).lstat())
    except FileNotFoundError:
        return True


def _remove_unfinished(folder: Path) -> None:
    """Remove kernels whose compiler was killed: MLX would fail on each for ever. 10 µs for each kernel."""
    for kernel in folder.glob("*/cpu/lib*.so"):
        with suppress(OSError):
            if time.time() - kernel.stat().st_mtime > _BUSY_S and not _is_whole(kernel):
                kernel.unlink()


def _is_whole(kernel: Path) -> bool:
    with kernel.open("rb") as file:
        header = file.read(_ELF_END.size)
    if header[:4] != b"\x7fELF":
        return header[:4] == b"\xcf\xfa\xed\xfe"  # of macOS; the Mac's own compiler renames a file that is whole
    if len(header) < _ELF_END.size:
        return False
    place, size, number = _ELF_END.unpack(header)
    return bool(place and place + size * number <= kernel.stat().st_size)
