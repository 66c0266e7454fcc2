"""The data phase of a training: as many answers as were asked for, or as `--hours` leaves time for."""

import math
from collections.abc import Callable, Generator
from contextlib import closing

from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.seed_prompts import SeedPromptSource
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.run.clocks import LearningCost, Pace, TimeLimit
from rdchat.inference.training.run.training_plan import TrainingPlan, shipped_answers


class DataPhase:
    """Makes the data of one training, and reads it back.

    Args:
        model: The target.
        plan: The plan of the training. Its record takes how many shards a training with a limit of time uses, so that
            it is decided once.
        shards: The folder of the data.
        limit: Of time.
        measure: Measures on the first shard what preparing and learning cost.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        model: LoadedModel,
        plan: TrainingPlan,
        shards: ShardFolder,
        limit: TimeLimit,
        *,
        measure: Callable[[], LearningCost],
        now: Callable[[], float],
    ) -> None:
        self._plan, self._shards, self._limit, self._measure, self._now = plan, shards, limit, measure, now
        settings = plan.settings
        self._maker = DataMaker(
            model,
            plan.record.template,
            SeedPromptSource(settings.seed, (*settings.prompts, *settings.asked)).seed_prompt,
            shards,
            plan.folder / "wave.safetensors",
            seed=settings.seed,
            sequences=settings.sequences,
            keep_states=plan.record.keep_states,
            now=now,
        )
        self._cost: LearningCost | None = None

    def run(self) -> Generator[TrainingProgress, None, list[list[TrainingConversation]]]:
        """Make the shards that are missing; return those that the training takes: perhaps fewer than there are."""
        limit, record, most = self._limit, self._plan.record, self._plan.settings.tokens
        if limit and record.hours == limit.hours and record.shards is not None:
            return [self._shards.read(number) for number in range(record.shards)]
        self._take_shipped()
        made = self._maker.resume()
        before = total = sum(map(answer_tokens, made))
        pace, left = Pace(self._now), self._time_for_data(total)
        longest_s = 0.0  # of a batch: those about long texts take several times as long as others
        while total < most and left > 0:
            began = self._now()
            with closing(self._maker.make_shard()) as batch:
                for tokens in batch:
                    if pace.due():
                        left = min(left, max(limit.left_s, 0))
                        yield self._progress(total + tokens, before, pace.spent_s, left)
            longest_s = max(longest_s, self._now() - began)
            made.append(self._shards.read(len(made)))
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
        """Write conversations that ship with rdchat, as many as are wanted, where no others were made yet."""
        settings = self._plan.settings
        shipped = shipped_answers(self._plan.binding, settings)
        there = [item for number in range(len(self._shards)) for item in self._shards.read(number)] if shipped else []
        if there != shipped[: len(there)]:
            return
        left, taken = settings.tokens - answer_tokens(there), list[TrainingConversation]()
        for item in shipped[len(there) :]:
            if left <= 0:
                break
            taken.append(item)
            left -= len(item.answer)
        for start in range(0, len(taken), settings.sequences):
            self._shards.append(taken[start : start + settings.sequences])

    def _time_for_data(self, tokens: int, following: int = 0, batch_s: float = 0.0) -> float:
        """Return the seconds that are left for data.

        Args:
            tokens: Answer tokens that there are.
            following: Answer tokens of another batch.
            batch_s: Seconds that it takes.
        """
        if not self._limit or not tokens:
            return math.inf
        self._cost = self._cost or self._measure()
        later_s = self._cost.seconds(tokens + following) + self._limit.reserved_s
        return max(self._limit.left_s - later_s - batch_s, 0)

    def _progress(self, total: int, before: int, spent_s: float, left: float) -> TrainingProgress:
        speed, most = (total - before) / spent_s, self._plan.settings.tokens
        left = min(left, max(most - total, 0) / speed if speed else math.inf)
        fraction = spent_s / (spent_s + left) if self._limit else min(total / most, 1.0)
        return TrainingProgress(Phase.DATA, fraction, speed, left_s=left if math.isfinite(left) else None)
