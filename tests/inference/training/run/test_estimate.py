"""What a training would take, by a clock that is moved by hand."""

from itertools import count
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.training.head.trainer import Recipe
from rdchat.inference.training.run.estimate import estimate_training
from rdchat.inference.training.run.recipes import default_recipe
from rdchat.inference.training.run.training_plan import TrainingSettings, make_plan
from tests.inference.fakes import lenient_llama


class Clock:
    """Goes on by so many seconds at each look."""

    def __init__(self, step: float) -> None:
        self._ticks, self._step = count(), step

    def __call__(self) -> float:
        return next(self._ticks) * self._step


def estimated(place: Path, clock: Clock, **settings: object) -> tuple[int, float]:
    model = lenient_llama()
    wanted = TrainingSettings(place / "out", sequences=8, vocabulary=32, **settings)  # type: ignore[arg-type]
    found = estimate_training(model, make_plan(model, wanted, resume=False), 10, clock)
    assert min(found.disk_bytes, found.memory_bytes) > 0
    assert found.model_bytes == model.info.weights_bytes
    assert not list(paths.cache_dir().glob("training/**/*"))
    return found.tokens, found.seconds


def recipe(epochs: int = 1) -> Recipe:
    return Recipe(epochs=epochs, batch=64, warm_up=5)


def test_more_tokens_and_more_epochs_take_longer(tmp_path: Path) -> None:
    few = estimated(tmp_path, Clock(0.1), tokens=2000, recipe=recipe())
    many = estimated(tmp_path, Clock(0.1), tokens=20_000, recipe=recipe())
    often = estimated(tmp_path, Clock(0.1), tokens=2000, recipe=recipe(5))
    assert (few[0], many[0], often[0]) == (2000, 20_000, 2000)
    assert many[1] > 2 * few[1]
    assert often[1] > few[1]


def test_hours_are_kept_and_give_tokens_by_the_machines_speed(tmp_path: Path) -> None:
    slow = estimated(tmp_path, Clock(1.0), hours=2.0, tokens=10_000_000, recipe=recipe())
    fast = estimated(tmp_path, Clock(0.1), hours=2.0, tokens=10_000_000, recipe=recipe())
    assert fast[0] > 5 * slow[0]
    assert slow[1] <= 7200
    assert 7000 < fast[1] <= 7200


def test_one_batch_is_made_however_little_time_there_is(tmp_path: Path) -> None:
    tokens, seconds = estimated(tmp_path, Clock(100.0), hours=0.1, tokens=10_000_000, recipe=recipe())
    assert tokens == 800
    assert seconds == 360


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TrainedKind.EAGLE3, TrainedKind.DSPARK])
def test_every_kind_can_be_estimated(kind: TrainedKind, tmp_path: Path) -> None:
    tokens, seconds = estimated(tmp_path, Clock(0.01), tokens=1000, kind=kind, recipe=default_recipe(kind))
    assert tokens == 1000
    assert seconds > 0
