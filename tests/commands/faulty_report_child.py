"""A child of `rdchat report` that measures nothing: each of its parts goes wrong.

Its arguments are how, a file that it makes to say that the machine is hot, and the report's file.
"""

import json
import os
import signal
import sys
import time
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.commands import report_child
from rdchat.errors import DeviceError, ModelError

FAULT, HOT, OUT = sys.argv[1], *map(Path, sys.argv[2:])


def refuse() -> None:
    raise ModelError("/mary/model is damaged.", "Fetch it again.")


def fail() -> None:
    raise DeviceError("The device failed: cannot read /mary/model")


def file_text() -> str:
    with zipfile.ZipFile(OUT) as file:
        return file.read("report.json").decode()


def interrupt() -> None:
    """Press Ctrl-C, once the file has what was shown."""
    while "written" not in file_text():
        time.sleep(0.02)
    os.kill(os.getppid(), signal.SIGINT)


FAULTS: dict[str, Callable[[], object]] = {
    "none": lambda: None,
    "refusal": refuse,
    "device error": fail,
    "memory": lambda: bytes(2**62),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "silence": lambda: time.sleep(600),
    "heat": HOT.touch,
    "Ctrl-C": interrupt,
}


def part(facts: dict[str, Any], show: Callable[[str], object], **_arguments: object) -> None:
    """Say what the file has already; then go wrong, and go on for long if that stops it."""
    facts |= {"written": sorted(json.loads(file_text())), "wired": os.environ["RDCHAT_WIRED"]}
    show("Working")
    FAULTS[FAULT]()
    while FAULT in {"heat", "Ctrl-C"}:
        show("Working")
        time.sleep(0.02)


module = types.ModuleType("rdchat.faulty")
vars(module)["part"] = part
sys.modules[module.__name__] = module
report_child.PARTS.update(dict.fromkeys(report_child.PARTS, "faulty:part"))
if __name__ == "__main__":
    sys.exit(report_child.main())
