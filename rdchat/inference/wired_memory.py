"""Wired memory: weights that macOS may not page out. Only where a person asks for it, since it can restart a Mac.

MLX begins with a limit of 0. Nothing else in rdchat changes it, and neither does mlx-lm (`mlx_lm_fixes.unwired`). See
docs/adr/0011-memory.md. Not yet tried on a Mac.
"""

import atexit
import logging
import mmap
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import psutil
from mlx.utils import tree_flatten

from rdchat import host, machine, paths
from rdchat.errors import StorageError
from rdchat.files import atomic_file, make_folder
from rdchat.wording import size_text

_LOG = logging.getLogger(__name__)
# What is left to macOS and other programs: so much, or this share of the memory if that is more.
_LEFT_BYTES = 8 * 2**30
_LEFT_SHARE = 0.35
# Marks in the data folder; each ends with the id of its process.
_MARKS = "wired.*"
# Undoes what `wire_weights` did; empty while nothing is wired.
_wired = ExitStack()
unwire_weights = _wired.close
"""Let the system page out the weights; does nothing where they are not wired."""
# Commands end without unloading the model.
atexit.register(unwire_weights)


def wired_limit(total_bytes: int) -> int:
    """Return the most memory that may be wired on a machine with so much of it."""
    return max(total_bytes - max(_LEFT_BYTES, int(_LEFT_SHARE * total_bytes)), 0)


def wiring() -> str:
    """Return what may be wired, or why nothing is, without a path; empty where there is no Metal."""
    if not host.MACOS:
        return ""
    if not _is_asked():
        return "off"
    if _restarted_while_wired():
        return (
            f"off: this machine restarted while memory was wired; delete {_MARKS} in the data folder to wire it again"
        )
    return f"weights of up to {size_text(_limit_bytes())}"


def wire_weights(network: nn.Module) -> None:
    """Wire the weights of a network that was just loaded, if a person asks for it.

    They fill the limit, so no buffer that comes and goes is ever wired. For the same reason nothing is wired where they
    exceed what may be. A mark stands on the disk until they are unwired.
    """
    if not host.MACOS or not _is_asked():
        return
    arrays = (array for _, array in tree_flatten(network.parameters()))
    # A buffer takes whole pages.
    weights_bytes = sum(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE for array in arrays)
    if _restarted_while_wired() or weights_bytes > _limit_bytes():
        _LOG.warning("Weights of %s are not wired (%s)", size_text(weights_bytes), wiring())
        return
    try:
        mark = _make_mark()
    except StorageError as error:
        _LOG.warning("The weights are not wired: %s", error)
        return
    _wired.callback(mark.unlink, missing_ok=True)
    _wired.callback(mx.set_wired_limit, 0)
    # The limit must not change under work that runs.
    _wired.callback(mx.synchronize)
    mx.set_wired_limit(weights_bytes)


def _restarted_while_wired() -> bool:
    """Return whether a mark is older than the machine's start: it restarted before that process had unwired."""
    started = psutil.boot_time()
    for mark in paths.data_dir().glob(_MARKS):
        # Its process may remove it meanwhile.
        with suppress(FileNotFoundError):
            if mark.stat().st_mtime < started:
                return True
    return False


def _is_asked() -> bool:
    return os.environ.get(host.WIRED) == "1"


def _limit_bytes() -> int:
    """Return the most that may be wired here; MLX refuses more than Metal recommends."""
    return min(wired_limit(machine.total_bytes()), int(mx.device_info()["max_recommended_working_set_size"]))


def _make_mark() -> Path:
    """Write this process's mark to the disk, and remove those of processes that were killed."""
    folder = paths.data_dir()
    make_folder(folder)
    for mark in folder.glob(_MARKS):
        if not psutil.pid_exists(int(mark.suffix[1:])):
            mark.unlink(missing_ok=True)
    own = folder / f"wired.{os.getpid()}"
    with atomic_file(own) as temporary:
        temporary.touch()
    return own
