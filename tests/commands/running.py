"""Commands as tests run them: in this process, with what they print."""

import json
from collections.abc import Sequence
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

    def runs(self, *arguments: object, status: int = 0) -> Any:
        """Run a command that must end with a status; return what was printed since the last call: `out` and `err`."""
        ended = main([*map(str, arguments)])
        shown = self.printed()
        assert ended == status, shown.err
        return shown

    def json(self, *arguments: object) -> dict[str, Any]:
        """Run a command that must succeed, with `--json`, and return the object that it prints."""
        report: dict[str, Any] = json.loads(self.runs(*arguments, "--json").out)
        return report

    def models(self) -> dict[str, dict[str, Any]]:
        """Return the models that `rdchat models list` has, by name."""
        return {each["name"]: each for each in self.json("models", "list")["models"]}

    def refuses(self, arguments: Sequence[object], words: str, status: int) -> None:
        """Check that a command ends with a status and one line on standard error that has these words."""
        try:
            ended = main([*map(str, arguments)])
        except SystemExit as error:  # argparse's own way out
            ended = int(error.code or 0)
        shown = self.printed()
        assert (ended, shown.out, shown.err.count("\n")) == (status, "", 1), arguments
        assert words in shown.err
