"""Child processes that answer garbage: the parent gives one plain error, and neither hangs nor grows."""

import os
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.rendering import code_colours
from rdchat.chat.rendering.code_colours import CodeReader
from rdchat.chat.rendering.formulas import FormulaDrawer
from rdchat.chat.transfer.backups import BackupFacts
from rdchat.chat.transfer.transfer_process import TransferProcess
from rdchat.errors import ImageRefusedError, ModelError, StorageError
from rdchat.hub import Tokens
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.inference.api import FolderFacts, TrainingOrder
from rdchat.inference.library.model_library import facts_reader
from rdchat.inference.prompts import tokenizer_process
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.vision.image_process import ImageProcess
from rdchat.services.models.training_control import TrainingControl, TrainingState
from rdchat.work import served
from rdchat.work.child_process import ChildLimitError, ChildProcess, Limits
from tests.garbage_children import KINDS, put_in_place
from tests.grids import grid, share
from tests.hub.downloads.downloading import LIMITS
from tests.time_limits import at_most

_GROWTH = 300 << 20
SHAPES = [
    '{"control": 3, "kind": "text", "parts": 1, "formula": 3, "sizes": 3, "choices": 3, "drops": 1}',
    '{"control": {"a": "b"}, "kind": "evil", "parts": "x", "formula": [1], "sizes": [], "choices": [], "drops": 1}',
    '{"failure": 3}',
    '{"width": 9, "height": "x", "format": 1, "note": 1, "grids": [[1, 1]], "size": [1, 1], "tiles": [0, 0]}',
    '{"failure": null, "refused": 3}',
    '{"control": {"a": -1}, "kind": "text", "parts": null, "formula": {"svg": 1}, "sizes": {"float_type": 1}}',
]


def file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Hi")
    reader = FileReader(Limits(3.0))
    with pytest.raises(FileRefusedError, match=r"a\.txt"):
        reader.read_file(tmp_path / "a.txt")
    reader.close()


def formula_is_not_drawn(_tmp_path: Path) -> None:
    drawer = FormulaDrawer(seconds=3.0)
    assert drawer.draw_formula("x", True) is None
    drawer.child.close()


def folder_has_a_problem(tmp_path: Path) -> None:
    with facts_reader(Limits(seconds=3.0)) as read:
        assert "could not be read" in read(tmp_path).problem


def tokenizer_is_refused(tmp_path: Path) -> None:
    process = TokenizerProcess()
    with pytest.raises(ModelError, match="The tokenizer of"):
        process.read_tokenizer(tmp_path)
    process.child.close()


def image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    process = ImageProcess(Limits(seconds=3.0))
    with pytest.raises(ImageRefusedError, match=r"a\.png"):
        process.check_image(tmp_path / "a.png")
    with pytest.raises(ImageRefusedError, match=r"a\.png"):
        process.prepare(tmp_path / "a.png", "gemma3", {}, None)
    process.child.close()


def code_stays_plain(_tmp_path: Path) -> None:
    reader = CodeReader()
    assert reader.read("python", ["x"], ()) is None
    reader.child.close()


FRAMED: dict[str, Callable[[Path], None]] = {
    "files": file_is_refused,
    "formulas": formula_is_not_drawn,
    "lexers": code_stays_plain,
    "images": image_is_refused,
    "facts": folder_has_a_problem,
    "tokenizers": tokenizer_is_refused,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "_LOAD_S", 3.0)
    monkeypatch.setattr(code_colours, "_LIMITS", Limits(3.0))
    monkeypatch.setattr(served, "MAX_BYTES", 2**20)


@pytest.mark.parametrize(("kind", "name"), grid([*KINDS, "a length of 2**32", "two messages"], list(FRAMED)))
def test_frames_of_garbage(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, *KINDS.get(kind, (kind, "")))
    before = psutil.Process().memory_info().rss
    with at_most(60):
        FRAMED[name](tmp_path)
    assert psutil.Process().memory_info().rss < before + _GROWTH
    assert not [child for child in psutil.Process().children() if "-S" in child.cmdline()]


@pytest.mark.parametrize(("shape", "name"), grid(SHAPES, list(FRAMED)))
def test_answers_of_another_shape(name: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, "garbage", shape)
    with at_most(60):
        FRAMED[name](tmp_path)


def test_half_a_frame_and_silence_end_at_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, "half a message and silence")
    child = ChildProcess("files")
    with at_most(60), pytest.raises(ChildLimitError, match="took longer than 1 seconds"):
        child.submit("open", {}, Limits(1.0, 2**30)).result()
    assert child.pid is None


def test_a_process_for_chats_that_tells_garbage_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (*KINDS, "a length of 2**32"):
        put_in_place(monkeypatch, *KINDS.get(kind, (kind, "")))
        process = TransferProcess()
        path = Path("x")
        with at_most(60), pytest.raises(StorageError, match="The task ended unexpectedly"):
            process.run_task("back_up", BackupFacts(), print, database=path, settings=path, path=path).result()
        assert process.child.pid is None


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "was killed"), (signal.SIGSTOP, "was stopped")])
def test_one_that_is_killed_or_stopped_from_outside_is_not_blamed_on_what_it_reads(
    number: signal.Signals, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's template was blamed, and the model to be fetched again."""
    put_in_place(monkeypatch, "half a message and silence")
    monkeypatch.setattr(tokenizer_process, "_LOAD_S", 1.5 if number == signal.SIGSTOP else 60.0)
    process = TokenizerProcess()
    sent = []

    def send() -> None:
        running = process.child._running
        if running is not None and running._requests and not sent:
            os.kill(running.process.pid, number)
            sent.append(number)

    with at_most(60), pytest.raises(ModelError, match=words) as caught:
        process.read_tokenizer(tmp_path, send)
    assert caught.value.hint.endswith("Try again.")


def test_an_app_that_quits_while_a_folder_is_read_complains_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It said on the terminal that the folder could not be read."""
    put_in_place(monkeypatch, "half a message and silence")
    child = ChildProcess("facts")
    found = list[FolderFacts]()
    with facts_reader(Limits(), child) as read:
        reading = threading.Thread(target=lambda: found.append(read(tmp_path)))
        reading.start()
        with at_most(60):
            while child._running is None or not child._running._requests:
                threading.Event().wait(0.01)
        child.close()
        reading.join()
    assert "could not be read" in found[0].problem
    assert caplog.text == ""


@pytest.mark.parametrize("kind", share([*KINDS, "a length of 2**32"], 5))
def test_a_training_that_tells_garbage_ends(kind: str, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, *KINDS.get(kind, (kind, "")))
    training = TrainingControl()
    try:
        qtbot.waitUntil(lambda: training.state is TrainingState.NOTHING)
        training.start_training(TrainingOrder("m", "m"))
        qtbot.waitUntil(lambda: training.state is TrainingState.FAILED, timeout=120_000)
        assert training.problem
        assert training._child is None
    finally:
        training.save_and_end()


@pytest.mark.parametrize("kind", share([*KINDS, "a length of 2**32"], 5))
def test_downloads_that_tell_garbage_fail(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stood still for ever."""
    put_in_place(monkeypatch, *KINDS.get(kind, (kind, "")))
    told: queue.SimpleQueue[Download] = queue.SimpleQueue()
    downloads = DownloadProcess(Tokens(), LIMITS)
    downloads.start_download(Download("org/model"), told.put)
    try:
        while (progress := told.get(timeout=120)).state is not DownloadState.FAILED:
            pass
        assert "downloading process" in progress.problem
    finally:
        downloads.close()
