"""What a training would take, measured by a process of its own, which loads the model for that."""

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.inference.api.training import News, TrainingEstimate, TrainingNews, TrainingOrder, TrainingTask
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.models.training.training_process import TrainingProcess


class Estimator(QObject):
    """Measures for one order at a time. Lives on the main thread.

    Args:
        parent: The Qt parent.

    Attributes:
        measuring: The order that is being measured for; None while nothing is.
        news: What the process told last.
        estimated: The order that was measured for last, and what it would take.
        problem, hint: Why that failed.
    """

    changed = Signal()
    _told = Signal(int, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._side = BackgroundWork("estimates", self)
        self._process: TrainingProcess | None = None
        self._run = 0
        self.measuring: TrainingOrder | None = None
        self.news: TrainingNews | None = None
        self.estimated: tuple[TrainingOrder, TrainingEstimate] | None = None
        self.problem = self.hint = ""
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def measure(self, order: TrainingOrder) -> None:
        """Measure for an order; `changed` follows."""
        self.cancel()
        self._run += 1
        run = self._run
        self.measuring, self.news, self.estimated, self.problem, self.hint = order, None, None, "", ""
        try:
            self._process = TrainingProcess(TrainingTask(order), lambda news: self._told.emit(run, news))
        except OSError as error:
            self._end(f"The training process cannot be started: {error.strerror}.", "Close other apps.")
        self.changed.emit()

    def cancel(self) -> None:
        """Stop measuring; nothing is told of it any more."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._side.do(process.close)
            self.measuring = None
            self.changed.emit()

    def forget(self) -> None:
        """Forget what was told last."""
        self.estimated, self.problem, self.hint = None, "", ""

    def close(self) -> None:
        self.cancel()
        self._side.close()

    @Slot(int, object)
    def _take(self, run: int, news: TrainingNews | int) -> None:
        if run != self._run or self._process is None or self.measuring is None:
            return
        if isinstance(news, int):
            how = f"signal {-news}" if news < 0 else f"status {news}"
            self._end(f"The measuring process ended unexpectedly ({how}).", "Try again.")
        elif news.kind is News.ESTIMATED and news.estimate is not None:
            self.estimated = self.measuring, news.estimate
            self._end()
        elif news.kind is News.FAILED:
            self._end(news.words, news.hint)
        else:
            self.news = news
        self.changed.emit()

    def _end(self, problem: str = "", hint: str = "") -> None:
        process, self._process = self._process, None
        self.measuring, self.problem, self.hint = None, problem, hint
        if process is not None:
            self._side.do(process.close)
