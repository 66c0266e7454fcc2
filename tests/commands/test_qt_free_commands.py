"""Commands of the terminal start without Qt, which takes longer to import than most of them run."""

import subprocess
import sys

import pytest

CODE = """
import sys
from rdchat.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith(("PySide6", "shiboken6"))), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        ("models", "list"),
        ("models", "delete", "no-such-model", "--yes"),
        ("models", "verify", "no-such-model"),
        ("models", "check-pair", "no-such-model", "no-such-draft"),
        ("models", "download", "../evil"),
        ("chats", "list"),
        ("ask", "--help"),
        ("bench", "--help"),
        ("train-drafter", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_imports_no_qt(command: tuple[str, ...]) -> None:
    run = [sys.executable, "-c", CODE, *command]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
