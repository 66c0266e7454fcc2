"""The phases of a training: making the data, and learning from it.

Learning measures the head on held-out answers every minute and writes checkpoints. A training that was interrupted goes
on at the same step: all random choices depend on the recipe's seed and the number of the step or epoch alone. So the
state on disk is the weights, the optimiser's state and the number of steps done.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.errors import ModelError
from rdchat.files import atomic_file
from rdchat.inference.api import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.shipped_answers import TrainingConversation, read_answers, shipped_path
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.training.data_maker import DataMaker, ShardFolder, answer_tokens, hidden_states
from rdchat.inference.training.objective import Objective, Target
from rdchat.inference.training.samples import TEACHER_TOKENS, Answers, Halves, LogitCurve, StateWindows
from rdchat.inference.training.training_plan import TrainingPlan
from rdchat.inference.verification import LoadedModel, TargetEmbeddings

# Seconds of training that an interruption may lose.
_SAVE_EVERY = 45.0
# Seconds between two evaluations on held-out answers.
_EVALUATE_EVERY = 60.0
_LOG = logging.getLogger(__name__)


class Trainer:
    """Trains one head, step by step.

    A root is a token of an answer after which the head drafts: with `The cat sat down` and the root `cat`, it learns to
    draft `sat down`. One step learns from a batch of roots. The hidden states of all answers do not fit into memory, so
    the answers are divided into windows, and a batch has the roots of one window. An epoch takes the windows in random
    order, and the roots of each in random order.

    Args:
        objective: The objective; its data was read.

    Attributes:
        step: Number of steps done.
        total: Number of steps of the whole training.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._recipe = objective.recipe
        # Steps of an epoch in each window. Roots that do not fill a batch are left out; each epoch leaves out others. A
        # window with fewer roots than a batch has one step with these, and one without roots has none.
        self._window_steps = [max(len(each) // self._recipe.batch, min(len(each), 1)) for each in objective.roots]
        self.step = 0
        self.total = self._recipe.epochs * sum(self._window_steps)
        self._optimizer = optim.AdamW(self._learning_rate, weight_decay=self._recipe.weight_decay, bias_correction=True)
        self._optimizer.init(objective.network.trainable_parameters())
        self._compile()

    def train(self) -> Iterator[float | None]:
        """Train from the current step to the end.

        Yields:
            The loss of each step, in nats; None after each conversation that is read into a window, so that the caller
            can stop there.
        """
        for step, window, roots in self._batches():
            for _ in self.objective.windows.loading(window):
                yield None
            mx.random.seed((self._recipe.seed << 32) + step)
            loss = self._update(*self.objective.batch(window, roots))
            mx.eval(self._state, loss)
            self.step = step + 1
            yield float(loss)

    def save_state(self, path: Path) -> None:
        """Write weights, optimiser state and step; see `atomic_file`."""
        parameters = self.objective.network.parameters()
        tensors = dict(tree_flatten({"head": parameters, "optimizer": self._optimizer.state}))
        with atomic_file(path) as temporary:
            mx.save_safetensors(str(temporary), tensors, {"step": str(self.step)})

    def restore_state(self, path: Path) -> None:
        """Continue from a file written by `save_state`."""
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, facts = loaded
        state: Any = tree_unflatten(list(tensors.items()))
        self.objective.network.update(state["head"])
        self._optimizer.state = state["optimizer"]
        self.step = int(facts["step"])
        self._compile()

    def _learning_rate(self, step: mx.array) -> mx.array:
        """Return the rate: it rises linearly over the warm-up, then falls to 0 as a cosine."""
        rise = mx.minimum((step + 1) / self._recipe.warm_up, 1)
        fall = 0.5 * (1 + mx.cos(math.pi * mx.minimum(step / self.total, 1)))
        return self._recipe.learning_rate * rise * fall

    def _batches(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the number, the window and the roots of each remaining step.

        Earlier steps are drawn too, and not yielded, so that the random draws are those of an uninterrupted training.
        """
        step = 0
        size = self._recipe.batch
        for epoch in range(self._recipe.epochs):
            draw = np.random.default_rng([self._recipe.seed, epoch])
            for window in draw.permutation(len(self._window_steps)).tolist():
                order = draw.permutation(self.objective.roots[window])
                for start in range(0, self._window_steps[window] * size, size):
                    if step >= self.step:
                        yield step, window, order[start : start + size]
                    step += 1

    def _compile(self) -> None:
        """Compile the step for the present arrays; needed again after `restore_state` has replaced them."""
        self._state = [self.objective.network.state, self._optimizer.state, mx.random.state]
        self._update = partial(mx.compile, inputs=self._state, outputs=self._state)(self._apply)

    def _apply(self, *batch: Any) -> mx.array:
        """Take one optimiser step; return the loss."""
        objective = self.objective
        loss: mx.array
        loss, gradients = nn.value_and_grad(objective.network, objective.loss)(*batch)
        clipped, _ = optim.clip_grad_norm(gradients, self._recipe.clip)
        self._optimizer.update(objective.network, clipped)
        return loss


class Pace:
    """Measures a phase's duration, and limits its events to one every `EVERY` seconds; `now` is a clock, in seconds."""

    EVERY = 1.0

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._last = self._began

    @property
    def spent_s(self) -> float:
        """Seconds since the phase began or resumed, at least 1e-6."""
        return max(self._now() - self._began, 1e-6)

    def due(self) -> bool:
        """Return whether an event is due; if so, the interval starts again."""
        now = self._now()
        if now - self._last < self.EVERY:
            return False
        self._last = now
        return True


def take_shipped(shards: ShardFolder, plan: TrainingPlan) -> None:
    """Store conversations shipped with rdchat as shards, as many as needed, where no others were made yet.

    They are answers of the same target to built-in questions, so the person's own questions would be missing in them.
    """
    settings = plan.settings
    # Those of an earlier run may be here: then they are the first of the shipped ones, and only the rest is stored.
    if settings.prompts or settings.chat_questions:
        return
    shipped = read_answers(shipped_path(plan.binding.hash))
    stored = [item for number in range(len(shards)) for item in shards.read_shard(number)] if shipped else []
    if stored != shipped[: len(stored)]:
        return
    missing = settings.tokens - answer_tokens(stored)
    taken = list[TrainingConversation]()
    for item in shipped[len(stored) :]:
        if missing <= 0:
            break
        taken.append(item)
        missing -= len(item.answer)
    for start in range(0, len(taken), settings.sequences):
        shards.append_shard(taken[start : start + settings.sequences])


def make_data(
    maker: DataMaker, limit: int, now: Callable[[], float]
) -> Generator[TrainingProgress, None, list[list[TrainingConversation]]]:
    """Make the missing shards; return those to train on, with at least `limit` answer tokens.

    These may not be all: an earlier run with a higher limit has made more.
    """
    shards = maker.resume()
    # Answer tokens of the shards that earlier runs made, and of all.
    before = sum(map(answer_tokens, shards))
    total = before
    pace = Pace(now)

    def progress(tokens: int) -> TrainingProgress:
        speed = (tokens - before) / pace.spent_s
        left_s = max(limit - tokens, 0) / speed if speed else None
        return TrainingProgress(Phase.DATA, min(tokens / limit, 1.0), speed or None, left_s=left_s)

    while total < limit:
        for tokens in maker.make_shard():
            if pace.due():
                yield progress(total + tokens)
        shards.append(maker.shards.read_shard(len(shards)))
        total += answer_tokens(shards[-1])
        yield progress(total)
    while total - answer_tokens(shards[-1]) >= limit:
        total -= answer_tokens(shards.pop())
    return shards


def train_head(
    model: LoadedModel,
    plan: TrainingPlan,
    conversations: Sequence[TrainingConversation],
    folder: Path,
    now: Callable[[], float],
) -> Generator[TrainingProgress, None, tuple[PublishedDrafter, list[int]]]:
    """Prepare the data and train a head; return the drafter, and the numbers of steps done and planned.

    Args:
        model: The target.
        plan: The plan.
        conversations: The data.
        folder: Folder of the checkpoint.
        now: A clock, in seconds.

    Raises:
        ModelError: If the answers are too short or too uniform, or the loss is not finite.
        StorageFullError: If the disk is full.
        StorageError: If a file cannot be written.
    """
    _check_answers(model.info.name, conversations)

    def read_states(numbers: range) -> Iterator[tuple[int, Halves]]:
        return hidden_states(model, conversations[numbers.start : numbers.stop], plan.reads)

    model.hooks.record_states(plan.reads)
    used = [range(item.answer_start - 1, len(item.tokens) - 1) for item in conversations]
    windows = StateWindows(used, read_states, plan.budget.window_tokens)
    vocabulary_size = model.info.vocabulary_size
    embeddings = TargetEmbeddings(model.network, vocabulary_size)
    target = Target(embeddings, LogitCurve.measure(model, embeddings), vocabulary_size)
    objective = Objective(target, conversations, windows, plan.settings.recipe, plan.reads.layers)
    pace = Pace(now)
    for progress in objective.read_data():
        if pace.due():
            yield progress
    trainer = Trainer(objective)
    yield from _train(trainer, folder / "training.safetensors", now)
    return objective.drafter(plan.binding), [trainer.step, trainer.total]


def _train(trainer: Trainer, checkpoint: Path, now: Callable[[], float]) -> Iterator[TrainingProgress]:
    """Train to the last step, from the checkpoint if there is one; yield progress every second, as `Pace` has it.

    `Trainer.train` gives a loss for each step, or None while it reads a window: then no step was done, but a pause can
    begin. The checkpoint is written and the accuracy measured now and then, and both after the last step. The losses of
    the steps since the last progress are reported as their mean.
    """
    if checkpoint.exists():
        try:
            read_header(checkpoint)
            trainer.restore_state(checkpoint)
        except ModelError as error:
            _LOG.warning("The training starts again: %s", error)
    first = trainer.step
    pace = Pace(now)
    saved = now()
    evaluated = -math.inf
    losses: list[float] = []
    for loss in trainer.train():
        if loss is not None and not math.isfinite(loss):
            raise ModelError("The training failed: its loss is no longer a number.", "Try another seed.")
        if loss is not None:
            losses.append(loss)
        last = trainer.step == trainer.total
        if last or now() - saved > _SAVE_EVERY:
            trainer.save_state(checkpoint)
            saved = now()
        if pace.due() or last:
            accuracy: tuple[float, ...] = ()
            if last or (losses and now() - evaluated > _EVALUATE_EVERY):
                accuracy = trainer.objective.accuracy()
                evaluated = now()
            # A step learns after `batch` roots, each of which is a token of an answer.
            steps_per_s = (trainer.step - first) / pace.spent_s
            try:
                yield TrainingProgress(
                    Phase.TRAIN,
                    trainer.step / trainer.total,
                    steps_per_s * trainer.objective.recipe.batch,
                    sum(losses) / len(losses) if losses else None,
                    accuracy,
                    (trainer.total - trainer.step) / steps_per_s if steps_per_s else None,
                )
            except GeneratorExit:  # In a pause no step is lost.
                trainer.save_state(checkpoint)
                raise
            losses = []


def _check_answers(name: str, conversations: Sequence[TrainingConversation]) -> None:
    """Refuse answers of a model from which no head can learn."""
    answers = Answers.concatenate(conversations)
    trained = ~answers.held_out
    if len(np.unique(answers.tokens[trained])) <= TEACHER_TOKENS or not (answers.left[trained] > 0).any():
        raise ModelError(
            f"The answers of {name} are not enough to learn from: they end at once, or have hardly more than "
            f"{TEACHER_TOKENS} different tokens.",
            "Choose another model.",
        )
