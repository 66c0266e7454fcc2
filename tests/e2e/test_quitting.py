"""The app gets a signal to quit in the midst of work: it ends in time, and what was written is stored."""

import signal
import subprocess
import sys
import time

import pytest

from rdchat import paths
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from tests.processes import held_by_another_process

pytestmark = pytest.mark.slow

# The limit for the end of a process after SIGTERM, and a busy machine's time to take the process away.
_LIMIT_S = 5.0
_MARGIN_S = 15.0

APP = """
import sys, time
from dataclasses import replace
import psutil
from PySide6.QtCore import QTimer
from rdchat import app, paths
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api.messages import ToolCall
from rdchat.services.app import event_loop
from rdchat.services.engine.engine_request import EngineState
from rdchat.tools.built_in import BUILT_IN_SERVERS
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.tool_fakes import calling

state = sys.argv[1]
calls = state in ("approval", "stopped children")
engine = ScriptedEngine()
engine.replies = [Reply(tokens=("Once upon ", "a time, ", "there was a sea. " * 37))]
if calls:
    clock = replace(BUILT_IN_SERVERS[1], enabled=True)
    SettingsStore(paths.settings_path()).save_settings(Settings(tool_servers=(clock,)))
    engine.replies = [calling(ToolCall(f"{clock.name}__current_time", '{"zone": "UTC"}'), text="Once upon a time, ")]

class Told(app.App):
    def open_window(self):
        super().open_window()
        if state == "loading":
            return
        self.controller.replies.state_changed.connect(self.ask)
        if calls:
            self.controller.calls.changed.connect(self.asked_for_consent)
        else:
            self.controller.chat.reply_grew.connect(lambda _id, text: self.seen(text))
        self.asked = False

    def ask(self):
        if self.controller.replies.state is EngineState.IDLE and not self.asked:
            self.asked = True
            if calls:
                self.controller.chat.set_tools((clock.name,), ())
            QTimer.singleShot(0, lambda: self.controller.send("Tell me a story"))

    def asked_for_consent(self):
        if self.controller.calls.waiting:
            self.controller.calls.changed.disconnect(self.asked_for_consent)
            QTimer.singleShot(0, self.stop_children if state == "stopped children" else self.tell)

    def stop_children(self):
        self.transfer._process.child.start_child()
        models = self.window.windows.model_services
        models.downloads._process._child.start_child()
        self.suspend()

    def suspend(self):
        children = psutil.Process().children(recursive=True)
        if len(children) < 3:
            return QTimer.singleShot(50, self.suspend)
        for child in children:
            child.suspend()
        self.tell()

    def seen(self, text):
        if "a time" in text:
            # By then the recorder has saved what there is.
            QTimer.singleShot(1500, self.tell)

    def tell(self):
        print("there", flush=True)
        if state == "hung window":
            time.sleep(1000)

def load(*_arguments, **_named):
    print("there", flush=True)
    time.sleep(1000)

engine.gate.shut()
if state == "loading":
    engine.load = load
else:
    engine.gate.allow(4)
if state == "deaf engine":
    # It waits for the graphics card and does not hear of the stop.
    engine.gate.wait = (lambda wait: lambda is_cancelled=None: wait())(engine.gate.wait)
if state in ("deaf engine", "hung window"):
    event_loop._LIMIT_S = 1.0
app.make_engine = lambda _settings: engine
app.App = Told
sys.exit(app.main())
"""


def last_text() -> str:
    store = ConversationStore(paths.database_path())
    try:
        (chat,) = store.conversations()
        return store.messages(chat.id)[-1].text
    finally:
        store.close()


# Where the app cannot end in good order, it says so in its status.
STATUS = {"reply": 0, "approval": 0, "stopped children": 0, "deaf engine": 1, "loading": 1, "hung window": 1}


@pytest.mark.parametrize("state", STATUS)
def test_a_signal_ends_the_app_and_keeps_what_was_written(state: str) -> None:
    with subprocess.Popen([sys.executable, "-c", APP, state], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "there\n"
            sent = time.monotonic()
            process.send_signal(signal.SIGTERM)
            status = process.wait(60)
            took_s = time.monotonic() - sent
        finally:
            process.kill()
    assert (status, took_s < _LIMIT_S + _MARGIN_S) == (STATUS[state], True)
    if state != "loading":
        assert last_text().startswith("Once upon a time,")


LOCKED_APP = """
import sys
from PySide6.QtCore import QTimer
from rdchat import app, log
from rdchat.chat.storage import connections
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine

connections._APP_BUSY_S = 0.2
engine = ScriptedEngine()
engine.replies = [Reply(tokens=("Once upon a time, ", "there was a sea. " * 37))]
engine.gate.shut()
engine.gate.allow(3)
app.make_engine = lambda _settings: engine

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


BACKING_UP = """
import sys
from functools import partial
from PySide6.QtCore import QTimer
from rdchat import app
from rdchat.ui.window import import_export
from rdchat.work.job import Job
from tests.services.fakes import ScriptedEngine

import_export._WAIT_MS = 1
app.make_engine = lambda _settings: ScriptedEngine()

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
