"""Training a drafter as widgets see it: start, pause, resume, and the result.

The app has one training at a time, in a child process. Its files outlast the app, in `training_folder`: the record, the
learning curve, and in the end the drafter and the result. The functions on top read, write and remove these files, on a
thread; `TrainingControl` is the training on the main thread.
"""

import json
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat import paths
from rdchat.chat.reply_tokens import first_questions
from rdchat.errors import RdchatError
from rdchat.files import FileLock, make_folder, plain, write_json
from rdchat.inference.api import (
    CURVE,
    DRAFTER,
    RESULT,
    Comparison,
    TrainingOrder,
    TrainingProgress,
    TrainingStart,
    event_from,
)
from rdchat.services.background_work import BackgroundWork, MainThread
from rdchat.work import CancelledError, ChildEndedError, ChildError, ChildProcess, Job, Limits

_RECORD = "training.json"
# Prefix of the name of training data that is being removed; it is removed even if the app is killed meanwhile.
_REMOVED = "removed-"
STOPPED_WITH_THE_APP = "It stopped when rdchat quit."
_GO_ON = "Resume it to continue where it stopped. If it stops again, close other apps to free memory."
# Each training has a seed of its own below this: one that failed would fail again with the same seed.
_SEEDS = 2**31
# Seconds to save in on a pause, and when the app is quit.
_PAUSE_S = 20.0
_END_S = 3.0


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """The record of a training.

    Attributes:
        order: The order.
        data_folder: Folder of its data; empty before that is known.
        model_folder: The model's folder; empty before that is known.
        made_data: Whether all of that data was made for this training.
        paused: Whether the person paused it; else it stopped when the app did.
        problem, hint: Why it stopped, where it failed.
    """

    order: TrainingOrder
    data_folder: str = ""
    model_folder: str = ""
    made_data: bool = False
    paused: bool = False
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Loss, in nats, and share of right tokens by position, at a fraction of the training phase."""

    fraction: float
    loss: float
    accuracy: tuple[float, ...] = ()


type StoredTraining = tuple[TrainingRecord, list[CurvePoint], Comparison | None, int]
"""A training on disk: its record, learning curve, result once it is finished, and then the bytes of its data."""


def training_folder() -> Path:
    """Return the folder of the window's one training; what follows may wait for its disk."""
    return paths.data_dir() / "training"


def read_training() -> StoredTraining | None:
    """Return the training that was begun; None without one, or where it cannot be read any more.

    Where the app ended between taking the drafter and removing the rest, the rest is removed now.
    """
    record = _stored(TrainingRecord, _RECORD)
    if record is None:
        return None
    comparison = _stored(Comparison, RESULT)
    if comparison is not None and not (training_folder() / DRAFTER).exists():
        with suppress(OSError, RdchatError):
            remove_training(record)
        return None
    return record, _points(), comparison, _data_bytes(record) if comparison is not None else 0


def keep_training(record: TrainingRecord) -> None:
    """Keep a training.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written.
    """
    make_folder(training_folder())
    write_json(training_folder() / _RECORD, asdict(record))


def remove_files() -> None:
    """Remove the files of an earlier training; one that cannot be removed is later written over by the next training.

    It is called where there is no training, so the folder has nothing that somebody still needs.
    """
    shutil.rmtree(training_folder(), ignore_errors=True)
    _remove_data()


def take_drafter(record: TrainingRecord) -> Path:
    """Move the trained drafter to the person's own ones; return its folder there.

    Raises:
        OSError: If it cannot be moved.
    """
    own = paths.drafters_dir()
    own.mkdir(parents=True, exist_ok=True)
    name = f"{Path(record.order.name).name}-recurrent"
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    folder = next(own / name for name in names if not (own / name).exists())
    (training_folder() / DRAFTER).rename(folder)
    return folder


def remove_training(record: TrainingRecord) -> None:
    """Remove the files of a training, and its data where nothing else needs it.

    Raises:
        StorageLockedError: If another process works with the data.
        OSError: If it cannot be removed.
    """
    data = Path(record.data_folder)
    if record.made_data and data.is_dir() and data.is_relative_to(_trainings()):
        FileLock(data / "lock", "the training data", "Wait until it is done, or stop it.").release()
        data.rename(data.with_name(f"{_REMOVED}{data.name}"))  # At once: no training continues with a half of it.
    if training_folder().exists():
        (training_folder() / _RECORD).unlink(missing_ok=True)  # First: a half removed folder is no training.
        shutil.rmtree(training_folder())
    _remove_data()


def _points() -> list[CurvePoint]:
    """Return the learning curve, without damaged lines."""
    points: list[CurvePoint] = []
    with suppress(OSError):
        for line in (training_folder() / CURVE).read_bytes().splitlines():
            with suppress(ValueError, TypeError):
                add_point(points, plain(CurvePoint, json.loads(line)))
    return points


def _stored[Kind: (TrainingRecord, Comparison)](kind: type[Kind], name: str) -> Kind | None:
    """Return what a JSON file of the training holds; None if it is missing or damaged."""
    try:
        return plain(kind, json.loads((training_folder() / name).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _trainings() -> Path:
    """Return the folder of the data of all trainings, also those of the command line."""
    return paths.cache_dir() / "training"


def _data_bytes(record: TrainingRecord) -> int:
    """Return the size of the data that is removed with a training; 0 if it cannot be read."""
    if record.made_data and record.data_folder:
        with suppress(OSError):
            return sum(path.stat().st_size for path in Path(record.data_folder).rglob("*") if path.is_file())
    return 0


def _remove_data() -> None:
    """Remove data that was set aside for that, also by an app that was killed before it could."""
    for folder in _trainings().glob(f"*/{_REMOVED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def add_point(points: list[CurvePoint], point: CurvePoint) -> None:
    """Insert a point in order: a training that resumes from its checkpoint repeats the last steps."""
    while points and points[-1].fraction >= point.fraction:
        points.pop()
    points.append(point)


class TrainingState(StrEnum):
    """The state of the app's training.

    Attributes:
        LOOKING: It looks for a training of an earlier run of the app.
        ENDING: Its files are being moved or removed.
    """

    LOOKING = "looking"
    NOTHING = "nothing"
    STARTING = "starting"
    TRAINING = "training"
    PAUSING = "pausing"
    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    ENDING = "ending"

    @property
    def is_active(self) -> bool:
        """Whether a process works on the drafter."""
        return self in {TrainingState.STARTING, TrainingState.TRAINING, TrainingState.PAUSING}


class TrainingControl(QObject):
    """The one training of the app. Lives on the main thread. `taken` has the new drafter's folder, and the model's.

    Args:
        parent: The Qt parent.

    Attributes:
        state: The state of the training.
        record: The record on disk; None without a training.
        plan: Disk and memory that it takes, and its folders; None before they are known.
        progress: The last progress of the process.
        points: The learning curve.
        comparison: The result, once it is finished.
        problem, hint: Why it failed or stopped, or the last request failed, and what to do.
        data_bytes: Size of the data of a finished training; 0 before it is known.
    """

    changed = Signal()
    taken = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        # The thread for the files.
        self._side = BackgroundWork("training's files", self)
        self._main = MainThread(self)
        self._child: ChildProcess | None = None
        self._job: Job[Any] | None = None
        self.state = TrainingState.LOOKING
        self.record: TrainingRecord | None = None
        self.plan: TrainingStart | None = None
        self.progress: TrainingProgress | None = None
        self.points: list[CurvePoint] = []
        self.comparison: Comparison | None = None
        self.problem = ""
        self.hint = ""
        self.data_bytes = 0
        # Whether the process is to wait between two steps, as a reply is being written; also for one that starts later.
        self._held = False
        self._side.do(read_training, self._on_read)

    @property
    def order(self) -> TrainingOrder | None:
        """The order of the training."""
        return self.record.order if self.record else None

    def start_training(self, order: TrainingOrder) -> None:
        """Start a training."""
        if self.state is TrainingState.NOTHING:
            self.points = []
            self.comparison = None
            self.data_bytes = 0
            self._side.do(remove_files)  # Some files could perhaps not be removed before.
            self.record = TrainingRecord(replace(order, seed=secrets.randbelow(_SEEDS)))
            self._go_on()

    def resume(self) -> None:
        """Resume a training that was paused or stopped."""
        if self.state in {TrainingState.PAUSED, TrainingState.FAILED}:
            self._go_on()

    def pause_training(self) -> None:
        """Have the process save and end, or not begin; `changed` follows."""
        if self.state in {TrainingState.STARTING, TrainingState.TRAINING}:
            self._keep(paused=True)
            if self._job is None:
                # The questions are still being read; `_begin` then starts nothing.
                self._set_state(TrainingState.PAUSED)
            else:
                self._job.cancel()
                self._set_state(TrainingState.PAUSING)

    def hold(self, held: bool) -> None:
        """Have the process wait between two steps while a reply is written, or go on."""
        self._held = held
        if self._job is not None and self._job.held is not held:
            self._job.hold(held)

    def take_drafter(self) -> None:
        """Put the finished drafter among the person's own; `taken` follows."""
        record = self.record
        if self.state is TrainingState.FINISHED and record is not None:
            self._set_state(TrainingState.ENDING)
            self._side.do(lambda: take_drafter(record), self._on_moved)

    def discard(self) -> None:
        """End the training and remove all that it made."""
        record = self.record
        if record is None or self.state in {TrainingState.LOOKING, TrainingState.ENDING}:
            return
        child = self._take_child()

        def remove() -> None:
            if child is not None:
                child.close()
            remove_training(record)

        self._set_state(TrainingState.ENDING)
        self._side.do(remove, self._on_removed)

    def save_and_end(self) -> None:
        """Have the process save and end; the training can be resumed after the next start of the app."""
        if (child := self._take_child()) is not None:
            child.close(_END_S)
        self._side.finish_work()
        self._main.refuse_calls()

    def _take_child(self) -> ChildProcess | None:
        """Return the process, if there is one, and ignore what it still reports."""
        child = self._child
        self._child = None
        self._job = None
        self._main.drop_callbacks()
        return child

    def _go_on(self) -> None:
        """Store that the training goes on, read the questions of chats, if the order includes them, and begin."""
        assert self.record is not None
        self.plan = None
        self.progress = None
        self._keep(paused=False, problem="", hint="")
        self._set_state(TrainingState.STARTING)
        questions = partial(first_questions, paths.database_path()) if self.record.order.with_chats else list[str]
        self._side.do(questions, self._begin)

    def _begin(self, questions: list[str] | RdchatError) -> None:
        """Start the process, unless the training was paused or discarded while the questions were read."""
        if self.state is not TrainingState.STARTING or self.record is None or self._child is not None:
            return
        if isinstance(questions, RdchatError):
            hint = questions.hint
            # It is a hint for the command line, with an option.
            if "--" in hint:
                hint = "Discard this training, and start one without your chats."
            self._fail(questions.message, hint)
            return
        self._child = ChildProcess("training")
        on_event, on_end = self._main.bring_both(self._on_event, self._on_end)
        self._job = self._child.submit(
            "train",
            {"order": asdict(self.record.order), "folder": str(training_folder()), "questions": questions},
            Limits(cancel_s=_PAUSE_S),
            read=partial(plain, Comparison),
            on_progress=lambda data: on_event(event_from(data)),
            on_end=on_end,
        )
        self.hold(self._held)

    def _on_event(self, event: TrainingProgress | TrainingStart) -> None:
        """Take what the process reports: the progress of loading the model, what the training takes, its progress.

        What it takes (`plan`) comes once. Until then the state stays `STARTING`.
        """
        assert self.record is not None
        if isinstance(event, TrainingStart):
            self.plan = event
            # Noted at the first start, when the data's folder is not known yet: the data was made for this training
            # unless the process found some of an earlier one.
            made = self.record.made_data if self.record.data_folder else not event.resumed
            self._keep(data_folder=event.data_folder, model_folder=event.model_folder, made_data=made)
        else:
            self.progress = event
            if self.state is TrainingState.STARTING and self.plan is not None:
                self.state = TrainingState.TRAINING
            if event.loss is not None and event.fraction is not None:
                add_point(self.points, CurvePoint(event.fraction, event.loss, event.accuracy))
        self.changed.emit()

    def _on_end(self, outcome: Comparison | RdchatError) -> None:
        """Take the process's end: it finished, was paused, broke off (ChildError), or reports what went wrong."""
        if (child := self._take_child()) is not None:
            self._side.do(child.close)
        match outcome:
            case Comparison():
                self._side.do(read_training, self._on_read)
            case CancelledError():
                self._set_state(TrainingState.PAUSED)
            case ChildError():
                what = outcome.what if isinstance(outcome, ChildEndedError) else outcome.reason
                self._fail(f"The training process {what}.", _GO_ON)
            case _:
                self._fail(outcome.message, outcome.hint)

    def _fail(self, problem: str, hint: str) -> None:
        self._keep(problem=problem, hint=hint)
        self._set_state(TrainingState.FAILED, problem, hint)

    def _on_read(self, stored: StoredTraining | RdchatError | None) -> None:
        """Show the training on disk: of an earlier run of the app, or just finished."""
        if stored is None or isinstance(stored, RdchatError):
            self._set_state(TrainingState.NOTHING)
            return
        self.record, self.points, self.comparison, self.data_bytes = stored
        if self.comparison is not None:
            self._set_state(TrainingState.FINISHED)
        elif self.record.problem:
            self._set_state(TrainingState.FAILED, self.record.problem, self.record.hint)
        else:
            self._set_state(TrainingState.PAUSED, "" if self.record.paused else STOPPED_WITH_THE_APP)

    def _on_moved(self, folder: Path | RdchatError) -> None:
        if isinstance(folder, RdchatError):
            self._set_state(TrainingState.FINISHED, folder.message, folder.hint)
            return
        record = self.record
        assert record is not None
        self.taken.emit(str(folder), record.model_folder)  # First: removing takes long, and the app may be quit.
        self._side.do(lambda: remove_training(record), self._on_removed)

    def _on_removed(self, outcome: RdchatError | None) -> None:
        """Forget the training, also where files of it could not be removed: the next training removes these first."""
        self.record = None
        self.progress = None
        self.points = []
        self.comparison = None
        if outcome is None:
            self._set_state(TrainingState.NOTHING)
        else:
            self._set_state(TrainingState.NOTHING, outcome.message, outcome.hint)

    def _keep(self, **values: object) -> None:
        """Change the record on disk; the training itself reports a full disk."""
        assert self.record is not None
        record = replace(self.record, **values)  # type: ignore[arg-type]
        self.record = record
        self._side.do(lambda: keep_training(record))

    def _set_state(self, state: TrainingState, problem: str = "", hint: str = "") -> None:
        self.state = state
        self.problem = problem
        self.hint = hint
        self.changed.emit()
