"""The data phase of a training: as many answers as were asked for, or as `--hours` leaves time for."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rdchat.files.atomic_file import write_json
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.run.time_limit import Costs, TimeLimit
from rdchat.inference.training.training_progress import Pace, Phase, TrainingProgress


class DataPhase:
    """Makes the data of one training, and reads it back.

    Args:
        shards: The folder that keeps it.
        maker: Makes it.
        tokens: Answer tokens that are wanted.
        limit: Of time.
        measure: Measures on the first shard how long the phases after this one take.
        shipped: Returns conversations that are taken before any is made.
        batch: How many of those make a shard.
        decided: The JSON file that keeps how many shards a training with `--hours` takes.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        shards: ShardFolder,
        maker: DataMaker,
        tokens: int,
        limit: TimeLimit,
        measure: Callable[[], Costs],
        *,
        shipped: Callable[[], Sequence[TrainingConversation]] = tuple,
        batch: int = 128,
        decided: Path,
        now: Callable[[], float],
    ) -> None:
        self._shards = shards
        self._maker = maker
        self._tokens = tokens
        self._limit = limit
        self._measure = measure
        self._shipped = shipped
        self._batch = batch
        self._decided = decided
        self._now = now

    def run(self) -> Iterator[TrainingProgress]:
        """Make the shards that are missing; yield progress."""
        if self._decided_shards() is not None:  # the clock must not decide a second time
            return
        self._take_shipped()
        before = self._maker.resume()
        total, pace, left, costs = before, Pace(self._now), math.inf, None
        if self._limit and total:
            costs = self._measure()
            left = max(self._limit.left_s - costs.after_data(total), 0)
        longest_s = 0.0  # of a batch: those about long texts take several times as long as others
        while total < self._tokens and left > 0:
            batch_began, made = self._now(), 0
            with closing(self._maker.make_shard()) as batch:
                for made in batch:
                    if pace.due():
                        yield self._progress(total + made, before, pace.spent_s, min(left, max(self._limit.left_s, 0)))
            total += made
            if self._limit:
                costs = costs or self._measure()
                # time for another batch, and for all that follows it
                longest_s = max(longest_s, self._now() - batch_began)
                left = max(self._limit.left_s - costs.after_data(total + made) - longest_s, 0)
            yield self._progress(total, before, pace.spent_s, left)
        if self._limit:
            write_json(self._decided, {"hours": self._limit.hours, "shards": len(self._shards)})

    def _take_shipped(self) -> None:
        """Write as many of the conversations that ship with rdchat as are wanted, where no others were made yet."""
        shipped = self._shipped()
        if not shipped:
            return  # and no shard is read for it
        there = [item for number in range(len(self._shards)) for item in self._shards.read(number)]
        left = self._tokens - answer_tokens(there)
        if there != list(shipped[: len(there)]):
            return
        taken: list[TrainingConversation] = []
        for item in shipped[len(there) :]:
            if left <= 0:
                break
            taken.append(item)
            left -= len(item.answer)
        for start in range(0, len(taken), self._batch):
            self._shards.append(taken[start : start + self._batch])

    def data(self) -> list[list[TrainingConversation]]:
        """Return the conversations of each shard that the training takes: perhaps fewer than there are."""
        most, found, total = self._decided_shards(), [], 0
        for number in range(len(self._shards) if most is None else most):
            if most is None and total >= self._tokens:
                break
            found.append(self._shards.read(number))
            total += answer_tokens(found[-1])
        return found

    def _decided_shards(self) -> int | None:
        """Return how many shards an earlier run with the same hours decided on; None where none did."""
        try:
            noted = json.loads(self._decided.read_bytes())
            return int(noted["shards"]) if self._limit and noted["hours"] == self._limit.hours else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _progress(self, total: int, before: int, spent_s: float, left: float) -> TrainingProgress:
        speed = (total - before) / spent_s
        left = min(left, max(self._tokens - total, 0) / speed if speed else math.inf)
        fraction = spent_s / (spent_s + left) if self._limit else min(total / self._tokens, 1.0)
        return TrainingProgress(Phase.DATA, fraction, speed, left_s=left if math.isfinite(left) else None)
