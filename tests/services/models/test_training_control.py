"""Training a drafter in a process of its own: pause, resume, kill, restart of the app, use and discard."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import host, paths
from rdchat.chat.store import ConversationStore
from rdchat.files.atomic_file import write_json
from rdchat.inference.api import DRAFTER, RESULT, ComparedGroup, Comparison, Role
from rdchat.services.models.model_services import Models
from rdchat.services.models.model_sources import ModelSources
from rdchat.services.models.training_control import (
    STOPPED_WITH_THE_APP,
    CurvePoint,
    TrainingControl,
    TrainingRecord,
    TrainingState,
    add_point,
    keep_training,
    take_drafter,
    training_folder,
)
from rdchat.work.job import Job
from tests.disks import small_disk
from tests.services.fakes import ScriptedEngine
from tests.services.models.trainings import WAIT_MS, order_for, short_trainings, wait_for
from tests.services.window import Window, pause_midway

__all__ = ["short_trainings"]
Made = Callable[[], TrainingControl]
MODEL = Path("/nowhere/model")


@pytest.fixture
def make(qtbot: QtBot) -> Iterator[Made]:
    """Make trainings as an app that is started does; closed at the end."""
    made: list[TrainingControl] = []

    def make() -> TrainingControl:
        made.append(TrainingControl())
        training = made[-1]
        qtbot.waitUntil(lambda: training.state is not TrainingState.LOOKING)
        return training

    yield make
    for training in made:
        training.save_and_end()


def until_phase(qtbot: QtBot, training: TrainingControl, phase: str) -> None:
    wait_for(qtbot, training, TrainingState.TRAINING, TrainingState.FINISHED)
    qtbot.waitUntil(lambda: training.progress is not None and training.progress.phase == phase, timeout=WAIT_MS)


def test_a_training_waits_while_a_reply_is_written(window: Window, engine: ScriptedEngine, qtbot: QtBot) -> None:
    """Replies took 1.5 times as long beside a training, and nobody said why."""
    controller = window.controller
    models = Models(controller, ModelSources())
    job = models.training._job = Job[object]()
    window.ask("Hi")
    qtbot.waitUntil(lambda: not job.held)
    pause_midway(window, engine)
    assert job.held
    engine.gate.open()
    qtbot.waitUntil(lambda: not job.held)
    models.end_services()


@pytest.mark.slow
@pytest.mark.timeout(1200)  # four processes that import MLX
def test_a_training_that_is_paused_killed_and_left_by_the_app_goes_on_to_its_end(
    qtbot: QtBot, make: Made, short_trainings: None, small_model: Path
) -> None:
    training = make()
    assert training.state is TrainingState.NOTHING
    training.start_training(order_for(small_model))
    until_phase(qtbot, training, "data")
    training.pause_training()
    assert training.state is TrainingState.PAUSING
    wait_for(qtbot, training, TrainingState.PAUSED)
    assert training._child is None
    training.save_and_end()

    again = make()
    assert again.state is TrainingState.PAUSED
    assert again.problem == "", "the person paused it"
    assert again.order is not None
    assert again.order == training.order
    assert replace(again.order, seed=0) == order_for(small_model)
    again.resume()
    until_phase(qtbot, again, "train")
    pid = again._child.pid if again._child else None
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(qtbot, again, TrainingState.FAILED)
    assert "The training process was killed" in again.problem
    assert "Resume it" in again.hint

    again.resume()
    until_phase(qtbot, again, "train")
    again.save_and_end()  # the app is quit

    last = make()
    assert last.state is TrainingState.PAUSED
    assert last.problem == STOPPED_WITH_THE_APP
    assert last.points, "what was measured before was forgotten"
    last.resume()
    wait_for(qtbot, last, TrainingState.FINISHED)
    assert last.comparison is not None
    assert {group.group for group in last.comparison.groups} == {"explaining", "code", "all"}
    assert all(group.new and group.new >= 1 and group.old is None for group in last.comparison.groups)
    fractions = [point.fraction for point in last.points]
    assert fractions == sorted(set(fractions))
    assert fractions[-1] == 1
    assert last.points[-1].accuracy

    qtbot.waitUntil(lambda: last.data_bytes > 0)
    with qtbot.waitSignal(last.taken, timeout=WAIT_MS) as taken:
        last.take_drafter()
    folder = Path(taken.args[0])
    assert folder.parent == paths.drafters_dir()
    assert {path.name for path in folder.iterdir()} >= {"config.json", "model.safetensors", "card.md"}
    assert Path(taken.args[1]) == small_model
    wait_for(qtbot, last, TrainingState.NOTHING)
    assert not training_folder().exists()
    assert not list(paths.cache_dir().glob("training/*/*")), "its data was left behind"
    assert make().state is TrainingState.NOTHING


@pytest.mark.slow
def test_discarding_ends_the_process_and_removes_all_that_it_made(
    qtbot: QtBot, make: Made, short_trainings: None, small_model: Path
) -> None:
    training = make()
    training.start_training(order_for(small_model))
    until_phase(qtbot, training, "data")
    pid = training._child.pid if training._child else None
    assert pid is not None
    training.discard()
    wait_for(qtbot, training, TrainingState.NOTHING)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert training.problem == ""
    assert not training_folder().exists()
    assert not list(paths.cache_dir().glob("training/*/*"))


@pytest.mark.slow
def test_a_model_that_is_gone_is_named_and_the_training_can_be_tried_again(
    qtbot: QtBot, make: Made, short_trainings: None, tmp_path: Path
) -> None:
    training = make()
    training.start_training(order_for(tmp_path / "gone"))
    wait_for(qtbot, training, TrainingState.FAILED)
    assert "gone" in training.problem
    training.save_and_end()
    assert make().state is TrainingState.FAILED, "the failure outlasts the app"


@pytest.mark.slow
def test_a_disk_without_room_is_told_of_with_what_to_do(
    qtbot: QtBot, make: Made, short_trainings: None, small_model: Path
) -> None:
    paths.cache_dir().mkdir(parents=True)
    with small_disk(paths.cache_dir(), kibibytes=4096):
        training = make()
        training.start_training(order_for(small_model))
        wait_for(qtbot, training, TrainingState.FAILED)
        assert "which has room for 0 KB" in training.problem
        assert training.hint == "Free some space, or train on fewer tokens."


def test_chats_are_read_only_where_they_are_asked_for_and_without_any_it_says_so(qtbot: QtBot, make: Made) -> None:
    training = make()
    training.start_training(order_for(MODEL, with_chats=True))
    wait_for(qtbot, training, TrainingState.FAILED)
    assert training.problem == "There are no questions in stored chats."
    assert "--" not in training.hint


@pytest.mark.slow
def test_questions_of_chats_reach_the_training(
    qtbot: QtBot, make: Made, short_trainings: None, small_model: Path
) -> None:
    store = ConversationStore(paths.database_path())
    store.add_message(store.create_conversation().id, None, Role.USER, "zzz from a chat")
    store.close()
    training = make()
    training.start_training(order_for(small_model, with_chats=True))
    until_phase(qtbot, training, "data")
    noted = json.loads(next(paths.cache_dir().glob("training/*/*/begun.json")).read_text())
    assert noted["chat_questions"] == ["zzz from a chat"]
    assert "zzz" not in (training_folder() / "training.json").read_text()


@pytest.mark.parametrize(
    ("folder", "made_data"), [("elsewhere", True), ("cache/other", True), ("cache/training/small/abc", False)]
)
def test_only_data_that_a_training_made_is_removed_with_it(
    qtbot: QtBot, make: Made, tmp_path: Path, folder: str, made_data: bool
) -> None:
    """As that of `rdchat train-drafter`, which a training of the window goes on with."""
    assert paths.cache_dir() == tmp_path / "cache"
    data = tmp_path / folder
    data.mkdir(parents=True)
    keep_training(TrainingRecord(order_for(MODEL), str(data), str(MODEL), made_data))
    training = make()
    training.discard()
    wait_for(qtbot, training, TrainingState.NOTHING)
    assert data.exists()


def test_what_an_earlier_training_left_is_not_taken_for_the_next_ones(qtbot: QtBot, make: Made) -> None:
    folder = training_folder()
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"groups": []}')
    training = make()
    training.start_training(order_for(MODEL, with_chats=True))
    wait_for(qtbot, training, TrainingState.FAILED)
    training.save_and_end()
    assert make().state is TrainingState.FAILED


def test_a_training_that_is_paused_while_it_reads_questions_of_chats_does_not_begin(qtbot: QtBot, make: Made) -> None:
    training = make()
    training.start_training(order_for(MODEL, with_chats=True))
    training.pause_training()
    assert training.state is TrainingState.PAUSED
    qtbot.waitUntil(lambda: not training._side.busy)
    assert (training.state, training._child) == (TrainingState.PAUSED, None)
    assert make().state is TrainingState.PAUSED


@pytest.mark.parametrize("text", ["", "{", "[]", '{"order": {}}', '{"order": {"kind": "other"}}'])
def test_a_damaged_record_is_no_training(make: Made, text: str) -> None:
    folder = training_folder()
    folder.mkdir(parents=True)
    (folder / "training.json").write_text(text)
    assert make().state is TrainingState.NOTHING


def test_half_removed_training_data_is_removed_by_the_next_app(qtbot: QtBot, make: Made) -> None:
    left = paths.cache_dir() / "training" / "small" / "removed-abc"
    left.mkdir(parents=True)
    training = make()
    training.start_training(order_for(MODEL, with_chats=True))
    wait_for(qtbot, training, TrainingState.FAILED)
    assert not left.exists()


def test_a_drafter_that_an_app_was_killed_over_using_is_kept_and_its_training_is_over(make: Made) -> None:
    record = TrainingRecord(order_for(MODEL))
    (training_folder() / DRAFTER).mkdir(parents=True)
    keep_training(record)
    write_json(training_folder() / RESULT, asdict(Comparison((ComparedGroup("all", 1.5),))))
    assert make().state is TrainingState.FINISHED
    place = take_drafter(record)  # and nothing more
    assert make().state is TrainingState.NOTHING
    assert place.is_dir()
    assert not training_folder().exists()


def runs(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have a program of Python's in the place of the training process."""
    monkeypatch.setattr(host, "child_command", lambda _: [sys.executable, "-c", code])


def test_a_process_that_cannot_even_begin_is_told_of(qtbot: QtBot, make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, "import sys; sys.stderr.write('no news'); raise SystemExit(3)")
    training = make()
    training.start_training(order_for(MODEL))
    wait_for(qtbot, training, TrainingState.FAILED)
    assert training.problem == "The training process ended unexpectedly (status 3)."
    monkeypatch.setattr(host, "child_command", lambda _: ["/nowhere/program"])
    training.resume()
    wait_for(qtbot, training, TrainingState.FAILED)
    qtbot.waitUntil(lambda: "could not be started (No such file" in training.problem)


def test_a_second_drafter_of_a_name_takes_another() -> None:
    record = TrainingRecord(order_for(MODEL))
    names = []
    for _ in range(2):
        (training_folder() / "new-drafter").mkdir(parents=True)
        names.append(take_drafter(record).name)
    assert names == ["small-recurrent", "small-recurrent-2"]


def test_points_measured_again_after_a_kill_replace_the_old_ones() -> None:
    points: list[CurvePoint] = []
    for fraction in (0.1, 0.2, 0.3, 0.2, 0.4):
        add_point(points, CurvePoint(fraction, 1.0))
    assert [point.fraction for point in points] == [0.1, 0.2, 0.4]
