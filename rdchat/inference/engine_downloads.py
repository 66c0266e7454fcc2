"""The child process that downloads (`rdchat --child downloads`): `rdchat.hub` does it, and knows no drafters or towers.

It is given the function that makes these from the files of an original model.
"""

from pathlib import Path

from rdchat.hub import RepositoryFiles
from rdchat.hub.downloads.download_process import main as serve_downloads


def main() -> int:
    """Serve the app's requests until it ends; return the exit status."""
    return serve_downloads(_make_drafter)


def _make_drafter(files: RepositoryFiles, folder: Path) -> Path:
    from rdchat.inference.library.original_source import make_part  # noqa: PLC0415  NumPy: other downloads need none

    return make_part(files, folder)
