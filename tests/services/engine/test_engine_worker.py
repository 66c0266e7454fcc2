"""Requests of the server: from any thread, answered on the engine thread at once, and paused for the person's own."""

import ast
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import rdchat
from rdchat import host
from rdchat.chat.conversation import MessageStatus
from rdchat.inference.api import (
    BenchCell,
    BenchPlan,
    ChatMessage,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationRequest,
    LoadProgress,
    Mode,
    ModelInfo,
    PrefillProgress,
    PrefixCacheFacts,
    Prompt,
    ReplyEnd,
    Role,
    Statistics,
    TokenEvent,
)
from rdchat.services.engine.engine_request import (
    BenchEnd,
    Command,
    EngineEvent,
    EngineRequest,
    EngineState,
    Failure,
    LimitPrefixCaches,
    LoadModel,
    Outbox,
    ReplyProgress,
    Unloaded,
    UnloadModel,
)
from rdchat.services.engine.engine_worker import take_merged
from tests.services.engine.conftest import Client, asked
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_midway

_PLAIN = BenchCell(DraftSettings(Mode.OFF))


@pytest.fixture
def client(client: Client) -> Client:
    client.load_model("tiny")
    client.end("load")
    return client


def begin_reply(client: Client, engine: ScriptedEngine) -> None:
    """Let the server's reply write its first token, and hold it there."""
    engine.gate.shut()
    client.submit("server", asked(1), direct=True)
    engine.gate.allow(3)  # two chunks of the prompt, and a token
    client.qtbot.waitUntil(lambda: client.text("server") == "Hello" and engine.gate.is_waiting)


def test_events_come_on_the_engine_thread_for_a_request_of_any_thread(client: Client, engine: ScriptedEngine) -> None:
    caller = threading.Thread(target=lambda: client.submit("server", asked(1), direct=True))
    caller.start()
    end = client.end("server")
    caller.join()
    assert isinstance(end, ReplyEnd)
    assert client.text("server") == end.text == "Hello, you!"
    assert client.threads["server"] == engine.threads
    assert [len(event.tokens) for event in client.of(ReplyProgress)] == [1] * 4, "none is merged with another"


def test_a_later_reply_goes_first_and_the_servers_goes_on_after_it(client: Client, engine: ScriptedEngine) -> None:
    """The server's queue begins another reply only where the first one should wait for it."""
    begin_reply(client, engine)
    client.submit("window", asked(3))
    client.submit("server 2", asked(2), direct=True)
    engine.gate.open()
    for name in ("server", "window", "server 2"):
        end = client.end(name)
        assert isinstance(end, ReplyEnd)
        assert end.finish_reason is FinishReason.EOS
        assert client.text(name) == end.text == "Hello, you!"
    assert [each.request_id for each in engine.requests] == [1, 3, 2]


def test_a_benchmark_goes_first_too_and_facts_are_told_meanwhile(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    client.submit("facts", LimitPrefixCaches(5000))
    client.submit("bench", BenchPlan((_PLAIN,), (Prompt("a", "Hi"),)))
    engine.gate.allow(2)  # a token, and the end of the benchmark, which has no runs
    assert client.end("facts") == PrefixCacheFacts(1, 1000, 5000)
    assert isinstance(client.end("bench"), BenchEnd)
    assert client.text("server") == "Hello,"
    engine.gate.open()
    assert isinstance(client.end("server"), ReplyEnd)


@pytest.mark.parametrize("command", [LoadModel("other", Dtype.AUTO), UnloadModel()], ids=["load", "unload"])
def test_changing_the_model_ends_the_servers_replies_with_a_sentence(
    client: Client, engine: ScriptedEngine, command: Command
) -> None:
    begin_reply(client, engine)
    client.submit("server 2", asked(2), direct=True)
    client.submit("change", command)
    assert isinstance(client.end("change"), ModelInfo | Unloaded)
    for name in ("server", "server 2"):
        failure = client.end(name)
        assert isinstance(failure, Failure)
        assert failure.message == "The model was changed in the window."
    assert client.text("server") == "Hello"


def test_benchmark_in_another_precision_ends_the_servers_replies_with_a_sentence(
    client: Client, engine: ScriptedEngine
) -> None:
    begin_reply(client, engine)
    cell = BenchCell(DraftSettings(Mode.OFF), dtype=Dtype.FOUR_BIT)
    client.submit("bench", BenchPlan((cell,), (Prompt("a", "Hi"),)))
    failure = client.end("server")
    assert isinstance(failure, Failure)
    assert "another precision" in failure.message
    engine.gate.open()
    assert isinstance(client.end("bench"), BenchEnd)


def test_the_server_stops_its_own_reply_and_loading_for_it_stops_nothing(
    client: Client, engine: ScriptedEngine
) -> None:
    begin_reply(client, engine)
    client.submit("load 2", LoadModel("other", Dtype.AUTO), direct=True)
    client.requests["server"].cancel()
    end = client.end("server")
    assert isinstance(end, ReplyEnd)
    assert (end.text, end.finish_reason) == ("Hello", FinishReason.CANCELLED)
    assert isinstance(client.end("load 2"), ModelInfo)
    engine.gate.shut()
    client.submit("window", asked(3))
    client.submit("load 3", LoadModel("third", Dtype.AUTO), direct=True)
    engine.gate.open()
    assert isinstance(client.end("window"), ReplyEnd)
    assert client.text("window") == "Hello, you!"
    assert isinstance(client.end("load 3"), ModelInfo)


def test_a_load_that_is_stopped_still_has_its_last_event(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    client.submit("load 2", LoadModel("other", Dtype.AUTO), direct=True)
    client.requests["load 2"].cancel()
    engine.gate.open()
    assert isinstance(client.end("load 2"), Failure)
    assert engine.loads == [("tiny", Dtype.AUTO)]


def test_a_server_that_takes_no_events_ends_its_reply_alone(
    client: Client, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.replies = [Reply(tokens=("word ",) * 1000), Reply()]
    taken: list[EngineEvent] = []

    def refuse(event: EngineEvent) -> None:
        taken.append(event)
        if isinstance(event, ReplyProgress):
            raise RuntimeError("its loop is closed")

    client.client.submit_direct(asked(1), refuse)
    client.submit("window", asked(2))
    assert isinstance(client.end("window"), ReplyEnd)
    # which may have gone first
    client.qtbot.waitUntil(lambda: "The server did not take an event" in caplog.text)
    assert sum(isinstance(event, ReplyProgress) for event in taken) == 1


def test_quitting_ends_a_reply_with_a_sentence(client: Client, engine: ScriptedEngine) -> None:
    begin_reply(client, engine)
    assert client.client.shutdown()
    failure = client.end("server")
    assert isinstance(failure, Failure)
    assert failure.message == "rdchat is closing."
    client.submit("late", asked(2), direct=True)
    assert isinstance(client.end("late"), Failure)


def made() -> EngineRequest:
    command = GenerationRequest((ChatMessage(Role.USER, "Hi"),), draft=DraftSettings())
    return EngineRequest(command, lambda _event: None)


def progress(text: str, tokens: int, written_at: float = 0.0) -> ReplyProgress:
    events = tuple(TokenEvent(1, 0, 0, each) for each in text)
    return ReplyProgress(Statistics(generated_tokens=tokens), events, written_at)


def loading(fraction: float) -> LoadProgress:
    return LoadProgress("Reading weights", fraction)


def through(*events: tuple[EngineRequest, EngineEvent]) -> list[tuple[EngineRequest, EngineEvent]]:
    outbox: Outbox = deque(events)
    taken = []
    while outbox:
        taken.append(take_merged(outbox))
    return taken


def test_progress_of_one_request_is_merged_with_all_tokens_and_the_time_of_the_first() -> None:
    one = made()
    parts = (progress("He", 1, 1.0), progress("l", 2, 2.0), progress("lo", 3, 3.0))
    ((request, merged),) = through(*((one, each) for each in parts))
    assert (request, merged) == (one, progress("Hello", 3))
    assert isinstance(merged, ReplyProgress)
    assert merged.written_at == 1.0
    prefill = [PrefillProgress(1, read, 8, 0) for read in (4, 8)]
    assert through(*((one, each) for each in prefill)) == [(one, prefill[1])]
    assert through((one, loading(0.1)), (one, loading(0.2))) == [(one, loading(0.2))]


def test_other_events_and_other_requests_are_kept_apart_in_order() -> None:
    one = made()
    other = made()
    apart: list[tuple[EngineRequest, EngineEvent]] = [
        (one, loading(0.1)),
        (other, loading(0.1)),
        (other, PrefillProgress(1, 8, 8, 0)),
        (other, progress("He", 1)),
        (one, progress("llo", 1)),
        (one, Failure("No.", "")),
        (one, Failure("No.", "")),
    ]
    assert through(*apart) == apart


def test_memory_comes_back_and_the_chat_has_no_model(qtbot: QtBot, window: Window, engine: ScriptedEngine) -> None:
    slot = window.slot
    with qtbot.waitSignal(slot.unloaded) as told:
        slot.unload_model()
        assert window.replies.state is EngineState.NO_MODEL
    assert told.args == [4000]
    assert engine.loaded is None
    assert slot.failure is None
    assert window.drafting.option(Mode.AUTO) is None


def test_a_reply_under_way_is_stopped_with_what_it_has(qtbot: QtBot, window: Window, engine: ScriptedEngine) -> None:
    reply = pause_midway(window, engine)
    slot = window.slot
    with qtbot.waitSignal(slot.unloaded):
        slot.unload_model()
    ended = window.store.message(reply)
    assert ended.text == "Hello,"
    assert ended.status is not MessageStatus.STREAMING


def test_a_reply_that_waits_for_the_model_says_that_there_is_none(loading: Window, engine: ScriptedEngine) -> None:
    slot = loading.slot
    with loading.qtbot.waitSignal(slot.unloaded):
        slot.unload_model()
        engine.load_gate.open()
    assert loading.last.status is MessageStatus.FAILED
    assert loading.replies.state is EngineState.NO_MODEL


@pytest.mark.parametrize("gated", [False, True])
def test_a_load_takes_an_unloads_place(window: Window, engine: ScriptedEngine, gated: bool) -> None:
    slot = window.slot
    if gated:
        engine.unload_gate.shut()
    slot.unload_model()
    slot.load_model("/models/other")
    engine.unload_gate.open()
    window.wait_until_idle()
    assert slot.info is not None
    assert slot.info.name == "/models/other"


DEPTH = 100_000
MACOS_DEFAULT = 512 * 1024
LOAD = """
import sys
from contextlib import nullcontext
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from rdchat import host
from rdchat.inference.api.requests import Dtype
from rdchat.inference.models.model_files import check_model_folder
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import LoadModel

class Engine:
    def load(self, model, dtype, on_progress, anyway=False):
        check_model_folder(Path(model))  # the first that the real one does

    def close(self):
        pass

host.THREAD_STACK_BYTES = int(sys.argv[2])
qt = QCoreApplication([])
client = EngineClient(Engine, nullcontext)

def tell(failure):
    print(failure.message)
    client.shutdown()
    qt.quit()

client.submit(LoadModel(sys.argv[1], Dtype.AUTO), tell)
qt.exec()
"""


def load(folder: Path, stack_bytes: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", LOAD, str(folder), str(stack_bytes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def nested_model(tmp_path: Path) -> Path:
    """A folder whose config.json is JSON nested 100,000 deep."""
    (tmp_path / "config.json").write_text("[" * DEPTH + "]" * DEPTH)
    return tmp_path


@pytest.mark.slow
def test_the_engine_thread_says_what_is_wrong_with_a_nested_configuration(nested_model: Path) -> None:
    done = load(nested_model, host.THREAD_STACK_BYTES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{nested_model / 'config.json'} is damaged: it is nested too deeply.\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 looks at the stack that is left")
def test_nested_configuration_crashes_with_the_default_stack_of_macos(nested_model: Path) -> None:
    assert load(nested_model, MACOS_DEFAULT).returncode in {-signal.SIGSEGV, -signal.SIGBUS}


def test_qt_starts_no_other_thread_that_would_need_a_stack() -> None:
    """Threads of Python's own ask for 16 MB on macOS themselves."""
    started = {"QThread", "QThreadPool", "QRunnable", "QtConcurrent"}
    used = {
        path.name
        for path in Path(rdchat.__file__).parent.rglob("*.py")
        if any(name in path.read_text() for name in started)
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ClassDef) and started & {ast.unparse(base) for base in node.bases})
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in started)
        or (isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("QThreadPool.", "QtConcurrent.")))
    }
    assert used == {"engine_client.py"}
