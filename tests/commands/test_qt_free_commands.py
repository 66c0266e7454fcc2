"""Commands of the terminal start without Qt, which takes longer to import than most of them run."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, sys
from contextlib import suppress
from rdchat.cli import main
imported = {}
for command in json.loads(sys.argv[1]):
    with suppress(SystemExit):
        main(command.split())
    imported[command] = [name for name in sys.modules if name.startswith(("PySide6", "shiboken6"))]
print(json.dumps(imported), file=sys.stderr)
"""
COMMANDS = (
    "models list",
    "models delete no-such-model --yes",
    "models verify no-such-model",
    "models check-pair no-such-model no-such-draft",
    "models download ../evil",
    "chats list",
    "ask --help",
    "bench --help",
    "train-drafter --help",
)


@pytest.mark.slow
def test_no_command_imports_qt() -> None:
    """They run in one process, since its start takes half a second; the first that imports Qt has it in its list."""
    run = [sys.executable, "-c", CODE, json.dumps(COMMANDS)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == {command: [] for command in COMMANDS}
