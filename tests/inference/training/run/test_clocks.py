"""Hours are counted over interruptions, and divided by measured speeds."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.training.data.shards import ShardFolder
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.run.phases import LearningCost, TimeLimit
from rdchat.inference.training.run.training_plan import TrainingSettings, make_plan
from rdchat.inference.training.run.training_run import DrafterTraining
from tests.clocks import ManualClock
from tests.inference.fakes import lenient_llama
from tests.inference.training.short_runs import short_evaluation


def test_time_between_two_runs_does_not_count() -> None:
    clock = ManualClock()
    first = TimeLimit(1.0, 0.0, clock)
    clock.now += 600
    spent_s = first.spent_s
    assert first.left_s == 3000
    clock.now += 86_400
    second = TimeLimit(1.0, spent_s, clock)
    clock.now += 3100
    assert second.left_s == -100


def test_without_hours_there_is_no_limit() -> None:
    limit = TimeLimit(None, 0.0, ManualClock())
    assert not limit
    assert limit.left_s == float("inf")
    assert limit.reserved_s == 0


def test_what_follows_the_data_grows_with_it() -> None:
    cost = LearningCost(reading_s=0.004, learning_s=0.003, epochs=2, read_once=1000)
    assert cost.seconds(1000) == pytest.approx(1.2 * 10)
    assert cost.seconds(2000) == pytest.approx(1.2 * 2000 * (3 * 0.004 + 2 * 0.003)), "read in every epoch"
    assert cost.seconds(0) == 0


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with short_evaluation(questions=1):
        yield


SECONDS = 4000  # a batch looks at the clock some hundred times


class Training:
    """Trainings of one tiny model whose clock goes on by a second with each look at it."""

    def __init__(self, folder: Path, seconds: float) -> None:
        recipe = Recipe(epochs=1, batch=64, warm_up=5)
        self.clock = count()
        self.settings = TrainingSettings(
            folder / "out", tokens=50_000, hours=seconds / 3600, sequences=4, vocabulary=32, recipe=recipe
        )
        self.model = lenient_llama()
        self.plan = make_plan(self.model, self.settings, resume=False)

    def run(self, stop_behind_batches: int | None = None) -> list[TrainingProgress]:
        events = []
        for event in DrafterTraining(self.model, self.plan, lambda: float(next(self.clock))).run():
            events.append(event)
            if len(events) == stop_behind_batches:
                break
        return events

    def batches(self) -> int:
        return len(ShardFolder(self.plan.folder / "shards", self.model.info.vocabulary_size))


@pytest.mark.slow
def test_data_gets_what_the_phases_behind_it_leave(tmp_path: Path) -> None:
    training = Training(tmp_path, seconds=SECONDS)
    events = training.run()
    assert events[-1].phase is Phase.DONE
    assert training.batches() > 1
    made = [event for event in events if event.phase is Phase.DATA]
    assert 0 < made[0].fraction < made[-1].fraction <= 1
    assert next(training.clock) < SECONDS


@pytest.mark.slow
def test_an_interruption_does_not_set_the_clock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    whole = Training(tmp_path / "whole", seconds=SECONDS)
    whole.run()
    batches = whole.batches()
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "other"))
    (tmp_path / "parts").mkdir()
    parts = Training(tmp_path / "parts", seconds=SECONDS)
    parts.run(stop_behind_batches=2)
    assert parts.run()[-1].phase is Phase.DONE
    assert 1 < parts.batches() <= batches
