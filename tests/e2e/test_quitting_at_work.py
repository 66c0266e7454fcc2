"""The app gets a signal to quit in the midst of work: it ends in time, and what was written is stored."""

import signal
import subprocess
import sys
import time

import pytest

from rdchat import paths
from rdchat.chat.store import ConversationStore

pytestmark = pytest.mark.slow

# The limit for the end of a process after SIGTERM, and a busy machine's time to take the process away.
_LIMIT_S = 5.0
_MARGIN_S = 5.0

APP = """
import sys, time
from dataclasses import replace
import psutil
from PySide6.QtCore import QTimer
from rdchat import app, paths
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api.messages import ToolCall
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
            QTimer.singleShot(1000, self.tell)
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
        # By then they run.
        QTimer.singleShot(5000, self.suspend)

    def suspend(self):
        children = psutil.Process().children(recursive=True)
        assert len(children) >= 3, children
        for child in children:
            child.suspend()
        self.tell()

    def seen(self, text):
        if "a time" in text:
            # By then the recorder has saved what there is.
            QTimer.singleShot(3000, self.tell)

    def tell(self):
        print("there", flush=True)
        if state == "hung window":
            time.sleep(1000)

if state == "loading":
    engine.gate.shut()
    engine.load = lambda *_arguments, **_named: time.sleep(1000)
else:
    engine.gate.shut()
    engine.gate.allow(4)
if state == "deaf engine":
    # It waits for the graphics card and does not hear of the stop.
    engine.gate.wait = (lambda wait: lambda is_cancelled=None: wait())(engine.gate.wait)
app.make_engine = lambda: engine
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
