"""A training over several runs: what resumes, what starts again, and what fails."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.errors import ModelError, StorageError, StorageFullError, StorageLockedError
from rdchat.files.atomic_file import FileLock
from rdchat.inference.api import HeadKind, Phase, Recipe, TrainingProgress, TrainingSettings
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.training import data_maker, phases, training_run
from rdchat.inference.training.data_maker import DataMaker, ShardFolder, answer_tokens
from rdchat.inference.training.phases import Pace, Trainer
from rdchat.inference.training.training_plan import make_plan
from rdchat.inference.training.training_run import DrafterTraining
from rdchat.inference.verification.target import LoadedModel
from scripts.drafter.pack_answers import write_answers
from tests.disks import small_disk
from tests.inference.fakes import ALPHABET, END, lenient_llama
from tests.inference.training.short_runs import short_evaluation

SEQUENCES = 16


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with short_evaluation() as patch:
        patch.setattr(Pace, "EVERY", 0.0)
        yield


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return lenient_llama()


def settings_in(place: Path) -> TrainingSettings:
    recipe = Recipe(epochs=1, batch=64, warm_up=5, vocabulary=32)
    return TrainingSettings(place / "out", tokens=1000, sequences=SEQUENCES, recipe=recipe)


@pytest.fixture
def settings(tmp_path: Path) -> TrainingSettings:
    return settings_in(tmp_path)


@dataclass(frozen=True)
class Finished:
    """A training that was never interrupted, with a cache of its own."""

    place: Path
    settings: TrainingSettings
    events: list[TrainingProgress]

    def copied_to(self, place: Path) -> TrainingSettings:
        """Copy the drafter and all that is kept of its training; return settings that go on there."""
        for name in ("cache", "out"):
            shutil.copytree(self.place / name, place / name)
        return settings_in(place)


@pytest.fixture(scope="module")
def finished(quick: None, model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    place = tmp_path_factory.mktemp("finished")
    settings = settings_in(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDCHAT_CACHE_DIR", str(place / "cache"))
        return Finished(place, settings, train(model, settings))


def train(model: LoadedModel, settings: TrainingSettings, until: Phase = Phase.DONE) -> list[TrainingProgress]:
    """Go on with a training, up to the first event of a phase."""
    events = []
    run = DrafterTraining(model, make_plan(model, settings, resume=True)).train()
    for event in run:
        events.append(event)
        if event.phase is until:
            break
    run.close()
    return events


def phases_of(events: list[TrainingProgress]) -> list[Phase]:
    return list(dict.fromkeys(event.phase for event in events))


def weights(settings: TrainingSettings) -> dict[str, mx.array]:
    loaded = mx.load(str(settings.out / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def check_same(first: TrainingSettings, second: TrainingSettings) -> None:
    expected = weights(first)
    found = weights(second)
    assert expected.keys() == found.keys()
    assert all(mx.array_equal(expected[name], found[name]).item() for name in expected)


def train_elsewhere(model: LoadedModel, settings: TrainingSettings, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "another-cache"))
        train(model, settings)


@pytest.mark.slow
def test_every_event_says_where_its_phase_stands(finished: Finished) -> None:
    events = finished.events
    assert phases_of(events) == list(Phase)
    for phase in (Phase.DATA, Phase.TRAIN, Phase.EVALUATE):
        mine = [event for event in events if event.phase is phase]
        assert len(mine) > 2
        assert all(event.tokens_per_second and event.left_s is not None for event in mine[1:] if event.fraction)
        fractions = [event.fraction for event in mine]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1
    trained = [event for event in events if event.phase is Phase.TRAIN]
    assert all(event.loss and event.loss > 0 for event in trained)
    assert len(trained[0].accuracy) == len(trained[-1].accuracy) == 4


@pytest.mark.slow
def test_a_weight_takes_two_bytes(finished: Finished) -> None:
    """Whatever precision the target has, in which the drafter was evaluated."""
    floats = [array for name, array in weights(finished.settings).items() if "vocabulary" not in name]
    assert {array.dtype for array in floats} == {mx.float16}


@pytest.mark.slow
def test_more_tokens_make_more_data(model: LoadedModel, finished: Finished, tmp_path: Path) -> None:
    """A training that was finished before must not be handed out again for what was asked this time."""
    more = replace(finished.copied_to(tmp_path), tokens=2500)
    assert Phase.DATA in phases_of(train(model, more))
    whole = replace(more, out=tmp_path / "whole")
    train_elsewhere(model, whole, tmp_path)
    check_same(whole, more)


@pytest.mark.slow
def test_fewer_tokens_take_the_first_ones(model: LoadedModel, settings: TrainingSettings, finished: Finished) -> None:
    train(model, replace(settings, tokens=2500), until=Phase.PREPARE)
    assert Phase.DATA not in phases_of(train(model, settings))
    check_same(finished.settings, settings)


@pytest.mark.slow
def test_answers_that_ship_are_taken_before_any_is_made(
    model: LoadedModel, settings: TrainingSettings, finished: Finished, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(finished.place / "cache"))
    made = all_conversations(make_plan(model, finished.settings, resume=True).folder)
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    write_answers(tmp_path / "answers.xz", made)
    monkeypatch.setattr(phases, "shipped_path", lambda _hash: tmp_path / "answers.xz")
    settings = replace(settings, tokens=answer_tokens(made[:-1]))
    assert phases_of(train(model, settings)) == [phase for phase in Phase if phase is not Phase.DATA]
    taken = all_conversations(make_plan(model, settings, resume=True).folder)
    assert taken == made[: len(taken)]
    assert answer_tokens(taken[:-1]) < settings.tokens <= answer_tokens(taken), "no more than are needed"
    train(model, replace(settings, tokens=2 * settings.tokens), until=Phase.PREPARE)
    assert all_conversations(make_plan(model, settings, resume=True).folder)[: len(made)] == made, "then the others"
    own = replace(settings, prompts=("What is a whale?",), out=tmp_path / "own")
    assert Phase.DATA in phases_of(train(model, own, until=Phase.PREPARE)), "own questions are to be answered"


def all_conversations(folder: Path) -> list[TrainingConversation]:
    shards = ShardFolder(folder / "shards", len(ALPHABET))
    return [item for number in range(len(shards)) for item in shards.read_shard(number)]


@pytest.mark.slow
def test_another_recipe_begins_its_training_anew(model: LoadedModel, finished: Finished, tmp_path: Path) -> None:
    """Its checkpoints are no use: the learning rate would jump, or sizes would not fit."""
    settings = finished.copied_to(tmp_path)
    other = replace(settings, recipe=replace(settings.recipe, epochs=2, vocabulary=40))
    assert phases_of(train(model, other)) == list(Phase)[1:]
    alone = replace(other, out=tmp_path / "alone")
    train_elsewhere(model, alone, tmp_path)
    check_same(alone, other)


def checkpoint(model: LoadedModel, settings: TrainingSettings) -> Path:
    return next(make_plan(model, settings, resume=True).folder.glob("recipe-*/training.safetensors"))


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_the_steps_and_no_more(
    model: LoadedModel, settings: TrainingSettings, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "_SAVE_EVERY", 0.0)
    train(model, settings, until=Phase.TRAIN)
    path = checkpoint(model, settings)
    path.write_bytes(path.read_bytes()[:-100])
    train(model, settings)
    check_same(finished.settings, settings)


def test_what_it_cannot_go_on_from_is_said(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(model, settings, until=Phase.DATA)
    monkeypatch.setattr(DataMaker, "resume", lambda _: int("no number"))
    with pytest.raises(StorageError, match="cannot continue: its data in") as caught:
        train(model, settings)
    assert caught.value.hint == "Delete that folder to start again."


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "kept"), [(Phase.DATA, "begun.json"), (Phase.TRAIN, "*/training.safetensors")])
def test_a_pause_keeps_whole_batches_and_all_steps(
    phase: Phase, kept: str, model: LoadedModel, settings: TrainingSettings, finished: Finished
) -> None:
    """Closing the run is a pause; a kill may cost 45 seconds of steps."""
    train(model, settings, until=phase)
    folder = make_plan(model, settings, resume=True).folder
    assert list(folder.glob(kept))
    FileLock(folder / "lock").release()  # it was given back
    train(model, settings)
    check_same(finished.settings, settings)


@pytest.mark.slow
def test_two_drafters_are_measured_on_the_same_questions(
    model: LoadedModel, finished: Finished, tmp_path: Path
) -> None:
    shutil.copytree(finished.settings.out, tmp_path / "old")
    told: list[float] = []
    found = training_run.compare_drafters(model, finished.settings.out, str(tmp_path / "old"), told.append)
    assert (found.old, found.problem) == ("old", "")
    assert [group.group for group in found.groups] == ["explaining", "code", "all"]
    assert all(group.new is not None and group.new == group.old for group in found.groups)
    assert told == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.slow
def test_an_old_drafter_that_is_gone_is_told_of_and_the_new_one_is_measured(
    model: LoadedModel, finished: Finished, tmp_path: Path
) -> None:
    gone = str(tmp_path / "gone")
    found = training_run.compare_drafters(model, finished.settings.out, gone, lambda _: None)
    assert found.old == "gone"
    assert "There is no drafter at" in found.problem
    assert all(group.new is not None and group.old is None for group in found.groups)


def test_two_processes_cannot_train_into_one_folder(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = make_plan(model, settings, resume=True)
    first = DrafterTraining(model, plan).train()
    next(first)
    with pytest.raises(StorageLockedError, match="Another rdchat is using the training data"):
        next(DrafterTraining(model, plan).train())
    first.close()
    next(DrafterTraining(model, plan).train())


@pytest.mark.slow
def test_evaluation_that_was_interrupted_begins_again(model: LoadedModel, settings: TrainingSettings) -> None:
    train(model, settings, until=Phase.EVALUATE)
    events = train(model, settings)
    assert phases_of(events) == [Phase.EVALUATE, Phase.WRITE, Phase.DONE], "nothing is trained again"


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.DATA, Phase.PREPARE, Phase.TRAIN])
def test_a_disk_that_fills_up_is_named_and_once_there_is_room_all_goes_on(
    phase: Phase, model: LoadedModel, settings: TrainingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "_SAVE_EVERY", 0.0)
    (tmp_path / "cache").mkdir()
    with small_disk(tmp_path / "cache", kibibytes=4096) as disk:
        monkeypatch.setattr("rdchat.inference.training.training_plan._SPARE_BYTES", 0)
        run = DrafterTraining(model, make_plan(model, settings, resume=True)).train()
        next(event for event in run if event.phase is phase)
        disk.fill()
        with pytest.raises(StorageFullError, match="the disk is full"):
            list(run)
        disk.free()
        assert phases_of(train(model, settings))[-1] is Phase.DONE
    assert load_drafter(settings.out, model).kind is HeadKind.RECURRENT


@pytest.mark.slow
def test_a_full_disk_leaves_an_older_drafter_whole(model: LoadedModel, finished: Finished, tmp_path: Path) -> None:
    settings = finished.copied_to(tmp_path)
    before = weights(settings)
    other = replace(settings, seed=1)
    train(model, other, until=Phase.WRITE)
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        out = tmp_path / "disk" / "out"
        settings.out.rename(tmp_path / "kept")
        out.mkdir()
        for file in (tmp_path / "kept").iterdir():
            (out / file.name).write_bytes(file.read_bytes())
        plan = make_plan(model, replace(other, out=out), resume=True)
        disk.fill()
        with pytest.raises(StorageFullError, match="the disk is full"):
            list(DrafterTraining(model, plan).train())
        files = {"config.json", "model.safetensors", "card.md"}
        assert {path.name for path in out.iterdir()} == files
        kept = load_drafter(out, model).network
        assert mx.array_equal(kept.output.weight, before["output.weight"]).item()


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_training(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "train", lambda *_a, **_o: iter([float("nan")]))
    with pytest.raises(ModelError, match="its loss is no longer a number"):
        train(model, settings)
    assert not settings.out.exists()


@pytest.mark.slow
def test_a_model_that_ends_its_answers_at_once(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = lenient_llama()
    monkeypatch.setattr(data_maker, "_draw", lambda _, rows: mx.full(len(rows), END, mx.uint32))
    with pytest.raises(ModelError, match="The answers of tiny are not enough to learn from"):
        train(mute, replace(settings, sequences=128))
