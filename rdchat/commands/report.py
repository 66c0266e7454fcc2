"""`rdchat report`: measures this machine and its models into one file to send."""

import argparse
import json
import sys
import zipfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from time import monotonic
from typing import Any

from rdchat.commands import doctor
from rdchat.commands.interrupt import INTERRUPTED, ctrl_c_calls
from rdchat.commands.progress import ProgressLine
from rdchat.errors import RdchatError
from rdchat.files.file_errors import file_error
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.requests import require

_PRIVATE = ("blas_library",)  # and everything that is a path
_LEAST_MINUTES = 0.1


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `report` and its options."""
    parser = subparsers.add_parser(
        "report",
        help="measure this machine and its models into one file to send",
        description="Measures what drafting costs and brings on this machine, and writes a page and its figures into "
        "one zip file. It holds no chats, no names and no paths: look into it before you send it.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("--out", metavar="FILE", required=True, help="the zip file to write")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        help="names that `rdchat models list` gives, or paths (default: the default model)",
    )
    parser.add_argument(
        "--drafter",
        action="append",
        default=[],
        metavar="DRAFTER",
        help="measure a drafter too, a name that `rdchat models list` gives or a folder; may be given several times",
    )
    parser.add_argument(
        "--minutes", type=float, default=10, metavar="N", help="about how long it may take; what is left out is listed"
    )
    parser.add_argument("--no-window", action="store_true", help="leave out how smoothly a window draws")


def run(args: argparse.Namespace) -> int:
    """Measure and write the file; the exit status is 0, or 130 after Ctrl-C, which writes what there is."""
    require(args.minutes >= _LEAST_MINUTES, "minutes", args.minutes, f"at least {_LEAST_MINUTES}")
    out = Path(args.out).expanduser()
    _try_to_write(out)
    report = _Report(args.models or [None], args.drafter, args.minutes * 60, window=not args.no_window)
    # what libraries have to say, as mlx-lm of large models, is no part of the report
    with redirect_stdout(sys.stderr), ProgressLine(sys.stderr, verbose=True) as progress, ctrl_c_calls(report.cancel):
        report.measure(progress)
    _write(out, report.found)
    print(f"Written: {out}. It holds no chats, names or paths; open report.html in it to see what it does hold.")
    for what in report.found["left_out"]:
        print(f"Left out: {what}.")
    return INTERRUPTED if report.cancelled else 0


class _Report:
    """Collects the figures of the report, model by model."""

    def __init__(self, models: Sequence[str | None], drafters: Sequence[str], seconds: float, *, window: bool) -> None:
        self._models, self._drafters, self._window = models, drafters, window
        self._end = monotonic() + seconds
        self.cancelled = False
        self.found: dict[str, Any] = {"format": 1, "machine": {}, "window": None, "models": [], "left_out": []}

    def cancel(self) -> None:
        self.cancelled = True

    def measure(self, progress: ProgressLine) -> None:
        progress.show(LoadProgress("Looking at the machine", None))
        machine = doctor.gather().report
        kept = [name for name in machine if not (name.endswith("_path") or name in _PRIVATE)]
        self.found["machine"] = {name: machine[name] for name in kept}
        self._measure_window(progress)
        for number, model in enumerate(self._models):
            if self.cancelled:
                self.found["left_out"].append(f"model {number + 1}: stopped")
                continue
            share = max(self._end - monotonic(), 0) / (len(self._models) - number)
            self._measure_model(model, number + 1, share, progress)

    def _measure_window(self, progress: ProgressLine) -> None:
        if not self._window:
            self.found["left_out"].append("the window: left out as asked")
        elif not self.found["machine"].get("display"):
            self.found["left_out"].append("the window: there is no display")
        else:
            from rdchat.app import application  # noqa: PLC0415  Qt: only where there is a display
            from rdchat.ui.smoothness import measure_smoothness  # noqa: PLC0415

            progress.show(LoadProgress("Watching a window draw", None))
            self.found["window"] = measure_smoothness(application())

    def _measure_model(self, name: str | None, number: int, seconds: float, progress: ProgressLine) -> None:
        from rdchat.inference.machine_report.model_report import ModelReport  # noqa: PLC0415  MLX
        from rdchat.inference.models.loading import load_model  # noqa: PLC0415
        from rdchat.inference.session import ChatSession  # noqa: PLC0415

        try:
            session = ChatSession(load_model(name, on_progress=progress.show))
        except RdchatError:  # its words may hold a path
            self.found["models"].append({"failure": "It did not load."})
            self.found["left_out"].append(f"model {number}: it did not load; rdchat ask --model says why")
            return
        measured = ModelReport(session, seconds, lambda: self.cancelled, self._drafters)
        try:
            for words in measured:
                progress.show(LoadProgress(f"Model {number}: {words}", None))
        finally:
            self.found["models"].append(measured.found)
            self.found["left_out"] += [f"model {number}: {what}" for what in measured.left_out]


def _try_to_write(out: Path) -> None:
    """Check before ten minutes of measuring that the file can be written."""
    existed = out.exists()
    try:
        with out.open("ab"):
            pass
        if not existed:
            out.unlink()
    except OSError as error:
        raise file_error(error, f"The file {out} cannot be written", "Name another.") from error


def _write(out: Path, found: dict[str, Any]) -> None:
    from rdchat.commands.report_page import report_page  # noqa: PLC0415  reads the app's folders when imported

    try:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("report.html", report_page(found))
            file.writestr("report.json", json.dumps(found, indent=1, ensure_ascii=False))
    except OSError as error:
        raise file_error(error, f"The file {out} cannot be written", "Name another.") from error
    out.chmod(0o600)
