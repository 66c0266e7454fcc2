"""The whole training of an EAGLE-3 head, which is stored as others publish theirs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.training import Phase
from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash, check_drafter, load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.models.model_files import TargetBinding, target_hash
from rdchat.inference.training.heads.recipes import default_recipe
from rdchat.inference.training.run import phases
from rdchat.inference.training.run.phases import Pace
from rdchat.inference.training.run.training_plan import TrainingSettings, make_plan
from rdchat.inference.training.run.training_run import DrafterTraining
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ask, lenient_llama
from tests.inference.plain_replies import drafted, plain
from tests.inference.training.short_runs import short_evaluation


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with short_evaluation() as patch:
        patch.setattr(Pace, "EVERY", 0.0)
        patch.setattr(phases, "_SAVE_EVERY", 0.0)
        yield


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return lenient_llama()


def settings_of(out: Path, **changes: Any) -> TrainingSettings:
    recipe = replace(default_recipe(HeadKind.EAGLE3), epochs=1, warm_up=5, vocabulary=32, **changes)
    return TrainingSettings(out, tokens=1000, sequences=16, recipe=recipe, kind=HeadKind.EAGLE3)


def train(model: LoadedModel, settings: TrainingSettings, until: Phase = Phase.DONE) -> list[Phase]:
    run, met = DrafterTraining(model, make_plan(model, settings, resume=True)).run(), list[Phase]()
    for event in run:
        met.append(event.phase)
        if event.phase is until:
            break
    run.close()
    return list(dict.fromkeys(met))


@pytest.mark.slow
def test_a_training_ends_in_a_drafter_of_the_model_s_own(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    out = tmp_path / "data" / "drafters" / "own"
    assert train(model, settings_of(out)) == list(Phase)
    assert {path.name for path in out.iterdir()} == {"config.json", "model.safetensors", "card.md"}
    assert bound_hash(out) == TargetBinding.of(model.info).hash
    assert search_drafters(target_hash(model.info.path)).folder == out
    assert check_drafter(out, model).sure
    card = (out / "card.md").read_text(encoding="utf-8")
    assert "EAGLE-3 drafter for tiny" in card
    assert "| kind | eagle3 |" in card
    head = HeadModel(model, load_drafter(out, model))
    request = ask(temperature=0.7)
    drafter = head.drafter(model.encode_chat(request.messages, False), request)
    *_, end = drafted(model, request, drafter)[0]
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.drafted > 0
    file = out / "config.json"
    config = json.loads(file.read_bytes())
    theirs = config["rdchat"]["target"] | {"name": "another", "hash": "0" * 64}
    for binding, words in (({}, "does not say which model"), ({"target": theirs}, "was trained for the model another")):
        file.write_text(json.dumps(config | {"rdchat": binding}))
        with pytest.raises(ModelError, match=words):
            check_drafter(out, model)
    del config["rdchat"]
    file.write_text(json.dumps(config))
    assert not check_drafter(out, model).sure


@pytest.mark.slow
def test_an_interrupted_training_ends_in_the_same_weights_and_shares_its_data(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("whole", "parts"):
        monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / name))
        settings = settings_of(tmp_path / name / "out")
        if name == "parts":
            train(model, settings_of(tmp_path / "other", steps=2), until=Phase.PREPARE)
            assert Phase.DATA not in train(model, settings, until=Phase.PREPARE)
            train(model, settings, until=Phase.TRAIN)
            train(model, settings, until=Phase.EVALUATE)
        train(model, settings)
        found.append(mx.load(str(settings.out / "model.safetensors")))
    whole, parts = found
    assert isinstance(whole, dict)
    assert isinstance(parts, dict)
    assert whole.keys() == parts.keys()
    assert all(mx.array_equal(whole[name], parts[name]).item() for name in whole)
