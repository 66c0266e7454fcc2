"""The process that trains drafters for the window: `rdchat --child training`.

It takes one `TrainingTask` as a line of JSON on its standard input, and writes `TrainingNews` as lines of JSON on its
standard output. A line `pause` on its input, or the input's end, has it save what it has and end: nobody trains on
after the app has gone.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

import mlx.core as mx
import psutil

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import JsonLines, make_folder, write_json
from rdchat.host import keep_awake
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.requests import Dtype
from rdchat.inference.api.training import CURVE, DRAFTER, RESULT, Comparison, News, TrainingNews, TrainingTask
from rdchat.inference.models.loading import load_model
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.run.comparison import compare_drafters
from rdchat.inference.training.run.estimate import estimate_training
from rdchat.inference.training.run.recipes import DRAFT_VOCABULARY, default_recipe
from rdchat.inference.training.run.training_plan import TrainingSettings, make_plan
from rdchat.inference.training.run.training_run import EVALUATED_TOKENS, DrafterTraining
from rdchat.inference.training.training_progress import Phase, TrainingProgress

_MOST_TOKENS = 10_000_000  # that --hours alone makes
_PAUSE_S, _END_S = 20.0, 3.0  # to save in, on a pause and where the app has gone
_NICENESS = 10  # the window comes first
_POINTS = 400  # of the curve, beside those with an accuracy
_LOG = logging.getLogger(__name__)


class _PausedError(Exception):
    """It was asked to pause."""


def main() -> None:
    """Do one task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which pauses
    output = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print goes nowhere
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    source = os.fdopen(os.dup(0), "rb")
    line = source.readline()
    if not line:
        return
    pausing = threading.Event()
    threading.Thread(target=_listen, args=(source, pausing), name="commands", daemon=True).start()

    def tell(news: TrainingNews) -> None:
        try:
            os.write(output, news.to_json().encode() + b"\n")
        except BrokenPipeError:
            pausing.set()
        if pausing.is_set() and news.kind in _INTERRUPTIBLE:
            raise _PausedError

    last = _last_words(TrainingTask.from_json(line), tell)
    _write_last(output, last)
    os._exit(0)  # the tokenizer's process and threads that wait for input hold nothing


_INTERRUPTIBLE = {News.LOADING, News.PLANNED, News.PROGRESS, News.COMPARING}


def _listen(source: BinaryIO, pausing: threading.Event) -> None:
    """Wait for `pause` or the end of the input, and see to it that the process ends soon after."""
    line = source.readline()
    pausing.set()
    threading.Event().wait(_PAUSE_S if line else _END_S)
    os._exit(0)


def _write_last(output: int, news: TrainingNews) -> None:
    try:
        os.write(output, news.to_json().encode() + b"\n")
    except BrokenPipeError:
        _LOG.info("The app has gone")


def _last_words(task: TrainingTask, tell: Callable[[TrainingNews], None]) -> TrainingNews:
    try:
        with keep_awake():
            return _do(task, tell)
    except _PausedError:
        return TrainingNews(News.PAUSED)
    except RdchatError as error:
        return TrainingNews(News.FAILED, error.message, window_hint(error.hint))
    except Exception as error:
        _LOG.exception("The training failed")
        return TrainingNews(News.FAILED, f"The training failed: {type(error).__name__}.", "The log says more.")


def window_hint(hint: str) -> str:
    """Return a hint of the command line in the window's words."""
    if "--resume" in hint or "--seed" in hint or "--dtype" in hint:
        return "Discard this training and begin a new one."
    if "--from-my-chats" in hint:
        return "Leave your chats out."
    return hint.replace("--tokens", "tokens")


def _do(task: TrainingTask, tell: Callable[[TrainingNews], None]) -> TrainingNews:
    told: LoadProgress | None = None

    def show(progress: LoadProgress) -> None:
        nonlocal told
        if progress != told:
            tell(TrainingNews(News.LOADING, progress.stage, fraction=progress.fraction))
        told = progress

    order = task.order
    if task.folder:
        os.nice(_NICENESS)  # the window comes first; an estimate is over in seconds, and measures at full speed
    model = load_model(order.model, Dtype(order.dtype), show)
    show(LoadProgress("Measuring this machine" if not task.folder else "Preparing", None))
    if not task.folder:
        with tempfile.TemporaryDirectory() as folder:
            plan = make_plan(model, settings_of(replace(task, folder=folder)), resume=True)
        return TrainingNews(News.ESTIMATED, estimate=estimate_training(model, plan, EVALUATED_TOKENS))
    return TrainingNews(News.FINISHED, comparison=_train(model, task, tell))


def settings_of(task: TrainingTask) -> TrainingSettings:
    """Return a training's settings as `rdchat train-drafter` has them."""
    order = task.order
    tokens = order.tokens if order.tokens is not None else _MOST_TOKENS
    return TrainingSettings(
        out=Path(task.folder) / DRAFTER,
        tokens=tokens,
        hours=order.hours,
        seed=order.seed,
        asked=task.asked,
        vocabulary=DRAFT_VOCABULARY[order.kind],
        recipe=default_recipe(order.kind, order.seed, tokens),
        kind=order.kind,
    )


def _train(model: LoadedModel, task: TrainingTask, tell: Callable[[TrainingNews], None]) -> Comparison:
    folder = Path(task.folder)
    make_folder(folder)
    plan = make_plan(model, settings_of(task), resume=True)
    planned = TrainingNews(
        News.PLANNED, data_folder=str(plan.folder), model_folder=str(model.info.path), resumed=plan.resumed
    )
    tell(planned)
    with closing(JsonLines(folder / CURVE)) as lines, closing(DrafterTraining(model, plan).run()) as events:
        curve = _Curve(lines)
        for event in events:
            curve.add(event)
            tell(_news(event))

    def compare(fraction: float) -> None:
        tell(TrainingNews(News.COMPARING, fraction=fraction, memory_bytes=_memory_bytes()))

    compare(0.0)
    comparison = compare_drafters(model, folder / DRAFTER, task.order.old, folder, compare)
    write_json(folder / RESULT, asdict(comparison))
    return comparison


def _news(event: TrainingProgress) -> TrainingNews:
    return TrainingNews(
        News.PROGRESS,
        phase=event.phase.value,
        fraction=event.fraction,
        tokens_per_second=event.tokens_per_second,
        loss=event.loss,
        accuracy=event.accuracy,
        left_s=event.left_s,
        memory_bytes=_memory_bytes(),
    )


class _Curve:
    """Keeps what was measured while training: a JSON line with fraction, loss and accuracy for each point."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines = lines
        self._shown = -1.0

    def add(self, event: TrainingProgress) -> None:
        if event.phase is not Phase.TRAIN or event.loss is None:
            return
        if event.accuracy or event.fraction - self._shown >= 1 / _POINTS:
            self._shown = event.fraction
            self._lines.append({"fraction": event.fraction, "loss": event.loss, "accuracy": event.accuracy})


def _memory_bytes() -> int:
    """Return what this process holds: MLX's buffers may be the GPU's, which are no part of its resident set."""
    return max(int(psutil.Process().memory_info().rss), mx.get_active_memory() + mx.get_cache_memory())
