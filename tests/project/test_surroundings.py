"""What stands around a chat does not grow by accident: counted in the real window, by a script."""

import json
import subprocess
import sys

import pytest

from tests.project.scripts import ROOT

_MOST = {
    "menu entries": 55,
    "icons under a reply": 3,
    "figures in the panel": 12,
    "controls of Chat Options": 4,
    "pages of Settings": 5,
    "controls of Settings": 35,
    "pages of Models": 2,
    "kinds of window": 9,
}


@pytest.mark.slow
def test_what_stands_around_a_chat_does_not_grow() -> None:
    """A newcomer looked at a panel of forty figures, nine pages of settings and 65 menu entries."""
    command = [sys.executable, "-m", "tests.count_surroundings"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counted = {each["what"]: each["count"] for each in map(json.loads, done.stdout.splitlines())}
    assert all(0 < counted[what] <= most for what, most in _MOST.items()), counted
