"""The child process that measures for `rdchat report`: `rdchat --child report`. Each part has a process of its own.

A part is a function that adds to `facts`, and says what it does next by `show`, which reports the facts so far too.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any

from rdchat import host, paths
from rdchat.commands import doctor
from rdchat.files import temporary_folder
from rdchat.inference.api import Dtype, Fit, MemoryNeed
from rdchat.work import Job, error_of, serve

# Facts of `doctor` with paths or names, which stay out of the report.
_PRIVATE = ("blas_library", "models", "advice")


def main() -> int:
    """Answer the parent's request."""
    # Wired memory may restart a Mac.
    os.environ[host.WIRED] = "0"
    return serve({name: partial(_answer, target) for name, target in PARTS.items()}, logs=True)


def _answer(target: str, job: Job[Any], **arguments: Any) -> tuple[dict[str, Any], str]:
    """Return the facts of a part, and the type of the error that ended it, or an empty text."""
    facts: dict[str, Any] = {}
    module, _, name = target.partition(":")
    try:
        part = getattr(import_module(f"rdchat.{module}"), name)
        part(facts, lambda stage: job.report_progress((facts, stage)), **arguments)
    # Whatever goes wrong is what the report is for.
    except Exception as error:
        # It logs unexpected ones.
        error_of(error, target)
        return facts, type(error).__name__
    return facts, ""


def describe_machine(facts: dict[str, Any], _show: object) -> None:
    """Add what `doctor` finds, without paths and names."""
    report = doctor.gather().report
    facts |= {name: fact for name, fact in report.items() if not name.endswith("_path") and name not in _PRIVATE}


def open_window(facts: dict[str, Any], show: Callable[[str], None]) -> None:
    """Open rdchat's window, with no chats, and close it; add how long it took to be seen, and its exit status."""
    if not host.has_display():
        facts["left_out"] = ["there is no display"]
        return
    from PySide6.QtCore import QTimer  # noqa: PLC0415

    from rdchat import app  # noqa: PLC0415  Qt
    from rdchat.ui.window import main_window  # noqa: PLC0415  Qt

    began = monotonic()

    def close(record: logging.LogRecord) -> bool:
        if record.msg == main_window.ON_SCREEN:
            facts["seen_after_s"] = monotonic() - began
            show("The window is open")
            # After a second.
            QTimer.singleShot(1000, app.Application.quit)
        return True

    log = logging.getLogger(main_window.__name__)
    log.setLevel(logging.INFO)
    log.addFilter(close)
    with temporary_folder() as folder:
        os.environ[paths.DATA_VARIABLE] = str(folder)
        facts["status"] = app.main()


def find_largest(facts: dict[str, Any], _show: object) -> None:
    """Add the address of the largest installed model that surely fits into memory, if there is one."""
    from rdchat.inference.device import memory_room, on_gpu  # noqa: PLC0415  MLX
    from rdchat.inference.library.model_library import installed_models  # noqa: PLC0415

    fitting = [
        card
        for card in installed_models()
        if card.sizes and MemoryNeed.for_sizes(card.sizes, Dtype.AUTO, on_gpu()).fit(memory_room()) is Fit.FITS
    ]
    if fitting:
        facts["model"] = max(fitting, key=lambda card: card.disk_bytes).model


PARTS = {
    "machine": "commands.report_child:describe_machine",
    "calls to macOS": "commands.mac_calls:call_each",
    "window": "commands.report_child:open_window",
    "known replies": "inference.benchmark.known_replies:compare_replies",
    "images": "inference.benchmark.tower_times:time_towers",
    "largest model": "commands.report_child:find_largest",
    "model": "inference.benchmark.model_report:measure_model",
}
"""The function of each part, by name."""
