"""Drafters are found in all places, and those that do not fit the loaded model say why."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.inference.api import DraftSettings, HeadKind, Mode, ModelCard, Origin
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.checkpoints.drafter_search import resolve_drafter
from rdchat.inference.drafting.heads.block_network import Markov
from rdchat.inference.library.model_library import installed_drafters
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import (
    apple_checkpoint,
    hub_snapshot,
    saved_random_drafter,
    with_files,
)
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.drafting.heads.eagle3_drafters import LAYOUTS, eagle3_folder
from tests.inference.fakes import ask, shared_llama

OTHER = DraftSettings()
GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A target with files, in a home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "models").mkdir()
    return with_files(shared_llama(), tmp_path / "models" / "target", "{}")


def found(target: LoadedModel) -> dict[str, ModelCard]:
    every = installed_drafters(target.info.path)
    assert len({each.model for each in every}) == len(every)
    return {each.name: each for each in every if each.origin != Origin.SHIPPED}


def test_they_are_found_wherever_they_may_lie(target: LoadedModel, tmp_path: Path) -> None:
    own = paths.drafters_dir() / "mine"
    own.parent.mkdir(parents=True)
    saved_random_drafter(target, own, 32)
    saved_random_drafter(target, target.info.path / "inside", 32)
    saved_random_drafter(target, target.info.path.parent / "next to it", 32)
    saved_random_drafter(target, hub_snapshot(tmp_path / "hub", "some-org/a-drafter"), 32)
    studio = tmp_path / "home/.lmstudio/models/someone"
    studio.mkdir(parents=True)
    apple_checkpoint(studio / "apples", 32, 64, 1, True, 31)
    told = found(target)
    assert {name: (each.model, each.origin) for name, each in told.items()} == {
        "mine": (str(own), Origin.TRAINED),
        "inside": (str(target.info.path / "inside"), Origin.NEAR_MODEL),
        "next to it": (str(target.info.path.parent / "next to it"), Origin.NEAR_MODEL),
        "some-org/a-drafter": ("some-org/a-drafter", "Hugging Face"),
        "someone/apples": (str(studio / "apples"), "LM Studio"),
    }
    assert {(each.kind, each.problem) for each in told.values()} == {(HeadKind.RECURRENT, "")}


def test_published_drafters_are_found_with_their_kind(target: LoadedModel) -> None:
    own = paths.drafters_dir()
    for folder in GOLDEN.glob("eagle3_*"):
        shutil.copytree(folder, own / folder.name)
    told = found(target)
    assert len(told) >= 5
    assert {(each.kind, each.problem) for each in told.values()} == {(HeadKind.EAGLE3, "")}
    fits = ChatSession(target).draft_options(OTHER, [each.model for each in told.values()]).drafters
    assert all(" it needs a model with " in fit.problem or fit.match for fit in fits)


def test_published_drafters_are_told_from_models_that_lie_beside_them(target: LoadedModel, tmp_path: Path) -> None:
    """Some come with a tokenizer, as models do."""
    written = {
        "z-lab/a": lambda folder: written_block(folder, target),
        "deepspec/a": lambda folder: written_block(folder, target, markov=Markov.VANILLA),
        **{f"{layout}/a": partial(eagle3_folder, model=target, layout=layout) for layout in LAYOUTS},
    }
    for name, write in written.items():
        folder = hub_snapshot(tmp_path / "hub", name)
        write(folder)
        (folder / "tokenizer.json").write_text("{}")
    told = found(target)
    assert set(told) == set(written)
    kinds = {name: each.kind for name, each in told.items()}
    assert kinds == {name: HeadKind.EAGLE3 if name.split("/")[0] in LAYOUTS else HeadKind.BLOCK for name in written}
    fits = ChatSession(target).draft_options(OTHER, list(written)).drafters
    assert [fit.problem for fit in fits] == [""] * len(written)
    assert not any(fit.match.sure for fit in fits if fit.match)


def test_models_are_no_drafters_and_damaged_drafters_say_what_is_wrong(target: LoadedModel, tmp_path: Path) -> None:
    beside = target.info.path.parent
    (target.info.path / "config.json").write_text('{"model_type": "llama", "hidden_size": 32}')
    shutil.copytree(target.info.path, beside / "another model")
    (beside / "empty").mkdir()
    cut = saved_random_drafter(target, hub_snapshot(tmp_path / "hub", "some-org/cut"), 32)
    (cut / "model.safetensors").unlink()
    eagle = hub_snapshot(tmp_path / "hub", "some-org/pickled")
    eagle.mkdir()
    (eagle / "config.json").write_text(json.dumps({"draft_vocab_size": 8, "model_type": "llama"}))
    (eagle / "pytorch_model.bin").write_bytes(b"")
    odd = paths.drafters_dir() / "odd"
    odd.mkdir(parents=True)
    (odd / "config.json").write_text("[" * 100_000)
    told = found(target)
    assert set(told) == {"some-org/cut", "some-org/pickled", "odd"}
    assert all(each.problem and each.kind is None for each in told.values())
    assert "The drafter some-org/cut " in told["some-org/cut"].problem, "a hash says nothing"
    assert "pytorch_model.bin" in told["some-org/pickled"].problem


def test_which_of_them_fit_is_told_with_the_reason(target: LoadedModel, tmp_path: Path) -> None:
    fits = saved_random_drafter(target, tmp_path / "fits", 32)
    other = with_files(shared_llama(seed=7), tmp_path / "other", "{}")
    of_other = saved_random_drafter(other, tmp_path / "of other", 32)
    apple_checkpoint(tmp_path / "apples", 32, 64, 1, True, 31)
    session = ChatSession(target)
    names = [str(fits), str(of_other), str(tmp_path / "apples"), str(tmp_path / "gone"), "no-org/none"]
    good, wrong, unsure, gone, absent = session.draft_options(OTHER, names).drafters
    assert [each.drafter for each in (good, wrong, unsure, gone, absent)] == names
    assert good.match is not None
    assert (good.match.sure, good.match.text, good.problem) == (True, "", "")
    assert wrong.match is None
    assert "not for the loaded" in wrong.problem
    assert unsure.match is not None
    assert not unsure.match.sure
    assert unsure.match.text == "It does not say which model it is for; its sizes fit tiny."
    assert "gone" in gone.problem
    assert absent.problem == "no-org/none is neither a folder nor a drafter in the Hugging Face cache."


def test_a_drafter_that_is_gone_is_noticed(target: LoadedModel, tmp_path: Path) -> None:
    folder = saved_random_drafter(target, tmp_path / "fits", 32)
    session = ChatSession(target)
    (first,) = session.draft_options(OTHER, [str(folder)]).drafters
    assert not first.problem
    (folder / "config.json").unlink()
    (gone,) = session.draft_options(OTHER, [str(folder)]).drafters
    assert gone.problem


def test_a_drafter_in_the_hubs_cache_drafts_by_its_id_and_is_never_fetched(target: LoadedModel, tmp_path: Path) -> None:
    snapshot = saved_random_drafter(target, hub_snapshot(tmp_path / "hub", "some-org/a-drafter"), 32)
    assert resolve_drafter("some-org/a-drafter") == snapshot
    with pytest.raises(ModelError, match="neither a folder nor a drafter in the Hugging Face cache") as refused:
        resolve_drafter("some-org/another")
    assert "rdchat models download some-org/another" in refused.value.hint
    session = ChatSession(target, Drafters(target))
    for mode, source in ((Mode.DRAFTER, "some-org/a-drafter"), (Mode.AUTO, "some-org/a-drafter, prompt lookup")):
        settings = DraftSettings(mode, drafter="some-org/a-drafter")
        *_, end = session.generate(replace(ask("abc", max_tokens=6), draft=settings))
        assert (end.mode, end.mode_reason, end.drafter, end.kind) == (mode, None, source, HeadKind.RECURRENT)
        told = {option.mode: option for option in session.draft_options(settings).modes}[mode]
        assert (told.kind, told.match is not None and told.match.sure) == (HeadKind.RECURRENT, True)
