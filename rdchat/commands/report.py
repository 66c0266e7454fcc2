"""`rdchat report`: measures this machine and its models, and writes one file to send."""

import argparse
import json
import sys
import zipfile
from contextlib import redirect_stdout
from pathlib import Path
from time import monotonic
from typing import Any

from rdchat import machine
from rdchat.commands import doctor
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, check_writable, ctrl_c_calls, write_errors
from rdchat.errors import RdchatError
from rdchat.inference.api import LoadProgress, require

# Facts of `doctor` with paths or names, which stay out of the report.
_PRIVATE = ("blas_library", "models", "advice")
_MIN_MINUTES = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.description = (
        "Measures the cost and gain of drafting on this machine, and writes the figures as JSON into one zip file. It "
        "has no chats, names or paths; look into it before you send it."
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


def run(args: argparse.Namespace) -> int:
    """Measure and write the file; the exit status is 0, or 130 after Ctrl-C, which writes the results so far."""
    require(args.minutes >= _MIN_MINUTES, "minutes", args.minutes, f"at least {_MIN_MINUTES}")
    out = Path(args.out).expanduser()
    check_writable(out)
    report = _Report(args, monotonic() + args.minutes * 60)
    # Output of libraries, such as mlx-lm's about large models, does not belong to the report.
    with (
        redirect_stdout(sys.stderr),
        ProgressLine(verbose=True) as progress,
        ctrl_c_calls(report.stop_report),
        machine.keep_awake(),
    ):
        report.measure(progress)
    with write_errors(out), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("report.json", json.dumps(report.facts, indent=1, ensure_ascii=False))
    out.chmod(0o600)
    print(f"Written: {out}. It has no chats, names or paths; open report.json in it to see its content.")
    for number, model in enumerate(report.facts["models"], 1):
        if "capability" in model:
            print(f"Model {number}: {model['capability']['result']}.")
    for part in report.facts["left_out"]:
        print(f"Left out: {part}.")
    return INTERRUPTED if report.cancelled else 0


class _Report:
    """Collects the report's figures, model by model, until a moment of the monotonic clock."""

    def __init__(self, args: argparse.Namespace, end: float) -> None:
        self._args = args
        self._end = end
        self.cancelled = False
        self.facts: dict[str, Any] = {"format": 1, "machine": {}, "models": [], "left_out": []}

    def stop_report(self) -> None:
        self.cancelled = True

    def measure(self, progress: ProgressLine) -> None:
        progress.show_stage(LoadProgress("Reading facts about this machine", None))
        facts = doctor.gather().report
        public = {name: fact for name, fact in facts.items() if not name.endswith("_path") and name not in _PRIVATE}
        slowed = {"on_battery": machine.on_battery(), "low_power_mode": machine.low_power_mode()}
        self.facts["machine"] = {**public, **slowed, "hot": machine.is_hot()}
        # None is the default model.
        models = self._args.models or [None]
        for number, model in enumerate(models):
            if self.cancelled:
                self.facts["left_out"].append(f"model {number + 1}: stopped")
            else:
                share = max(self._end - monotonic(), 0) / (len(models) - number)
                self._measure_model(model, number + 1, monotonic() + share, progress)

    def _measure_model(self, name: str | None, number: int, end: float, progress: ProgressLine) -> None:
        """Measure a model until a moment of the monotonic clock."""
        from rdchat.inference.benchmark.model_report import ModelReport  # noqa: PLC0415  MLX
        from rdchat.inference.loading import load_model  # noqa: PLC0415
        from rdchat.inference.session import ChatSession  # noqa: PLC0415

        try:
            session = ChatSession(load_model(name, on_progress=progress.show_stage))
        except RdchatError:  # Its message may contain a path.
            self.facts["models"].append({"failure": "It did not load."})
            self.facts["left_out"].append(f"model {number}: it did not load; rdchat ask --model says why")
            return
        report = ModelReport(session, end - monotonic(), lambda: self.cancelled, self._args.drafter)
        try:
            for measurement in report:
                progress.show_stage(LoadProgress(f"Model {number}: {measurement}", None))
        finally:
            self.facts["models"].append(report.facts)
            self.facts["left_out"] += [f"model {number}: {part}" for part in report.left_out]
