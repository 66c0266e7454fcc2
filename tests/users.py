"""Other users of the machine, for tests: only root can become one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_USER = 65534  # nobody
BECOME_ANOTHER = f"""
import os
os.setgroups([])
os.setgid({OTHER_USER})
os.setuid({OTHER_USER})
"""
"""Python code: from here on the process is another user's, and cannot import what lies in root's home."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def folder_for_all(mode: int = 0o755) -> Iterator[Path]:
    """Give a folder that every user can come to; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="rdchat-test-", dir="/tmp"))
    folder.chmod(mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def modes(folder: Path) -> dict[str, str]:
    """Return the mode of everything in a folder, itself included, as `600`."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): f"{path.lstat().st_mode & 0o7777:o}" for path in paths}
