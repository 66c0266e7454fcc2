"""The training phase: prepares the data and trains, with a look at held-out answers every minute and checkpoints."""

import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import answer_states, conversation_states
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.heads.dspark import DSparkObjective
from rdchat.inference.training.heads.eagle3 import Eagle3Objective
from rdchat.inference.training.heads.objective import Objective, Target, TrainingData
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective
from rdchat.inference.training.heads.samples import TEACHER_TOKENS, Answers, Halves
from rdchat.inference.training.heads.trainer import Trainer
from rdchat.inference.training.run.clocks import LearningCost, Pace, TimeLimit
from rdchat.inference.training.run.training_plan import TrainingPlan

Shards = Sequence[Sequence[TrainingConversation]]

_SAVE_EVERY = 45.0  # seconds of training that an interruption may cost
_MEASURED_STEPS = 10  # to measure the cost of a step
_LOOK_EVERY = 60.0  # seconds between two looks at held-out answers
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainPhase:
    """Prepares the data and trains a head of the plan's kind."""

    model: LoadedModel  # the target
    plan: TrainingPlan
    shards: ShardFolder  # the data, which may have hidden states beside it
    limit: TimeLimit
    now: Callable[[], float]  # a clock, in seconds

    def run(self, data: Shards, place: Path) -> Generator[TrainingProgress, None, tuple[PublishedDrafter, list[int]]]:
        """Train, and return the drafter, and how many steps are done and planned.

        Args:
            data: The conversations, the first shards of the folder.
            place: Folder of the checkpoint.

        Raises:
            ModelError: If there is nothing to learn, or the loss is NaN or infinite.
            StorageFullError: If the disk is full.
            StorageError: If a file cannot be written.
        """
        self._check_answers([item for shard in data for item in shard])
        objective = self._objective(data)
        yield from objective.prepare()
        trainer = Trainer(objective, self.plan.settings.recipe)
        yield from self._train(trainer, place / "training.safetensors")
        return objective.drafter(self.plan.binding), [trainer.step, trainer.total]

    def _train(self, trainer: Trainer, checkpoint: Path) -> Iterator[TrainingProgress]:
        """Train to the last step, or as long as the time limit allows."""
        if _continues(checkpoint, trainer):
            trainer.restore(checkpoint)
        first, pace = trainer.step, Pace(self.now)
        saved, looked = self.now(), -math.inf
        losses: list[float] = []
        for loss in trainer.run():
            losses.append(_checked(loss))
            out_of_time = self.limit.left_s < self.limit.reserved_s  # slower than it was measured to be
            last = trainer.step == trainer.total or out_of_time
            if last or self.now() - saved > _SAVE_EVERY:
                trainer.save(checkpoint)
                saved = self.now()
            if pace.due() or last:
                accuracy: tuple[float, ...] = ()
                if last or self.now() - looked > _LOOK_EVERY:
                    accuracy, looked = trainer.objective.accuracy(), self.now()
                steps_per_s = (trainer.step - first) / pace.spent_s
                try:
                    yield TrainingProgress(
                        Phase.TRAIN,
                        trainer.step / trainer.total,
                        steps_per_s * trainer.objective.tokens_per_step,
                        sum(losses) / len(losses),
                        accuracy,
                        (trainer.total - trainer.step) / steps_per_s,
                    )
                except GeneratorExit:  # a pause, which costs no step
                    trainer.save(checkpoint)
                    raise
                losses = []
            if out_of_time:
                return

    def cost(self) -> LearningCost:
        """Measure the cost of preparing and learning on the first shard."""
        began, shard, settings = self.now(), self.shards.read(0), self.plan.settings
        self._check_answers(shard)
        objective = self._objective([shard])
        for _ in objective.prepare():
            pass
        tokens = answer_tokens(shard)
        reading_s = (self.now() - began) / tokens
        learning_s = self._step_s(Trainer(objective, settings.recipe)) / objective.tokens_per_step
        share = tokens / sum(map(objective.state_tokens, shard))
        read_once = math.inf if self.plan.record.keep_states else self.plan.budget.window_tokens * share
        return LearningCost(reading_s, learning_s, settings.recipe.epochs, read_once)

    def _step_s(self, trainer: Trainer) -> float:
        """Return the mean seconds of a training step, without the first."""
        times = [self.now() for _ in islice(trainer.run(), _MEASURED_STEPS)]
        return (times[-1] - times[0]) / max(len(times) - 1, 1) if times else 0.0

    def _objective(self, shards: Shards) -> Objective:
        """Return the objective of the plan's kind of head, to be prepared, on some shards."""
        model, plan, settings = self.model, self.plan, self.plan.settings

        def read_states(number: int) -> Halves:
            if settings.kind is TrainedKind.RECURRENT:
                return self._answer_states(number, shards[number])
            return conversation_states(model, shards[number], plan.reads)

        model.hooks.read(plan.reads)
        target = Target.of(model)
        data = TrainingData(shards, read_states, plan.budget.window_tokens, settings.vocabulary)
        if isinstance(settings.recipe, Recipe):
            return RecurrentObjective(target, data, settings.recipe, plan.head_config(model), plan.start)
        made = Eagle3Objective if settings.kind is TrainedKind.EAGLE3 else DSparkObjective
        return made(target, data, settings.recipe, model=model, layers=plan.reads.layers)

    def _answer_states(self, number: int, shard: Sequence[TrainingConversation]) -> Halves:
        """Return the hidden states of a shard's answers: those that were kept, or computed again."""
        kept = self.shards.states(number)
        if kept is not None:
            return kept
        states = answer_states(self.model, shard, self.plan.reads)
        if self.plan.record.keep_states:  # of answers that ship with rdchat
            self.shards.keep_states(number, states)
        return states

    def _check_answers(self, conversations: list[TrainingConversation]) -> None:
        answers = Answers.of(conversations)
        there = ~answers.held_out
        if len(np.unique(answers.tokens[there])) <= TEACHER_TOKENS or not (answers.left[there] > 0).any():
            raise ModelError(
                f"There is nothing to learn from the answers of {self.model.info.name}: they end at once, or have "
                f"hardly more than {TEACHER_TOKENS} different tokens.",
                "Pick another model.",
            )


def _checked(loss: float) -> float:
    if not math.isfinite(loss):
        raise ModelError("The training came to nothing: its loss is no number any more.", "Try another --seed.")
    return loss


def _continues(checkpoint: Path, trainer: Trainer) -> bool:
    """Return whether there is a whole checkpoint of a head with these weights' names and shapes."""
    if not checkpoint.exists():
        return False
    parameters = trainer.objective.network.parameters()
    wanted = {f"head.{name}": array.shape for name, array in tree_flatten(parameters)}
    try:
        found = {name: stored.shape for name, stored in read_header(checkpoint).items() if name.startswith("head.")}
    except ModelError as error:
        _LOG.warning("The training begins anew: %s", error)
        return False
    return found == wanted
