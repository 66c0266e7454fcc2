import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from rdchat.errors import StorageError, StorageLockedError
from rdchat.files.atomic_file import FileLock
from rdchat.services.app import single_instance
from rdchat.services.app.single_instance import SingleInstance
from rdchat.services.app.start_request import StartRequest

CLAIM_AND_STAY = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from rdchat.services.app.single_instance import SingleInstance
from rdchat.services.app.start_request import JUST_SHOW, StartRequest
app = QCoreApplication([])
instance = SingleInstance(Path(sys.argv[1]))
request = StartRequest(text="😀" * 16_000) if sys.argv[2] == "ask" else JUST_SHOW
print("first" if instance.claim(request) else "second", flush=True)
if sys.argv[2] == "stay":
    instance.requested.connect(lambda: print("shown", flush=True))
    app.exec()
"""


Process = subprocess.Popen[str]
Start = Callable[[Path, str], Process]


@pytest.fixture
def start(qapp: QCoreApplication) -> Iterator[Start]:
    processes: list[Process] = []
    folders: set[Path] = set()

    def start(folder: Path, then: str) -> Process:
        command = [sys.executable, "-c", CLAIM_AND_STAY, str(folder), then]
        folders.add(folder)
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
    for folder in folders:  # a killed process leaves its socket in the shared temporary folder
        heir = SingleInstance(folder)
        assert heir.claim()
        heir.release_lock()


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def instance(start: Start, tmp_path: Path) -> Iterator[SingleInstance]:
    instance = SingleInstance(tmp_path / "data")
    yield instance
    instance.release_lock()


def test_a_second_start_raises_the_first(qtbot: QtBot, start: Start, instance: SingleInstance, tmp_path: Path) -> None:
    assert instance.claim()
    with qtbot.waitSignal(instance.requested) as asked:
        second = start(tmp_path / "data", "ask")
    assert asked.args == [StartRequest(text="😀" * 16_000)]
    assert line(second) == "second"
    assert second.wait(60) == 0


@pytest.mark.slow
def test_a_killed_first_process_does_not_bar_the_next(
    qtbot: QtBot, start: Start, instance: SingleInstance, tmp_path: Path
) -> None:
    killed = start(tmp_path / "data", "stay")
    assert line(killed) == "first"
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    assert instance.claim()
    with qtbot.waitSignal(instance.requested):
        second = start(tmp_path / "data", "leave")
    assert line(second) == "second"
    assert second.wait(60) == 0


@pytest.mark.slow
def test_one_of_two_simultaneous_starts_is_first(start: Start, tmp_path: Path) -> None:
    processes = [start(tmp_path, "stay") for _ in range(2)]
    said = {process: line(process) for process in processes}
    assert sorted(said.values()) == ["first", "second"]
    first = next(process for process, word in said.items() if word == "first")
    assert line(first) == "shown"


def test_silent_first_process_keeps_the_lock(
    qapp: QCoreApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_instance, "_ANSWER_TIMEOUT_MS", 200)
    (tmp_path / "data").mkdir()
    lock = FileLock(tmp_path / "data" / "instance.lock")
    instance = SingleInstance(tmp_path / "data")
    with pytest.raises(StorageLockedError) as caught:
        instance.claim()
    assert caught.value.message == f"rdchat is open already for {tmp_path / 'data'}, but does not answer."
    assert caught.value.hint == "Wait until it has quit, or quit it, then start again."
    lock.release()
    assert instance.claim()
    instance.release_lock()


@pytest.mark.slow
def test_a_first_process_that_hangs_does_not_answer(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket still takes connections: the system does that for it."""
    hanging = start(tmp_path / "data", "stay")
    assert line(hanging) == "first"
    hanging.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(single_instance, "_ANSWER_TIMEOUT_MS", 300)
        with pytest.raises(StorageLockedError, match="does not answer"):
            SingleInstance(tmp_path / "data").claim()
    hanging.send_signal(signal.SIGCONT)
    assert not SingleInstance(tmp_path / "data").claim()
    assert "shown" in {line(hanging), line(hanging)}


def test_data_folder_that_cannot_be_created_raises_an_error(qapp: QCoreApplication, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created"):
        SingleInstance(tmp_path / "file" / "data").claim()
