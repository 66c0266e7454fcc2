"""Training a drafter as widgets see it: begin, pause, resume, and what comes of it."""

import secrets
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat import paths
from rdchat.chat.asked_questions import asked_questions
from rdchat.errors import RdchatError
from rdchat.inference.api.training import Comparison, News, TrainingNews, TrainingOrder, TrainingTask
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.models.training.job_folder import CurvePoint, JobFolder, KeptTraining, TrainingRecord, add_point
from rdchat.services.models.training.training_process import TrainingProcess

STOPPED_WITH_THE_APP = "It stopped when rdchat did."
_ENDED = "The training process ended unexpectedly"
_GO_ON = "Resume it: it goes on from where it was. If that happens again, memory may be short; close other apps."
_SEEDS = 2**31  # each training has its own: one that came to nothing would come to nothing again
_LAST_WORDS = {News.FINISHED, News.FAILED, News.PAUSED}


class TrainingState(StrEnum):
    """Where the training stands."""

    LOOKING = "looking"  # what an earlier run of the app left
    NOTHING = "nothing"
    STARTING = "starting"
    TRAINING = "training"
    PAUSING = "pausing"
    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    ENDING = "ending"  # its files are moved or removed

    @property
    def is_active(self) -> bool:
        """Whether a process is at work on the drafter."""
        return self in {TrainingState.STARTING, TrainingState.TRAINING, TrainingState.PAUSING}


class TrainingControl(QObject):
    """The one training of the app. Lives on the main thread.

    Args:
        parent: The Qt parent.

    Attributes:
        state: Where it stands.
        record: What is kept of it; None without one.
        news: What the process told last.
        points: What was measured while training.
        comparison: Once it is finished.
        problem, hint: Why the last thing that was asked for was not done.
        data_bytes: Of the data that goes with a finished training; 0 before it is known.
    """

    changed = Signal()
    taken = Signal(str, str)  # the new drafter's folder, and the model's
    _told = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = JobFolder()
        self._side = BackgroundWork("training's files", self)
        self._process: TrainingProcess | None = None
        self._run = 0
        self.state = TrainingState.LOOKING
        self.record: TrainingRecord | None = None
        self.news: TrainingNews | None = None
        self.points: list[CurvePoint] = []
        self.comparison: Comparison | None = None
        self.problem = self.hint = ""
        self.data_bytes = 0
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._side.do(self._folder.read, self._found)

    @property
    def order(self) -> TrainingOrder | None:
        """What is being trained."""
        return self.record.order if self.record else None

    @property
    def folder(self) -> Path:
        """Where the training is kept."""
        return self._folder.path

    @property
    def process_id(self) -> int | None:
        """Of the process at work; None without one."""
        return self._process.pid if self._process else None

    def start(self, order: TrainingOrder) -> None:
        """Begin a training."""
        if self.state is TrainingState.NOTHING:
            self.points, self.comparison, self.data_bytes = [], None, 0
            self._side.do(self._folder.clear)  # what could not be removed before
            self.record = TrainingRecord(replace(order, seed=secrets.randbelow(_SEEDS)))
            self._go_on()

    def resume(self) -> None:
        """Go on with a training that was paused or stopped."""
        if self.state in {TrainingState.PAUSED, TrainingState.FAILED}:
            self._go_on()

    def pause(self) -> None:
        """Have the process save what it has and end; `changed` follows."""
        if self.state in {TrainingState.STARTING, TrainingState.TRAINING} and self._process is not None:
            self._keep(paused=True)
            self._process.pause()
            self._say(TrainingState.PAUSING)

    def take(self) -> None:
        """Put the finished drafter among the person's own; `taken` follows."""
        record = self.record
        if self.state is TrainingState.FINISHED and record is not None:
            self._say(TrainingState.ENDING)
            self._side.do(lambda: self._folder.take(record), self._on_moved)

    def discard(self) -> None:
        """End the training and remove all that it made."""
        record = self.record
        if record is None or self.state in {TrainingState.LOOKING, TrainingState.ENDING}:
            return
        process, self._process = self._process, None
        if process is not None:
            process.kill()

        def remove() -> None:
            if process is not None:
                process.close()
            self._folder.remove(record)

        self._say(TrainingState.ENDING)
        self._side.do(remove, self._on_removed)

    def close(self) -> None:
        """Have the process save and end; the training can be resumed when the app is started again."""
        process, self._process = self._process, None
        if process is not None:
            process.close()
        self._side.close()

    def _go_on(self) -> None:
        """Read what the process needs to know, and begin it."""
        assert self.record is not None
        self.news = None
        self._keep(paused=False, problem="", hint="")
        self._say(TrainingState.STARTING)
        order = self.record.order
        task = TrainingTask(order, str(self._folder.path))
        self._side.do(_questions if order.with_chats else tuple[str, ...], lambda found: self._begin_with(task, found))

    def _begin_with(self, task: TrainingTask, found: tuple[str, ...] | RdchatError) -> None:
        if self.state is not TrainingState.STARTING:
            return
        if isinstance(found, RdchatError):
            hint = "Discard this training, and leave your chats out of the next." if "--" in found.hint else found.hint
            self._fail(found.message, hint)
        else:
            self._begin(replace(task, asked=found))

    def _begin(self, task: TrainingTask) -> None:
        self._run += 1
        run = self._run
        try:
            self._process = TrainingProcess(task, lambda news: self._told.emit(run, news))
        except OSError as error:
            self._fail(f"The training process cannot be started: {error.strerror}.", "Close other apps.")

    @Slot(int, object)
    def _take(self, run: int, news: TrainingNews | int) -> None:
        if run != self._run or self._process is None:
            return  # what an ended one still had to say
        if isinstance(news, int):
            self._on_exit(news)
            return
        self.news = news
        if news.kind is News.PLANNED:
            self._on_planned(news)
        elif news.kind is News.PROGRESS:
            self._on_progress(news)
        elif news.kind in _LAST_WORDS:
            self._on_last_words(news)
        self.changed.emit()

    def _on_planned(self, news: TrainingNews) -> None:
        assert self.record is not None
        known = bool(self.record.data_folder)
        made = self.record.made_data if known else not news.resumed
        self._keep(data_folder=news.data_folder, model_folder=news.model_folder, made_data=made)

    def _on_progress(self, news: TrainingNews) -> None:
        if self.state is TrainingState.STARTING:
            self.state = TrainingState.TRAINING
        if news.loss is not None and news.fraction is not None:
            add_point(self.points, CurvePoint(news.fraction, news.loss, news.accuracy))

    def _on_last_words(self, news: TrainingNews) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._side.do(process.close)
        if news.kind is News.FINISHED:
            self.comparison, self.state = news.comparison, TrainingState.FINISHED
            self._measure_data()
        elif news.kind is News.PAUSED:
            self.state = TrainingState.PAUSED
        else:
            self._fail(news.words, news.hint)

    def _on_exit(self, status: int) -> None:
        """Tell of a process that ended without its last words."""
        self._process = None
        if self.state is TrainingState.PAUSING:
            self._say(TrainingState.PAUSED)
        else:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            self._fail(f"{_ENDED} ({how}).", _GO_ON)

    def _fail(self, problem: str, hint: str) -> None:
        self._keep(problem=problem, hint=hint)
        self._say(TrainingState.FAILED, problem, hint)

    def _found(self, kept: KeptTraining | RdchatError | None) -> None:
        """Take up what an earlier run of the app left."""
        if kept is None or isinstance(kept, RdchatError):
            self._say(TrainingState.NOTHING)
            return
        self.record, self.points, self.comparison = kept.record, list(kept.points), kept.comparison
        if kept.comparison is not None:
            self._say(TrainingState.FINISHED)
            self._measure_data()
        elif kept.record.problem:
            self._say(TrainingState.FAILED, kept.record.problem, kept.record.hint)
        else:
            self._say(TrainingState.PAUSED, "" if kept.record.paused else STOPPED_WITH_THE_APP)

    def _on_moved(self, place: Path | RdchatError) -> None:
        if isinstance(place, RdchatError):
            self._say(TrainingState.FINISHED, place.message, place.hint)
            return
        record = self.record
        assert record is not None
        self.taken.emit(str(place), record.model_folder)  # before what takes long: the app may be quit meanwhile
        self._side.do(lambda: self._folder.remove(record), self._on_removed)

    def _on_removed(self, outcome: RdchatError | None) -> None:
        self._forget()
        if outcome is not None:
            self._say(TrainingState.NOTHING, outcome.message, outcome.hint)

    def _forget(self) -> None:
        self.record, self.news, self.points, self.comparison = None, None, [], None
        self._say(TrainingState.NOTHING)

    def _measure_data(self) -> None:
        record = self.record
        if record is not None:
            self._side.do(lambda: self._folder.data_bytes(record), self._on_measured)

    def _on_measured(self, size: int | RdchatError) -> None:
        if isinstance(size, int):
            self.data_bytes = size
            self.changed.emit()

    def _keep(self, **values: object) -> None:
        """Keep another record; a disk that is full is told of by the training itself."""
        assert self.record is not None
        record = self.record = replace(self.record, **values)  # type: ignore[arg-type]
        self._side.do(lambda: self._folder.write(record))

    def _say(self, state: TrainingState, problem: str = "", hint: str = "") -> None:
        self.state, self.problem, self.hint = state, problem, hint
        self.changed.emit()


def _questions() -> tuple[str, ...]:
    return tuple(asked_questions(paths.database_path()))
