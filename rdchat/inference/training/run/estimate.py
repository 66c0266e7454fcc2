"""How long a training would take, from a few seconds of measuring with made-up text."""

import tempfile
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import mlx.core as mx
import numpy as np

from rdchat.inference.api.training import TrainingEstimate
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.head_training import Learner
from rdchat.inference.training.run.kinds import training_of
from rdchat.inference.training.run.time_limit import Costs, measured_batch_speed, measured_call_s
from rdchat.inference.training.run.training_plan import TrainingPlan

_CONVERSATIONS, _QUESTION_TOKENS, _ANSWER_TOKENS = 30, 8, 32  # of made-up text
# Of a short and full batch's speed: sequences get longer, and end one by one. The first third of a batch of the default
# model, 24 conversations on a busy CPU, came at 0.62.
_BATCH_SHARE = 0.5
_SHORT_ANSWER = 100  # tokens


def estimate_training(
    model: LoadedModel, plan: TrainingPlan, evaluated_tokens: int, now: Callable[[], float] = monotonic
) -> TrainingEstimate:
    """Measure how fast answers are made and learnt from; nothing stays on the disk.

    Args:
        model: The target.
        plan: Of the training.
        evaluated_tokens: That are decoded after the training, at most.
        now: A clock, in seconds.

    Raises:
        StorageFullError: If there is no room for a temporary folder.
    """
    speed = _BATCH_SHARE * measured_batch_speed(model, plan.settings.sequences, now)
    costs = _costs(model, plan, evaluated_tokens, now)
    settings, budget, shipped = plan.settings, plan.budget, answer_tokens(plan.shipped_answers())

    def seconds_of(tokens: int) -> float:
        return max(tokens - shipped, 0) / speed + costs.after_data(tokens)

    tokens, seconds = settings.tokens, seconds_of(settings.tokens)
    if settings.hours is not None and seconds > settings.hours * 3600:
        seconds = settings.hours * 3600
        batch = settings.sequences * _SHORT_ANSWER  # one is made however little time there is
        fitting = bisect_right(range(tokens), seconds, key=seconds_of) - 1
        tokens = min(tokens, max(fitting, batch))
    return TrainingEstimate(tokens, seconds, budget.disk_bytes, budget.memory_bytes, model.info.weights_bytes)


def _costs(model: LoadedModel, plan: TrainingPlan, evaluated_tokens: int, now: Callable[[], float]) -> Costs:
    shard = _made_up(model.info.vocabulary_size)
    with tempfile.TemporaryDirectory() as folder:  # which holds no hidden states, so they are computed
        training = training_of(model, plan, ShardFolder(Path(folder), model.info.vocabulary_size))
        steps = training.prepare([shard])
        began = read = now()
        learner: Learner | None = None
        while learner is None:
            try:
                next(steps)
                read = now()  # what follows the last window does not grow with the data
            except StopIteration as end:
                learner = end.value
        once_s = now() - read
        evaluation_s = evaluated_tokens * measured_call_s(model, now) + once_s
        epochs = plan.settings.recipe.epochs
        costs = Costs.measured(training, learner, shard, read - began, now, epochs=epochs, evaluation_s=evaluation_s)
    mx.clear_cache()
    return costs


def _made_up(vocabulary_size: int) -> list[TrainingConversation]:
    """Return conversations of tokens that are drawn evenly: what they mean does not change how long they take."""
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, vocabulary_size, (_CONVERSATIONS, _QUESTION_TOKENS + _ANSWER_TOKENS)).tolist()
    return [TrainingConversation(number, row, _QUESTION_TOKENS, 0.0) for number, row in enumerate(tokens)]
