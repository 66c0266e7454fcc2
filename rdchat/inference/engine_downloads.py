"""The child process that downloads, with what makes drafters and towers from downloaded files."""

from pathlib import Path

from rdchat.hub import RepositoryFiles
from rdchat.hub.downloads.download_process import main as serve_downloads


def main() -> int:
    """Serve the app's requests until it ends; return the exit status."""
    return serve_downloads(_make_drafter)


def _make_drafter(files: RepositoryFiles, folder: Path) -> Path:
    from rdchat.inference.library.original_source import make_part  # noqa: PLC0415  NumPy: other downloads need none

    return make_part(files, folder)
