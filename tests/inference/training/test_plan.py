"""What is wrong is said before any long work begins."""

import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from rdchat.errors import InvalidSettingError, ModelError, RdchatError, StorageFullError
from rdchat.inference.drafter_folder import StoredDrafter, save_drafter
from rdchat.inference.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.target import LoadedModel
from rdchat.inference.target_binding import TargetBinding
from rdchat.inference.training.plan import TrainingSettings, make_plan
from tests.inference.fakes import CharacterTokenizer, tiny_llama


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return tiny_llama(0)


@pytest.fixture
def settings(tmp_path: Path) -> TrainingSettings:
    return TrainingSettings(tmp_path / "out", tokens=5000)


def test_a_plan_says_what_it_takes(model: LoadedModel, settings: TrainingSettings, cache: Path) -> None:
    plan = make_plan(model, settings, resume=False)
    assert plan.folder.is_relative_to(cache)
    assert plan.keep_states
    assert plan.data_bytes == 5000 * (2 * 32 + 6)
    wider = make_plan(model, replace(settings, target_layers=(0, 1)), resume=False)
    assert wider.data_bytes == 5000 * (3 * 2 * 32 + 6)
    assert wider.memory_bytes > plan.memory_bytes


def test_other_data_has_a_folder_of_its_own(model: LoadedModel, settings: TrainingSettings) -> None:
    plans = [settings, replace(settings, seed=1), replace(settings, prompts=("a question",))]
    assert len({make_plan(model, item, resume=False).folder for item in plans}) == 3
    longer = replace(settings, tokens=9000, out=settings.out / "other")
    assert make_plan(model, longer, resume=False).folder == make_plan(model, settings, resume=False).folder


@pytest.mark.parametrize(
    "wrong", [{"tokens": 0}, {"tokens": -5}, {"hours": 0.0}, {"hours": float("nan")}, {"seed": -1}]
)
def test_numbers_out_of_range(wrong: dict[str, float], settings: TrainingSettings) -> None:
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        replace(settings, **wrong)  # type: ignore[arg-type]


def disk_with(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 10**12 - free, free))


def test_a_disk_without_room(model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(500_020_000, monkeypatch)
    with pytest.raises(StorageFullError, match=r"would take 0\.0 GB .* room for 0\.0 GB"):
        make_plan(model, settings, resume=False)


def test_hidden_states_are_only_kept_where_there_is_room(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_with(500_400_000, monkeypatch)
    plan = make_plan(model, settings, resume=False)
    assert not plan.keep_states
    assert plan.data_bytes == 5000 * 6


def test_an_output_folder_that_holds_something_else(model: LoadedModel, settings: TrainingSettings) -> None:
    settings.out.mkdir()
    make_plan(model, settings, resume=False)  # empty
    (settings.out / "thesis.txt").write_text("years of work")
    with pytest.raises(RdchatError, match="something other than a drafter"):
        make_plan(model, settings, resume=False)


def test_an_output_that_is_a_file(model: LoadedModel, settings: TrainingSettings) -> None:
    settings.out.write_text("x")
    with pytest.raises(RdchatError, match="is a file"):
        make_plan(model, settings, resume=False)


def test_an_older_drafter_of_the_same_model_may_be_replaced(model: LoadedModel, settings: TrainingSettings) -> None:
    head = RecurrentHead(HeadConfig(32, 20, exit_size=16, state_size=16))
    save_drafter(settings.out, StoredDrafter(head, mx.arange(20), TargetBinding.of(model.info)), "card")
    make_plan(model, settings, resume=False)
    config = json.loads((settings.out / "config.json").read_text())
    config["target"]["hash"] = "0" * 64
    (settings.out / "config.json").write_text(json.dumps(config))
    with pytest.raises(RdchatError, match="something other than a drafter for tiny"):
        make_plan(model, settings, resume=False)


def test_a_training_that_has_begun_is_only_continued_when_asked(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = make_plan(model, settings, resume=False)
    (plan.folder / "shards").mkdir(parents=True)
    with pytest.raises(RdchatError, match="--resume"):
        make_plan(model, settings, resume=False)
    make_plan(model, settings, resume=True)


def test_a_template_without_a_user_role(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CharacterTokenizer, "apply_chat_template", lambda *_args, **_options: "hello")
    with pytest.raises(ModelError, match="does not show the user's text"):
        make_plan(tiny_llama(0), settings, resume=False)


def test_a_model_that_does_not_give_its_hidden_states(settings: TrainingSettings) -> None:
    silent = tiny_llama(0)
    trunk = silent.network.model
    trunk.__class__ = trunk.__class__.__mro__[1]  # without the seam
    silent.seams.hidden = None
    with pytest.raises(ModelError, match="does not give its hidden states"):
        make_plan(silent, settings, resume=False)


def test_a_model_with_recurrent_state(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdchat.inference.training.lockstep.make_prompt_cache", lambda _network: [ArraysCache(2)])
    with pytest.raises(ModelError, match="recurrent state"):
        make_plan(tiny_llama(0), settings, resume=False)
