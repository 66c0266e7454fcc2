"""The app gets a signal to quit while another program locks its database and nobody can answer."""

import signal
import subprocess
import sys

import pytest

from rdchat import paths
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from tests.processes import held_by_another_process

pytestmark = pytest.mark.slow

LOCKED_APP = """
import sys
from PySide6.QtCore import QTimer
from rdchat import app, log
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine

engine = ScriptedEngine()
engine.replies = [Reply(tokens=("Once upon a time, ", "there was a sea. " * 37))]
engine.gate.shut()
engine.gate.allow(3)
app.make_engine = lambda: engine

class Told(app.App):
    def open_window(self):
        super().open_window()
        self.controller.replies.state_changed.connect(self.ask)
        self.controller.chat.reply_grew.connect(lambda _id, _text: print("begun", flush=True))
        self.controller.chat.message_changed.connect(lambda message: print("ended", flush=True))
        self.asked = False

    def ask(self):
        if self.controller.replies.state is EngineState.IDLE and not self.asked:
            self.asked = True
            QTimer.singleShot(0, lambda: self.controller.send("Tell me a story"))

app.App = Told
log.set_up_logging()
import threading
threading.Thread(target=lambda: (sys.stdin.readline(), engine.gate.open()), daemon=True).start()
sys.exit(app.main())
"""


def test_a_signal_ends_an_app_that_cannot_save_and_keeps_the_text_in_a_file() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", LOCKED_APP], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        with held_by_another_process(paths.database_path()):
            print(file=process.stdin, flush=True)
            while process.stdout.readline() != "ended\n":
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=120)
    said = [line for line in complaints.splitlines() if "This plugin does not support" not in line]
    assert (process.returncode, said) == (0, [])
    (file,) = paths.data_dir().glob("unsaved-replies-*.md")
    assert (
        file.read_text() == "# Tell me a story\n\nOnce upon a time, " + "there was a sea. " * 36 + "there was a sea.\n"
    )
    store = ConversationStore(paths.database_path())
    (chat,) = store.conversations()
    assert store.messages(chat.id)[-1].status is MessageStatus.INTERRUPTED
    store.close()
