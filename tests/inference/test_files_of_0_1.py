"""What version 0.1 wrote for the engine (`tests/fixtures/version_0_1`) is read whole: drafter, costs, trainings."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from rdchat import paths
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.auto.cost_model import CostFile
from rdchat.inference.benchmark.csv_format import read_csv
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.recurrent_head import Cell, HeadConfig
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.run.phases import Pace
from rdchat.inference.training.run.training_plan import TrainingPlan, TrainingSettings, make_plan
from rdchat.inference.training.run.training_run import DrafterTraining
from tests.inference.fakes import lenient_llama

pytestmark = pytest.mark.across_rows

FILES = Path(__file__).parents[1] / "fixtures" / "version_0_1"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return lenient_llama()


def plan_of(model: LoadedModel, phase: Phase, tmp_path: Path) -> TrainingPlan:
    """Return how the training that was interrupted in a phase goes on; `asked` is what its manifest has."""
    with tarfile.open(FILES / f"interrupted_in_{phase}.tar.xz") as archive:
        archive.extractall(paths.cache_dir(), filter="data")
    recipe = Recipe(epochs=1, batch=64, warm_up=5)
    settings = TrainingSettings(
        tmp_path / "out", tokens=1000, hours=100, sequences=2, vocabulary=32, recipe=recipe, asked=("another",)
    )
    plan = make_plan(model, settings, resume=True)
    assert plan.resumed
    assert not plan.budget.keep_states
    assert plan.settings.asked == ("what is this",)
    return plan


def first_events(model: LoadedModel, plan: TrainingPlan, phase: Phase) -> Iterator[TrainingProgress]:
    run = DrafterTraining(model, plan).run()
    for event in run:
        yield event
        if event.phase is phase:
            break
    run.close()


def test_a_drafter(model: LoadedModel) -> None:
    drafter = load_drafter(FILES / "drafter", model)
    assert drafter.target is not None
    assert (drafter.target.name, drafter.target.architecture) == ("tiny", "llama")
    stored = mx.load(str(FILES / "drafter" / "model.safetensors"))
    assert isinstance(stored, dict)
    assert drafter.vocabulary.tolist() == stored["draft_vocabulary"].tolist()
    weights = dict(tree_flatten(drafter.head.parameters()))
    assert all(mx.array_equal(weights[name], stored[name]).item() for name in weights)
    assert len(stored) == len(weights) + 1
    written = json.loads((FILES / "drafter" / "config.json").read_bytes())["architecture"]
    expected = HeadConfig(32, 30, 8, 8, cell=Cell.RNN, target_layers=(0, 1))
    assert drafter.head.config == expected
    found = drafter.head.config.to_dict()
    assert {name: found.get(name) for name in written} == written


def test_measured_costs() -> None:
    shutil.copytree(FILES / "costs", paths.cache_dir() / "costs")
    assert CostFile({"target": "tiny", "device": "CPU"}).read() == ({(1, 256): 2.5, (8, 256): 4.125}, 1)


def test_a_file_of_a_benchmark() -> None:
    record = read_csv([FILES / "runs.csv"])
    assert [cell.draft.mode for cell in record.plan.cells] == ["off", "lookup"]
    drafted = [run for run in record.runs if run.statistics.rounds]
    first = drafted[0].statistics
    found = (first.rounds, first.drafted, first.accepted, first.verified_nodes, first.host_syncs, first.target_calls)
    assert found == (3, 4, 4, 7, 3, 3)
    assert drafted[0].token_ids == (46,) * 8


def test_a_training_that_was_interrupted_in_the_data(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "EVERY", 0.0)
    plan = plan_of(model, Phase.DATA, tmp_path)
    assert (plan.folder / "wave.safetensors").exists()
    events = list(first_events(model, plan, Phase.DATA))
    assert [event.phase for event in events] == [Phase.DATA]
    assert not (plan.folder / "wave.safetensors").exists(), "its batch begins again"


def test_a_training_that_was_interrupted_in_the_training_keeps_its_data_and_learns_again(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "EVERY", 0.0)
    monkeypatch.setattr("rdchat.inference.training.run.training_run.__version__", "0.1.0")  # part of a recipe's name
    plan = plan_of(model, Phase.TRAIN, tmp_path)
    spent_s = json.loads((plan.folder / "time.json").read_bytes())["spent_s"]
    events = list(first_events(model, plan, Phase.TRAIN))
    assert {event.phase for event in events} == {Phase.PREPARE, Phase.TRAIN}, "no data is made anew"
    assert events[0].words == "Learning starts again, because the settings or the version changed."
    assert json.loads((plan.folder / "begun.json").read_bytes())["spent_s"] > spent_s, "it goes on from the older file"
