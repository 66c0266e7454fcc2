"""The child process that trains drafters for the window: `rdchat --child training`.

A pause cancels its request. When the app ends, all requests are cancelled; the process saves and ends.
"""

import os
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from rdchat.files import JsonLines, make_folder, plain, write_json
from rdchat.inference.api import (
    COMPARING,
    CURVE,
    DRAFTER,
    LOADING,
    RESULT,
    Dtype,
    LoadProgress,
    Recipe,
    TrainingOrder,
    TrainingProgress,
    TrainingSettings,
    TrainingStart,
)
from rdchat.inference.device import held_bytes
from rdchat.inference.loading import load_model
from rdchat.inference.training.training_plan import make_plan
from rdchat.inference.training.training_run import DrafterTraining, compare_drafters
from rdchat.machine import keep_awake
from rdchat.work import Job, serve

# Seconds to save in after the app has ended.
_GRACE_S = 3.0
# The window has a higher priority.
_NICENESS = 10
# Limit of the points of the learning curve without an accuracy.
_POINTS = 400


def main() -> int:
    """Answer requests until the app ends."""
    return serve({"train": _train}, grace_s=_GRACE_S, logs=True)


def _train(job: Job[Any], order: dict[str, Any], folder: str, questions: list[str]) -> dict[str, Any]:
    """Train a drafter, or resume its training, and compare it with the old one; return the comparison.

    Args:
        job: Receives `TrainingProgress` and a `TrainingStart`.
        order: The data of a `TrainingOrder`.
        folder: Folder for the drafter, the curve and the comparison.
        questions: The person's own questions, where the order includes them.
    """
    training_order = plain(TrainingOrder, order)
    path = Path(folder)
    # Seconds in which the training waited for replies; its clock leaves them out.
    held_s = 0.0
    os.nice(_NICENESS)

    def report(event: TrainingProgress | TrainingStart) -> None:
        nonlocal held_s
        job.report_progress(asdict(event))
        held_s += job.wait_while_held()  # It waits while a reply is written.
        job.check_cancelled()

    def show_loading(progress: LoadProgress) -> None:
        report(TrainingProgress(LOADING, progress.fraction, text=progress.stage))

    def show_comparing(fraction: float) -> None:
        report(TrainingProgress(COMPARING, fraction, memory_bytes=_memory_bytes()))

    with keep_awake():
        model = load_model(training_order.model, Dtype(training_order.dtype), show_loading)
        show_loading(LoadProgress("Preparing", None))
        make_folder(path)
        plan = make_plan(model, settings_of(training_order, path, tuple(questions)), resume=True)
        memory_bytes = plan.budget.memory_bytes + model.info.weights_bytes
        facts = str(plan.folder), str(model.info.path), plan.resumed, plan.budget.disk_bytes, memory_bytes
        report(TrainingStart(*facts))
        training = DrafterTraining(model, plan, lambda: monotonic() - held_s)
        with closing(JsonLines(path / CURVE)) as curve, closing(training.train()) as events:
            last_fraction = -1.0
            for event in events:
                if event.loss is not None and (event.accuracy or (event.fraction or 0) - last_fraction >= 1 / _POINTS):
                    last_fraction = event.fraction or 0
                    curve.append_line({"fraction": event.fraction, "loss": event.loss, "accuracy": event.accuracy})
                report(replace(event, memory_bytes=_memory_bytes()))
        show_comparing(0.0)
        comparison = asdict(compare_drafters(model, path / DRAFTER, training_order.old, show_comparing))
        write_json(path / RESULT, comparison)
        return comparison


def settings_of(order: TrainingOrder, folder: Path, questions: tuple[str, ...]) -> TrainingSettings:
    """Return the order as settings of `rdchat train-drafter`."""
    recipe = Recipe(seed=order.seed)
    return TrainingSettings(folder / DRAFTER, order.tokens, order.seed, chat_questions=questions, recipe=recipe)


def _memory_bytes() -> int:
    """Return the memory of this process, with MLX's buffers: on a GPU these are not part of its resident set."""
    return max(int(psutil.Process().memory_info().rss), held_bytes())
