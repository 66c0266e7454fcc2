"""The app gets a signal to quit while a sheet waits for work that does not end."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BACKING_UP = """
import sys
from functools import partial
from PySide6.QtCore import QTimer
from rdchat import app
from rdchat.ui.import_export import import_export
from rdchat.work.job import Job
from tests.services.fakes import ScriptedEngine

import_export._WAIT_MS = 1
app.make_engine = ScriptedEngine

class Told(app.App):
    def open_window(self):
        super().open_window()
        desk = self._import_export._transfers
        start = partial(desk._begin, lambda _progress, _end: Job())
        self._import_export._begin("Backing up", start, lambda _result: None)
        QTimer.singleShot(500, lambda: print("open", flush=True))

app.App = Told
sys.exit(app.main())
"""


def test_a_signal_ends_an_app_with_a_sheet_that_stays_open() -> None:
    with subprocess.Popen([sys.executable, "-c", BACKING_UP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
