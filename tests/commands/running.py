"""Commands as tests run them: in this process, with what they print."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rdchat.cli import main


class Console:
    """Runs commands, and reads what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def printed(self) -> Any:
        """Return what was printed since the last call: `out` and `err`."""
        return self._capsys.readouterr()

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command that must succeed, with `--json`, and return the object that it prints."""
        status = main([*arguments, "--json"])
        shown = self.printed()
        assert status == 0, shown.err
        report: dict[str, Any] = json.loads(shown.out)
        return report

    def refuses(self, arguments: Sequence[str], words: str, status: int) -> None:
        """Check that a command ends with a status and one line on standard error that has these words."""
        try:
            ended = main(list(arguments))
        except SystemExit as error:  # argparse's own way out
            ended = int(error.code or 0)
        shown = self.printed()
        assert (ended, shown.out, shown.err.count("\n")) == (status, "", 1), arguments
        assert words in shown.err


def paused_by_ctrl_c(*command: str, folder: Path, after: int) -> list[str]:
    """Press Ctrl-C once a partial file in a folder is larger than so many bytes; return the lines on standard error."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "rdchat", *command], stdout=pipe, stderr=pipe, text=True) as process:
        end = time.monotonic() + 120
        while not any(path.stat().st_size > after for path in folder.glob("*.part")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    return err.splitlines()
