"""The phases of a training, and their clocks: the limit of hours, the pace, the cost of learning.

Data: makes the wanted number of answers, or as many as `--hours` allows. Training: prepares the data and trains, with
an evaluation every minute and checkpoints.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rdchat.errors import ModelError
from rdchat.inference.api.training import Phase, TrainedKind, TrainingProgress
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import answer_states, conversation_states
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.heads.mtp_objective import MtpObjective
from rdchat.inference.training.heads.published_objectives import DSparkObjective, Eagle3Objective
from rdchat.inference.training.heads.recipes import SequenceRecipe
from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective
from rdchat.inference.training.heads.samples import TEACHER_TOKENS, Answers, Halves
from rdchat.inference.training.heads.sequence_objective import SequenceObjective
from rdchat.inference.training.heads.trainer import Objective, Target, Trainer, TrainingData
from rdchat.inference.training.run.training_plan import TrainingPlan, shipped_answers

_EVALUATION_SHARE = 0.05  # share of the hours kept for the evaluation
_MARGIN = 1.2  # for held-out evaluation, saving, and other programs on the machine


class TimeLimit:
    """Counts the seconds of a training, without interruptions.

    Args:
        hours: The limit; None without one.
        spent_s: Seconds of earlier runs.
        now: A clock, in seconds.
    """

    def __init__(self, hours: float | None, spent_s: float, now: Callable[[], float]) -> None:
        self.hours = hours
        self._limit_s = math.inf if hours is None else hours * 3600
        self._now, self._began = now, now() - spent_s

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self.hours is not None

    @property
    def spent_s(self) -> float:
        """Seconds of all runs."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Seconds left; negative once the limit is passed."""
        return self._limit_s - self.spent_s

    @property
    def reserved_s(self) -> float:
        """Seconds kept for the evaluation."""
        return _EVALUATION_SHARE * self._limit_s if self else 0.0


class Pace:
    """Measures a phase's duration, and limits its events to one a second; `now` is a clock, in seconds."""

    EVERY = 1.0  # least seconds between two events of a phase

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._last = now()

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


@dataclass(frozen=True, slots=True)
class LearningCost:
    """Seconds of preparing and learning, measured on a part of the data."""

    reading_s: float  # seconds per answer token, for computing and preparing hidden states
    learning_s: float  # seconds per answer token and epoch, without reading
    epochs: int  # passes over the data
    read_once: float  # up to this many answer tokens the states are computed once; beyond, once more in every epoch

    def seconds(self, tokens: int) -> float:
        """Return the seconds of these phases for a number of answer tokens."""
        readings = 1 if tokens <= self.read_once else 1 + self.epochs
        return _MARGIN * tokens * (readings * self.reading_s + self.epochs * self.learning_s)


Shards = Sequence[Sequence[TrainingConversation]]

_SAVE_EVERY = 45.0  # seconds of training that an interruption may lose
_MEASURED_STEPS = 10  # steps to measure the cost of one
_LOOK_EVERY = 60.0  # seconds between two evaluations on held-out answers
_LOG = logging.getLogger(__name__)


@dataclass
class DataPhase:
    """Makes the data of one training, or reads it from earlier runs."""

    plan: TrainingPlan  # its record keeps the number of shards in a training with a time limit, decided once
    maker: DataMaker
    limit: TimeLimit
    measure: Callable[[], LearningCost]  # measures the cost of preparing and learning on the first shard
    now: Callable[[], float]  # a clock, in seconds
    _cost: LearningCost | None = None

    def run(self) -> Generator[TrainingProgress, None, list[list[TrainingConversation]]]:
        """Make the missing shards; return those to train on, which may be fewer than there are."""
        limit, record, most = self.limit, self.plan.record, self.plan.settings.tokens
        if limit and record.hours == limit.hours and record.shards is not None:
            return [self.maker.shards.read(number) for number in range(record.shards)]
        (self.plan.folder / "wave.safetensors").unlink(missing_ok=True)  # an unfinished batch of earlier versions
        self._take_shipped()
        made = self.maker.resume()
        before = total = sum(map(answer_tokens, made))
        pace, left = Pace(self.now), self._time_for_data(total)
        longest_s = 0.0  # of a batch; those about long texts take several times as long as others
        while total < most and left > 0:
            began = self.now()
            for tokens in self.maker.make_shard():
                if pace.due():
                    left = min(left, max(limit.left_s, 0))
                    yield self._progress(total + tokens, before, pace.spent_s, left)
            longest_s = max(longest_s, self.now() - began)
            made.append(self.maker.shards.read(len(made)))
            total += answer_tokens(made[-1])
            left = self._time_for_data(total, answer_tokens(made[-1]), longest_s)
            yield self._progress(total, before, pace.spent_s, left)
        if limit:
            record.hours, record.shards = limit.hours, len(made)
            return made
        while total - answer_tokens(made[-1]) >= most:
            total -= answer_tokens(made.pop())
        return made

    def _take_shipped(self) -> None:
        """Use conversations shipped with rdchat, as many as wanted, where none were made yet."""
        settings = self.plan.settings
        shipped, shards = shipped_answers(self.plan.binding, settings), self.maker.shards
        there = [item for number in range(len(shards)) for item in shards.read(number)] if shipped else []
        if there != shipped[: len(there)]:
            return
        left, taken = settings.tokens - answer_tokens(there), list[TrainingConversation]()
        for item in shipped[len(there) :]:
            if left <= 0:
                break
            taken.append(item)
            left -= len(item.answer)
        for start in range(0, len(taken), settings.sequences):
            shards.append(taken[start : start + settings.sequences])

    def _time_for_data(self, tokens: int, following: int = 0, batch_s: float = 0.0) -> float:
        """Return the seconds left for data.

        Args:
            tokens: Answer tokens so far.
            following: Answer tokens of another batch.
            batch_s: Seconds for that batch.
        """
        if not self.limit or not tokens:
            return math.inf
        self._cost = self._cost or self.measure()
        later_s = self._cost.seconds(tokens + following) + self.limit.reserved_s
        return max(self.limit.left_s - later_s - batch_s, 0)

    def _progress(self, total: int, before: int, spent_s: float, left: float) -> TrainingProgress:
        speed, most = (total - before) / spent_s, self.plan.settings.tokens
        left = min(left, max(most - total, 0) / speed if speed else math.inf)
        fraction = spent_s / (spent_s + left) if self.limit else min(total / most, 1.0)
        return TrainingProgress(Phase.DATA, fraction, speed, left_s=left if math.isfinite(left) else None)


@dataclass(frozen=True, slots=True)
class TrainPhase:
    """Prepares the data and trains a head of the plan's kind."""

    model: LoadedModel  # the target
    plan: TrainingPlan
    shards: ShardFolder  # the data, perhaps with hidden states
    limit: TimeLimit
    now: Callable[[], float]  # a clock, in seconds

    def run(self, data: Shards, place: Path) -> Generator[TrainingProgress, None, tuple[PublishedDrafter, list[int]]]:
        """Train; return the drafter, and the number of steps done and planned.

        Args:
            data: The conversations, the first shards of the folder.
            place: Folder of the checkpoint.

        Raises:
            ModelError: If the answers are too short or too uniform, or the loss is not finite.
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
        """Train to the last step, or until the time limit."""
        if checkpoint.exists():
            try:
                read_header(checkpoint)
                trainer.restore(checkpoint)
            except ModelError as error:
                _LOG.warning("The training starts again: %s", error)
        first, pace = trainer.step, Pace(self.now)
        saved, looked = self.now(), -math.inf
        losses: list[float] = []
        for loss in trainer.run():
            if not math.isfinite(loss):
                raise ModelError("The training failed: its loss is no longer a number.", "Try another --seed.")
            losses.append(loss)
            out_of_time = self.limit.left_s < self.limit.reserved_s  # slower than measured
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
                except GeneratorExit:  # a pause; no step is lost
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
        """Return the objective for the plan's kind of head on some shards, not prepared yet."""
        model, plan, settings = self.model, self.plan, self.plan.settings

        def read_states(number: int) -> Halves:
            if settings.kind is TrainedKind.RECURRENT:
                return self._answer_states(number, shards[number])
            return conversation_states(model, shards[number], plan.reads)

        model.hooks.read(plan.reads)
        target = Target.of(model)
        data = TrainingData(shards, read_states, plan.budget.window_tokens, settings.vocabulary)
        if not isinstance(settings.recipe, SequenceRecipe):
            return RecurrentObjective(target, data, settings.recipe, plan.head_config(model), plan.start)
        made: dict[TrainedKind, type[SequenceObjective]] = {
            TrainedKind.EAGLE3: Eagle3Objective,
            TrainedKind.DSPARK: DSparkObjective,
            TrainedKind.MTP: MtpObjective,
        }
        return made[settings.kind](target, data, settings.recipe, model=model, layers=plan.reads.layers)

    def _answer_states(self, number: int, shard: Sequence[TrainingConversation]) -> Halves:
        """Return the hidden states of a shard's answers, stored or computed again."""
        kept = self.shards.states(number)
        if kept is not None:
            return kept
        states = answer_states(self.model, shard, self.plan.reads)
        if self.plan.record.keep_states:  # for answers shipped with rdchat
            self.shards.keep_states(number, states)
        return states

    def _check_answers(self, conversations: list[TrainingConversation]) -> None:
        answers = Answers.of(conversations)
        there = ~answers.held_out
        if len(np.unique(answers.tokens[there])) <= TEACHER_TOKENS or not (answers.left[there] > 0).any():
            raise ModelError(
                f"The answers of {self.model.info.name} are not enough to learn from: they end at once, or have "
                f"hardly more than {TEACHER_TOKENS} different tokens.",
                "Choose another model.",
            )
