"""Drafter heads are listed with the models that they fit, without loading those."""

import json
import shutil
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.inference.api import HeadKind
from rdchat.inference.drafting.checkpoints.installed_drafters import fitting_drafters
from rdchat.inference.library.model_library import library_models
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import apple_checkpoint, saved_random_drafter, with_files
from tests.inference.drafting.checkpoints.eagle3_folders import eagle3_folder, sizes_of
from tests.inference.fakes import tiny_llama
from tests.inference.library.conftest import into_hub_cache


@pytest.fixture
def target(tmp_path: Path) -> LoadedModel:
    """A target with files, and a configuration as its family has it."""
    (tmp_path / "models").mkdir()
    target = with_files(tiny_llama(), tmp_path / "models" / "target", "{}")
    width, vocabulary, depth = sizes_of(target)
    config = {"model_type": "llama", "hidden_size": width, "vocab_size": vocabulary, "num_hidden_layers": depth}
    (target.info.path / "config.json").write_text(json.dumps(config))
    return target


def names(folder: Path) -> dict[str, tuple[HeadKind | None, bool]]:
    found = [each for each in fitting_drafters(folder) if each.origin != "Comes with rdchat"]
    return {each.name: (each.kind, each.match.sure) for each in found}


def test_heads_are_told_by_hash_or_by_sizes(target: LoadedModel, tmp_path: Path, hub_cache: Path) -> None:
    own = paths.drafters_dir()
    own.mkdir(parents=True)
    saved_random_drafter(target, own / "mine", 32)
    into_hub_cache(eagle3_folder(tmp_path / "eagle", target), hub_cache, "some-org/eagle")
    apple_checkpoint(own / "apples", sizes_of(target)[0], 64, 1, True, sizes_of(target)[1])
    told = names(target.info.path)
    assert next(iter(told)) == "mine"  # the sure ones first
    assert told == {
        "mine": (HeadKind.RECURRENT, True),
        "apples": (HeadKind.RECURRENT, False),
        "some-org/eagle": (HeadKind.EAGLE3, False),
    }
    eagle = next(each for each in fitting_drafters(target.info.path) if each.name == "some-org/eagle")
    assert eagle.weights_bytes == (tmp_path / "eagle" / "model.safetensors").stat().st_size
    assert "when the model is loaded" in eagle.match.text


def test_heads_of_other_models_are_left_out(
    target: LoadedModel, small_model: Path, tmp_path: Path, hub_cache: Path
) -> None:
    own = paths.drafters_dir()
    own.mkdir(parents=True)
    saved_random_drafter(target, own / "mine", 32)
    into_hub_cache(eagle3_folder(tmp_path / "eagle", target), hub_cache, "some-org/eagle")
    assert names(small_model) == {}
    deeper = json.loads((target.info.path / "config.json").read_text())
    other = Path(shutil.copytree(target.info.path, tmp_path / "other"))
    (other / "config.json").write_text(json.dumps(deeper | {"hidden_size": deeper["hidden_size"] * 2}))
    assert names(other) == {"mine": (HeadKind.RECURRENT, True)}  # the weights are the same
    (other / "model.safetensors").unlink()
    assert names(other) == {}


def test_all_drafters_are_listed_beside_the_models(target: LoadedModel, tmp_path: Path, hub_cache: Path) -> None:
    own = saved_random_drafter(target, paths.drafters_dir() / "mine", 32)
    cached = into_hub_cache(eagle3_folder(tmp_path / "eagle", target), hub_cache, "some-org/eagle")
    for _ in range(2):  # the second time from the cache of facts
        found = {model.name: model for model in library_models()}
        assert {name: (each.family, each.path, each.is_drafter) for name, each in found.items()} == {
            "mine": ("Recurrent", own, True),
            "some-org/eagle": ("EAGLE-3", cached, True),
        }
        assert found["some-org/eagle"].repository == "some-org/eagle"
        assert not any(each.problem or each.can_be_loaded for each in found.values())
        assert found["mine"].disk_bytes == sum(path.stat().st_size for path in own.iterdir())


def test_a_file_or_nothing_has_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert fitting_drafters(tmp_path / "model.gguf") == fitting_drafters(tmp_path / "nothing") == ()
    with pytest.raises(Exception, match="no folder"):
        check_model_folder(tmp_path / "nothing")
