"""The data phase of a training: as many answers as were asked for, or as `--hours` leaves time for."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.run.clocks import LearningCost, Pace, TimeLimit
from rdchat.inference.training.run.run_record import RunRecord


class DataPhase:
    """Makes the data of one training, and reads it back.

    Args:
        shards: The folder of the data.
        maker: Makes the data.
        tokens: Answer tokens that are wanted.
        limit: Of time.
        record: Takes how many shards a training with a limit of time uses, so that it is decided once.
        measure: Measures on the first shard what preparing and learning cost.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        shards: ShardFolder,
        maker: DataMaker,
        tokens: int,
        limit: TimeLimit,
        record: RunRecord,
        *,
        measure: Callable[[], LearningCost],
        now: Callable[[], float],
    ) -> None:
        self._shards, self._maker, self._tokens = shards, maker, tokens
        self._limit, self._record, self._measure, self._now = limit, record, measure, now
        self._cost: LearningCost | None = None

    def run(self) -> Iterator[TrainingProgress]:
        """Make the shards that are missing; yield progress."""
        if self._decided is not None:
            return
        before = self._maker.resume()
        total, pace, left = before, Pace(self._now), self._time_for_data(before)
        longest_s = 0.0  # of a batch: those about long texts take several times as long as others
        while total < self._tokens and left > 0:
            batch_began, made = self._now(), 0
            with closing(self._maker.make_shard()) as batch:
                for made in batch:
                    if pace.due():
                        yield self._progress(total + made, before, pace.spent_s, min(left, max(self._limit.left_s, 0)))
            longest_s = max(longest_s, self._now() - batch_began)
            total += made
            left = self._time_for_data(total, made, longest_s)
            yield self._progress(total, before, pace.spent_s, left)
        if self._limit:
            self._record.hours, self._record.shards = self._limit.hours, len(self._shards)

    def take(self, shipped: Sequence[TrainingConversation], batch: int) -> None:
        """Write conversations that ship with rdchat, as many as are wanted, where no others were made yet.

        Args:
            shipped: All of them.
            batch: Conversations of a shard.
        """
        if not shipped or self._decided is not None:
            return
        there = [item for number in range(len(self._shards)) for item in self._shards.read(number)]
        if there != list(shipped[: len(there)]):
            return
        left, taken = self._tokens - answer_tokens(there), list[TrainingConversation]()
        for item in shipped[len(there) :]:
            if left <= 0:
                break
            taken.append(item)
            left -= len(item.answer)
        for start in range(0, len(taken), batch):
            self._shards.append(taken[start : start + batch])

    def data(self) -> list[list[TrainingConversation]]:
        """Return the conversations of each shard that the training takes: perhaps fewer than there are."""
        most, found, total = self._decided, [], 0
        for number in range(len(self._shards) if most is None else most):
            if most is None and total >= self._tokens:
                break
            found.append(self._shards.read(number))
            total += answer_tokens(found[-1])
        return found

    @property
    def _decided(self) -> int | None:
        """The number of shards that an earlier run with the same hours decided on."""
        return self._record.shards if self._limit and self._record.hours == self._limit.hours else None

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
        speed = (total - before) / spent_s
        left = min(left, max(self._tokens - total, 0) / speed if speed else math.inf)
        fraction = spent_s / (spent_s + left) if self._limit else min(total / self._tokens, 1.0)
        return TrainingProgress(Phase.DATA, fraction, speed, left_s=left if math.isfinite(left) else None)
