"""Texts, curves and figures of a training. Pure functions."""

from collections.abc import Sequence

from rdchat.inference.api.requests import size_text
from rdchat.inference.api.training import (
    COMPARED_BEAMS,
    COMPARING,
    LOADING,
    ComparedGroup,
    Comparison,
    Phase,
    TrainingOrder,
    TrainingProgress,
    TrainingStart,
)
from rdchat.services.models.training.training_control import CurvePoint, TrainingControl, TrainingState
from rdchat.ui.plots.curves import Curve, CurvesPlot
from rdchat.ui.style.definitions import TRAINING
from rdchat.ui.style.formatting import NONE, counted, decimal, file_size, memory, percent, rate, time_left

NOTHING_YET = "While the drafter learns, its accuracy is measured about once a minute. No result yet."
_PHASES, _STATES, _OUTCOMES = (TRAINING[name] for name in ("phases", "states", "outcomes"))
_STEPS = (Phase.DATA, Phase.PREPARE, Phase.TRAIN, Phase.EVALUATE, COMPARING)
_POSITIONS = ("1st token", "2nd token", "3rd token", "4th token", "5th token", "6th token", "7th token")
_ALL = "all"
# A smaller difference, in tokens a call, counts as none.
_SAME = 0.005


def state_title(state: TrainingState, progress: TrainingProgress | None) -> str:
    """Return the state of a training that is not finished, or its phase."""
    return _STATES.get(state) or _PHASES.get(progress.phase if progress else "", "Starting")


def short_text(training: TrainingControl) -> str:
    """Return `Training a drafter: step 3 of 5, 34 %`, or what became of it; empty where there is nothing to say."""
    state = training.state
    progress = training.progress
    if state in _OUTCOMES or not state.is_active:
        return _OUTCOMES.get(state, "")
    if progress is None or progress.phase not in _STEPS:
        return "Training a drafter"
    step = f"step {_STEPS.index(progress.phase) + 1} of {len(_STEPS)}"
    share = "" if progress.fraction is None else f", {percent(progress.fraction)}"
    return f"Training a drafter: {step}{share}"


def step_text(order: TrainingOrder, state: TrainingState, progress: TrainingProgress | None) -> str:
    """Return what is trained, and the number of the step."""
    what = f"Recurrent drafter for {order.name}, {counted(order.tokens, 'token')}."
    if progress is None:
        return what
    if state is TrainingState.STARTING and progress.phase == LOADING:
        return f"{what} {progress.text}…"
    if state is TrainingState.TRAINING and progress.phase in _STEPS:
        return f"{what} Step {_STEPS.index(progress.phase) + 1} of {len(_STEPS)}. {progress.text}".strip()
    return what


def figures(progress: TrainingProgress) -> str:
    """Return the figures of the step: `34 %  ·  12 min left in this step  ·  1,204 tokens/s  ·  1.20 GB of memory`."""
    parts = (
        "" if progress.fraction is None else percent(progress.fraction),
        "" if progress.left_s is None else f"{time_left(progress.left_s)} in this step",
        f"{rate(progress.tokens_per_second)} tokens/s" if progress.tokens_per_second else "",
        f"{memory(progress.memory_bytes)} of memory" if progress.memory_bytes else "",
    )
    return "  ·  ".join(filter(None, parts))


def costs(plan: TrainingStart) -> str:
    """Return the limits of disk and memory that a training takes."""
    disk = file_size(plan.disk_bytes)
    limit = memory(plan.memory_bytes)
    room = f"The answers take up to {disk} of disk space, besides the drafter and its checkpoint."
    return f"{room} Training uses up to {limit} of memory."


def curves(points: Sequence[CurvePoint]) -> list[CurvesPlot]:
    """Return the learning curves: the accuracy at each draft position, once it is measured, and the loss."""
    measured = [point for point in points if point.accuracy]
    plots = []
    if measured:
        rates = [
            Curve(
                name,
                tuple((each.fraction, each.accuracy[position]) for each in measured if position < len(each.accuracy)),
            )
            for position, name in enumerate(_POSITIONS[: len(measured[-1].accuracy)])
        ]
        line = "On answers that it did not learn from. Each token counts if those before it were right."
        plots.append(CurvesPlot("How often a drafted token is right", line, rates, shares=True))
    line = "How far the drafter is from what the model writes. Lower is better."
    loss = Curve("Loss", tuple((point.fraction, point.loss) for point in points))
    return [*plots, CurvesPlot("Loss", line, [loss], shares=False)]


def is_worse(comparison: Comparison) -> bool:
    """Return whether the old drafter is better."""
    change = _change(_of_all(comparison))
    return change is not None and change < -_SAME


def result_title(comparison: Comparison) -> str:
    """Return whether the new drafter is better, with the figures."""
    group = _of_all(comparison)
    change = _change(group)
    if group.new is None:
        return "The drafter is trained, but could not be measured."
    if change is None:
        return f"The new drafter brings {decimal(group.new)} tokens per step."
    if change > _SAME:
        return f"The new drafter is better: {decimal(group.new)} tokens per step, {decimal(group.old)} before."
    if change < -_SAME:
        return f"The old drafter is better: {decimal(group.old)} tokens per step, the new one {decimal(group.new)}."
    return f"Both drafters bring {decimal(group.new)} tokens per step."


def result_text(comparison: Comparison) -> str:
    """Explain the figures of the table, and say which could not be measured."""
    drafter = (
        f"each drafter ({size_text(COMPARED_BEAMS.width, COMPARED_BEAMS.length)})" if comparison.old else "the drafter"
    )
    text = (
        f"Average tokens per step on six everyday questions, with {drafter}. Without drafting it is 1. Drafting takes "
        "time too: a race shows which is faster."
    )
    return f"{text}\n{comparison.old} could not be measured: {comparison.problem}" if comparison.problem else text


def result_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the table, the titles first; the average of all groups is the last."""
    rows = [("", "New", "Old", "Difference")]
    for group in sorted(comparison.groups, key=lambda each: each.group == _ALL):
        change = _change(group)
        difference = NONE if change is None else f"{change:+.2f}".replace("-", "\N{MINUS SIGN}")
        rows.append((group.group.capitalize(), decimal(group.new), decimal(group.old), difference))
    return [row if comparison.old and not comparison.problem else row[:2] for row in rows]


def _of_all(comparison: Comparison) -> ComparedGroup:
    return next((group for group in comparison.groups if group.group == _ALL), ComparedGroup(_ALL, None))


def _change(group: ComparedGroup) -> float | None:
    """Return how many more tokens a call the new drafter brings; None if that is unknown."""
    return None if group.new is None or group.old is None else group.new - group.old
