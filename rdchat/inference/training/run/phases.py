"""The phases of a training: making the data, and learning from it.

Learning measures the head on held-out answers every minute and writes checkpoints.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rdchat.errors import ModelError
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.training.data.batched_decoding import answer_states, conversation_states
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.heads.eagle3_objective import Eagle3Objective
from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective
from rdchat.inference.training.heads.samples import TEACHER_TOKENS, Answers, Halves
from rdchat.inference.training.heads.trainer import Objective, Target, Trainer, TrainingData
from rdchat.inference.training.run.training_plan import TrainingPlan, shipped_answers
from rdchat.inference.verification.target import LoadedModel

Shards = Sequence[Sequence[TrainingConversation]]

_SAVE_EVERY = 45.0  # seconds of training that an interruption may lose
_LOOK_EVERY = 60.0  # seconds between two evaluations on held-out answers
_LOG = logging.getLogger(__name__)


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
class DataPhase:
    """Makes the data of one training, or reads it from earlier runs."""

    plan: TrainingPlan
    maker: DataMaker
    now: Callable[[], float]  # a clock, in seconds

    def run(self) -> Generator[TrainingProgress, None, list[list[TrainingConversation]]]:
        """Make the missing shards; return those to train on, which may be fewer than there are."""
        limit = self.plan.settings.tokens
        self._take_shipped()
        made = self.maker.resume()
        before = total = sum(map(answer_tokens, made))
        pace = Pace(self.now)
        while total < limit:
            for tokens in self.maker.make_shard():
                if pace.due():
                    yield self._progress(total + tokens, before, pace.spent_s)
            made.append(self.maker.shards.read(len(made)))
            total += answer_tokens(made[-1])
            yield self._progress(total, before, pace.spent_s)
        while total - answer_tokens(made[-1]) >= limit:
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

    def _progress(self, total: int, before: int, spent_s: float) -> TrainingProgress:
        """Return the progress with `total` answer tokens, `before` of them from earlier runs."""
        speed, limit = (total - before) / spent_s, self.plan.settings.tokens
        left_s = max(limit - total, 0) / speed if speed else None
        return TrainingProgress(Phase.DATA, min(total / limit, 1.0), speed, left_s=left_s)


@dataclass(frozen=True, slots=True)
class TrainPhase:
    """Prepares the data and trains a head of the plan's kind."""

    model: LoadedModel  # the target
    plan: TrainingPlan
    shards: ShardFolder  # the data, perhaps with hidden states
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
        """Train to the last step."""
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
            last = trainer.step == trainer.total
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

    def _objective(self, shards: Shards) -> Objective:
        """Return the objective for the plan's kind of head on some shards, not prepared yet."""
        model, plan, settings = self.model, self.plan, self.plan.settings

        def read_states(number: int) -> Halves:
            if settings.kind is HeadKind.RECURRENT:
                return self._answer_states(number, shards[number])
            return conversation_states(model, shards[number], plan.reads)

        model.hooks.read(plan.reads)
        target = Target.of(model)
        data = TrainingData(shards, read_states, plan.budget.window_tokens, settings.vocabulary)
        if settings.kind is HeadKind.RECURRENT:
            return RecurrentObjective(target, data, settings.recipe, plan.head_config(model), plan.start)
        return Eagle3Objective(target, data, settings.recipe, plan.reads.layers)

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
