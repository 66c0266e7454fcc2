"""`rdchat report`: measures this machine and its models, and writes one file to send."""

import argparse
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from rdchat import machine
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, check_writable, ctrl_c_calls
from rdchat.errors import RdchatError
from rdchat.files import atomic_file
from rdchat.inference.api import require
from rdchat.wording import parameter_text, time_left
from rdchat.work import ChildProcess, Job, Limits

_MIN_MINUTES = 0.1
# Before the models, in the child's words.
_PARTS = ("machine", "calls to macOS", "window", "known replies", "images")
# A part that shows nothing for so long is ended; reading a model shows each weight.
_SILENCE_S = 300.0
_STOPPED = "stopped"


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
        help="names from `rdchat models list`, or paths (default: the default model, and the largest that fits)",
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
    """Measure and write the file; the exit status is 0, or 130 after Ctrl-C."""
    require(args.minutes >= _MIN_MINUTES, "minutes", args.minutes, f"at least {_MIN_MINUTES}")
    out = Path(args.out).expanduser()
    check_writable(out)
    with ProgressLine(verbose=True) as progress, machine.keep_awake():
        report = _Report(out, monotonic() + args.minutes * 60, progress)
        with ctrl_c_calls(lambda: report.stop_report(_STOPPED)):
            report.measure(args.models, args.drafter)
    for line in _summary(report.facts):
        print(line)
    print(
        f"Written: {out}. It has no chats, names or paths: look at its report.json, then please attach it to an issue "
        "of the project that you have rdchat from."
    )
    return INTERRUPTED if report.stopped == _STOPPED else 0


class _Report:
    """Measures part by part, each in a child process of its own, and writes the file whenever more is known.

    Args:
        out: The file.
        end: When to stop measuring models, by the monotonic clock.
        progress: Shows the part.

    Attributes:
        facts: What is known.
        stopped: Why no more parts are measured; empty while they are.
    """

    def __init__(self, out: Path, end: float, progress: ProgressLine) -> None:
        self._out = out
        self._end = end
        self._progress = progress
        self._job: Job[Any] = Job()
        self.stopped = ""
        self.facts: dict[str, Any] = {"format": 2, "left_out": []}

    def stop_report(self, reason: str) -> None:
        self.stopped = self.stopped or reason
        self._job.cancel()

    def measure(self, models: Sequence[str | None], drafters: Sequence[str]) -> None:
        """Measure all parts, with the default model and the largest one if none are given."""
        slowed = machine.slowed_by()
        self.facts["slowed_at_start"] = slowed
        for reason in slowed:
            self._progress.print_line(f"The machine is {reason}: the report will lack what drafting costs and gains.")
        self._write()
        for part in _PARTS:
            self._run(part, part, self.facts.setdefault(part, {}))
        if not models:
            # None is the default model. The largest one's address stays out of the file.
            models = [None, *self._run("largest model", "largest model", {}).values()]
        for number, model in enumerate(models):
            share = (self._end - monotonic()) / (len(models) - number)
            title = f"model {number + 1}"
            facts = self.facts.setdefault(title, {})
            self._run("model", title, facts, model=model, seconds=share, drafters=drafters)
        self.facts["slowed_at_end"] = machine.slowed_by()
        self._write()

    def _run(self, part: str, title: str, facts: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        """Measure a part in a child process, and return its facts, which are added as they come.

        What was left out, and the error that ended the part, go to `left_out`.
        """

        def take(progress: tuple[dict[str, Any], str]) -> None:
            known, stage = progress
            left = time_left(self._end - monotonic())
            self._progress.show_text(f"{title}: {stage}, about {left}", f"{title} {stage.partition(':')[0]}")
            if known != facts:
                facts.update(known)
                self._write()
            if machine.is_hot():
                self.stop_report("stopped, because the machine is hot")

        take(({}, "starting"))
        failure = self.stopped
        if not failure:
            child = ChildProcess("report")
            self._job = child.submit(part, arguments, Limits(_SILENCE_S), on_progress=take)
            try:
                known, failure = self._job.result()
                facts.update(known)
            except RdchatError as error:
                failure = self.stopped or f"{type(error).__name__}: {error.message}"
            child.close()
        self.facts["left_out"] += [f"{title}: {each}" for each in (*facts.pop("left_out", ()), failure) if each]
        self._write()
        return facts

    def _write(self) -> None:
        """Replace the file by one with all that is known."""
        with atomic_file(self._out) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("report.json", json.dumps(self.facts, indent=1, ensure_ascii=False))


def _summary(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what was found, for people."""
    for title, part in facts.items():
        bench = part.get("bench", {}) if title.startswith("model") else {}
        for mode in bench.get("modes", ()):
            if mode["mode"] == "auto" and not mode["temperature"]:
                size = parameter_text(part["model"]["parameters"])
                gain = None if bench["hindered_runs"] else mode["ratio_to_plain"]
                words = (
                    f"makes replies {gain['median']:.1f} times as fast."
                    if gain
                    else "could not be compared: other programs ran, or time was short."
                )
                yield f"{title} ({size}): here Auto {words}"
    if replies := facts["known replies"].get("replies"):
        right = sum(reply["is_right"] for reply in replies)
        yield f"{right} of {len(replies)} known replies are computed as elsewhere, up to rounding."
    for name, outcome in facts["calls to macOS"].get("calls", {}).items():
        if outcome != "works":
            yield f"A call to macOS, {name}: {outcome}."
    for part in facts["left_out"]:
        yield f"Left out: {part}"
