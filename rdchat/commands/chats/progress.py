"""Where a long task stands, on the terminal."""

from collections.abc import Callable

from rdchat.chat.transfer.reports import Progress
from rdchat.commands.progress import ProgressLine
from rdchat.errors import one_line


def shown_progress(line: ProgressLine) -> Callable[[Progress], None]:
    """Return what shows progress in a line."""

    def show(progress: Progress) -> None:
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        line.show_text(f"{one_line(progress.words)}…{percent}", progress.words)

    return show
