"""Which downloads the app shows, kept in a file from one start to the next."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import make_folder, write_json
from rdchat.files.foreign_files import read_json

_MOST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class WantedDownload:
    """A download that has not finished.

    Attributes:
        repository: The hub id.
        revision: The branch, tag or commit that was asked for.
        gguf: The GGUF file that was asked for; empty for the only one, or for an MLX model.
        is_model: Whether it answers by itself; a drafter head does not.
        goes_on: Whether it went on when this was written: the next start goes on with it by itself. One that was
            paused or failed waits for the person.
    """

    repository: str
    revision: str
    gguf: str
    is_model: bool
    goes_on: bool


def read_wanted(path: Path) -> tuple[WantedDownload, ...]:
    """Return what was written; nothing where there is no file, or none that can be read."""
    try:
        return tuple(_parsed(fields) for fields in read_json(path, most=_MOST_BYTES)["downloads"])
    except (RdchatError, OSError, KeyError, TypeError, ValueError):
        return ()


def write_wanted(path: Path, wanted: tuple[WantedDownload, ...]) -> None:
    """Keep what is wanted; where nothing is, there is no file.

    Raises:
        StorageError: If the disk does not take it.
    """
    if not wanted:
        path.unlink(missing_ok=True)
        return
    make_folder(path.parent)
    write_json(path, {"downloads": [asdict(download) for download in wanted]})


def _parsed(fields: Any) -> WantedDownload:
    return WantedDownload(
        str(fields["repository"]),
        str(fields["revision"]),
        str(fields["gguf"]),
        bool(fields["is_model"]),
        bool(fields["goes_on"]),
    )
