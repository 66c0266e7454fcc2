"""`rdchat report`: measures this machine and its models, and writes one file to send."""

import argparse
import json
import sys
import zipfile
from contextlib import redirect_stdout
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rdchat import host, machine
from rdchat.commands import doctor, options
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, ctrl_c_calls
from rdchat.errors import RdchatError
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.requests import (
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
    require,
)

if TYPE_CHECKING:
    from rdchat.ui.window.application import Application

_PRIVATE = ("blas_library",)  # and everything that is a path
_LEAST_MINUTES = 0.1
_SHARES = 0.7, 0.9  # of a model's time: when its own measurements end, and the comparison of settings
_QUESTION, _TOKENS = EVERYDAY_PROMPTS[0].text, 64  # of the replies with other settings, and in a window


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.description = (
        "Measures the cost and gain of drafting on this machine, compares settings of MLX and of threads, and writes a "
        "page and its figures into one zip file. It has no chats, names or paths; look into it before you send it."
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the zip file to write")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        help="names from `rdchat models list`, or paths (default: the default model)",
    )
    parser.add_argument(
        "--drafter",
        action="append",
        default=[],
        metavar="DRAFTER",
        help="also measure a drafter: a name from `rdchat models list`, or a folder; may be repeated",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=10,
        metavar="N",
        help="approximate time limit (default: %(default)s); the report lists what was left out",
    )
    parser.add_argument(
        "--no-window", action="store_true", help="do not measure how smoothly and how fast a window draws"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and write the file; the exit status is 0, or 130 after Ctrl-C, which writes the results so far."""
    require(args.minutes >= _LEAST_MINUTES, "minutes", args.minutes, f"at least {_LEAST_MINUTES}")
    out = Path(args.out).expanduser()
    options.check_writable(out)
    report = _Report(args, monotonic() + args.minutes * 60)
    # output of libraries, such as mlx-lm's about large models, does not belong to the report
    with (
        redirect_stdout(sys.stderr),
        ProgressLine(verbose=True) as progress,
        ctrl_c_calls(report.cancel),
        host.keep_awake(),
    ):
        report.measure(progress)
    from rdchat.commands.report_page import report_page  # noqa: PLC0415  reads the app's folders when imported

    with options.writing(out), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("report.html", report_page(report.found))
        file.writestr("report.json", json.dumps(report.found, indent=1, ensure_ascii=False))
    out.chmod(0o600)
    print(f"Written: {out}. It has no chats, names or paths; open report.html in it to see its content.")
    for what in report.found["left_out"]:
        print(f"Left out: {what}.")
    return INTERRUPTED if report.cancelled else 0


class _Report:
    """Collects the report's figures, model by model, until a moment of the monotonic clock."""

    def __init__(self, args: argparse.Namespace, end: float) -> None:
        self._args, self._end = args, end
        self._qt: Application | None = None  # made where a window can be measured
        self.cancelled = False
        self.found: dict[str, Any] = {"format": 1, "machine": {}, "window": None, "models": [], "left_out": []}

    def cancel(self) -> None:
        self.cancelled = True

    def measure(self, progress: ProgressLine) -> None:
        progress.show(LoadProgress("Reading facts about this machine", None))
        facts = doctor.gather().report
        kept = [name for name in facts if not (name.endswith("_path") or name in _PRIVATE)]
        slowed = {"on_battery": machine.on_battery(), "low_power_mode": host.low_power_mode()}
        self.found["machine"] = {**{name: facts[name] for name in kept}, **slowed}
        self._measure_window(progress)
        models = self._args.models or [None]
        for number, model in enumerate(models):
            if self.cancelled:
                self.found["left_out"].append(f"model {number + 1}: stopped")
                continue
            share = max(self._end - monotonic(), 0) / (len(models) - number)
            ends = [monotonic() + part * share for part in (*_SHARES, 1)]
            if self._measure_model(model, number + 1, ends[0], progress):
                # in other processes and on another thread, now that the model is out of this one's memory
                self._compare_settings(model, number + 1, ends[1], progress)
                self._measure_window_speed(model, number + 1, ends[2], progress)

    def _measure_window(self, progress: ProgressLine) -> None:
        if self._args.no_window:
            self.found["left_out"].append("the window: --no-window was given")
        elif not self.found["machine"].get("display"):
            self.found["left_out"].append("the window: there is no display")
        else:
            from rdchat.app import application  # noqa: PLC0415  Qt: only where there is a display
            from rdchat.ui.smoothness import measure_smoothness  # noqa: PLC0415

            progress.show(LoadProgress("Measuring how a window draws", None))
            self._qt = application()
            self.found["window"] = measure_smoothness(self._qt)

    def _measure_model(self, name: str | None, number: int, end: float, progress: ProgressLine) -> bool:
        """Measure a model until a moment of the monotonic clock; return whether it loaded."""
        from rdchat.inference.machine_report.model_report import ModelReport  # noqa: PLC0415  MLX
        from rdchat.inference.models.loading import load_model  # noqa: PLC0415
        from rdchat.inference.session import ChatSession  # noqa: PLC0415

        try:
            session = ChatSession(load_model(name, on_progress=progress.show))
        except RdchatError:  # its message may contain a path
            self.found["models"].append({"failure": "It did not load."})
            self.found["left_out"].append(f"model {number}: it did not load; rdchat ask --model says why")
            return False
        measured = ModelReport(session, end - monotonic(), lambda: self.cancelled, self._args.drafter)
        try:
            for words in measured:
                progress.show(LoadProgress(f"Model {number}: {words}", None))
        finally:
            self.found["models"].append(measured.found)
            self.found["left_out"] += [f"model {number}: {what}" for what in measured.left_out]
        return True

    def _compare_settings(self, name: str | None, number: int, end: float, progress: ProgressLine) -> None:
        """Compare settings of MLX, in child processes, until a moment of the monotonic clock."""
        from rdchat.inference.machine_report.settings_comparison import SettingsComparison  # noqa: PLC0415  MLX
        from rdchat.inference.target.device import free_memory  # noqa: PLC0415

        free_memory()
        comparison = SettingsComparison(name, _QUESTION, _TOKENS, end - monotonic(), lambda: self.cancelled)
        for words in comparison:
            progress.show(LoadProgress(f"Model {number}: {words}", None))
        self.found["models"][-1]["command_buffers"] = comparison.found
        if comparison.left_out:
            self.found["left_out"].append(f"model {number}: {comparison.left_out}")

    def _measure_window_speed(self, name: str | None, number: int, end: float, progress: ProgressLine) -> None:
        """Measure the speed of replies that a window draws, until a moment of the monotonic clock."""
        if self._qt is None:
            return
        from rdchat.app import local_engine  # noqa: PLC0415  Qt: only where there is a display
        from rdchat.ui.window_speed import measure_window_speed  # noqa: PLC0415

        progress.show(LoadProgress(f"Model {number}: Measuring replies that a window draws", None))
        sampling = SamplingParams(temperature=0, max_tokens=_TOKENS)
        request = GenerationRequest((ChatMessage(Role.USER, _QUESTION),), sampling, draft=DraftSettings(Mode.OFF))
        found = measure_window_speed(
            self._qt, local_engine, name, request, lambda: self.cancelled or monotonic() >= end
        )
        self.found["models"][-1]["window_speed"] = found
        if not found:
            self.found["left_out"].append(f"model {number}: replies that a window draws: no time left")
