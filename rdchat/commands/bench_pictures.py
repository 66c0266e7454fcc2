"""Pictures of a benchmark on the command line. Qt is imported only where one is asked for, and opens no window."""

from collections.abc import Sequence
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.api.bench_results import BenchRecord
from rdchat.inference.benchmark.picture_data import picture_data


def check_pictures(names: Sequence[str]) -> None:
    """Refuse files that could not be drawn, before anything is measured.

    Raises:
        RdchatError: If a name has another ending than that of a picture, or there is no such folder.
    """
    if not names:
        return
    from rdchat.ui.plots.picture_files import check_picture_name  # noqa: PLC0415  Qt: only for pictures

    for name in names:
        check_picture_name(Path(name))
        if not Path(name).absolute().parent.is_dir():
            raise RdchatError(f"The picture {name} cannot be written: there is no such folder.", "Name another.")


def save_pictures(names: Sequence[str], record: BenchRecord) -> None:
    """Draw a benchmark into each file.

    Raises:
        RdchatError: If one cannot be written.
    """
    if not names or not record.runs:
        return
    from rdchat.ui.plots.picture_files import save_without_window  # noqa: PLC0415  Qt: only for pictures

    save_without_window(picture_data(record.plan, record.runs), [Path(name) for name in names])
