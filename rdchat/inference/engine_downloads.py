"""The child process that downloads models (`rdchat --child downloads`).

The work is done in `rdchat.hub`, which knows nothing of drafters and vision towers; so it gets the function that makes
these parts from the files of an original model.
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
