"""Everything that can be run is listed, with facts from headers as before the download; nothing else is."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from rdchat import paths
from rdchat.hub import HubFile, RepositoryFiles, repository_of
from rdchat.hub.downloads.download_record import write_record
from rdchat.inference.api import HeadKind
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.library.model_library import (
    facts_reader,
    fitting_drafters,
    installed_models,
    library_models,
    problem_of,
)
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.verification.target import LoadedModel
from rdchat.work.child_process import ChildProcess, Limits
from tests.inference.drafting.checkpoints.drafter_folders import apple_checkpoint, saved_random_drafter, with_files
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder, sizes_of
from tests.inference.fakes import tiny_llama
from tests.inference.library.conftest import into_hub_cache
from tests.processes import kill_while_asked

NEWER = "f" * 40


def test_models_of_all_places_are_listed_with_their_figures(small_model: Path, home: Path, hub_cache: Path) -> None:
    into_hub_cache(small_model, hub_cache, "some-org/small-4bit")
    shutil.copytree(small_model, home / ".lmstudio/models/mlx-community/Small")
    shutil.copytree(small_model, home / ".cache/lm-studio/models/older/Small")
    own = home / "models"
    shutil.copytree(small_model, own / "mine")
    shutil.copytree(small_model, own / "team" / "theirs")
    (own / "tiny-Q4_0.gguf").write_bytes(b"GGUF")
    paths.models_dir().mkdir(parents=True)
    shutil.copytree(small_model, paths.default_model_dir())
    shutil.copytree(small_model, paths.models_dir() / "converted-12345678")
    found = {model.name: model for model in library_models(str(own), read_facts)}
    assert {name: (model.origin, model.model, model.problem) for name, model in found.items()} == {
        "smollm2-135m-instruct": ("rdchat", "", ""),
        "converted-12345678": ("rdchat", str(paths.models_dir() / "converted-12345678"), ""),
        "some-org/small-4bit": ("Hugging Face", "some-org/small-4bit", ""),
        "mlx-community/Small": ("LM Studio", str(home / ".lmstudio/models/mlx-community/Small"), ""),
        "older/Small": ("LM Studio", str(home / ".cache/lm-studio/models/older/Small"), ""),
        "mine": ("Your folder", str(own / "mine"), ""),
        "team/theirs": ("Your folder", str(own / "team" / "theirs"), ""),
    }
    model = found["some-org/small-4bit"]
    files = check_model_folder(small_model)
    assert (model.family, model.quantization, model.sizes) == ("llama", "4-bit", files.sizes)
    assert model.disk_bytes == sum(path.stat().st_size for path in small_model.iterdir())
    assert (model.repository, model.revision) == ("some-org/small-4bit", "main")
    assert model.tokens == found["mine"].tokens != ""
    assert not model.states_mtp
    assert model.has_template
    names = [model.name for model in installed_models(read_facts)]
    assert names == ["converted-12345678", "some-org/small-4bit", "mlx-community/Small", "older/Small"]


def test_a_model_that_was_published_with_mtp_layers_says_so(home: Path, small_model: Path) -> None:
    own = home / "models"
    for name, count in (("with", 1), ("without", 0)):
        folder = Path(shutil.copytree(small_model, own / name))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": count}))
    found = {model.name: model.states_mtp for model in library_models(str(own), read_facts)}
    assert found == {"with": True, "without": False}


@pytest.mark.parametrize("chosen", ["", "~", "/", "relative", "/not/there"])
def test_a_home_folder_or_none_is_not_looked_into(small_model: Path, home: Path, chosen: str) -> None:
    shutil.copytree(small_model, home / "mine")
    assert list(library_models(str(home) if chosen == "~" else chosen)) == []


def test_the_default_model_is_left_to_the_menu(small_model: Path) -> None:
    paths.default_model_dir().parent.mkdir(parents=True)
    paths.default_model_dir().symlink_to(small_model)
    assert installed_models(read_facts) == ()


def test_looking_at_some_does_not_forget_the_others(small_model: Path, home: Path, tmp_path: Path) -> None:
    shutil.copytree(small_model, home / ".lmstudio/models/someone/model")
    own = shutil.copytree(small_model, tmp_path / "own" / "model").parent
    list(library_models(str(own), read_facts))
    shutil.copytree(small_model, home / ".lmstudio/models/someone/another")
    read = Mock(side_effect=read_facts)
    assert len(installed_models(read)) == 2
    assert [call.args[0].name for call in read.mock_calls] == ["another"]
    list(library_models(str(own), read))
    assert len(read.mock_calls) == 1


def test_what_cannot_be_loaded_says_why_and_what_is_no_language_model_is_left_out(
    small_model: Path, hub_cache: Path
) -> None:
    cut = into_hub_cache(small_model, hub_cache, "some-org/cut-short")
    (cut / "model.safetensors").unlink()
    other = into_hub_cache(small_model, hub_cache, "some-org/painter")
    (other / "config.json").write_text(json.dumps({"model_type": "painter", "architectures": ["Painter"]}))
    newer = into_hub_cache(small_model, hub_cache, "some-org/newer")
    (newer / "config.json").write_text(json.dumps({"model_type": "llama9", "architectures": ["Llama9ForCausalLM"]}))
    found = {model.name: model for model in library_models(read=read_facts)}
    assert found.keys() == {"some-org/cut-short", "some-org/newer"}
    assert "weights" in found["some-org/cut-short"].problem
    assert found["some-org/cut-short"].family == "llama"
    assert "does not support the architecture 'llama9'" in found["some-org/newer"].problem
    assert not found["some-org/newer"].can_be_loaded


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3", "dflash_config": {"target_layer_ids": [1, 9]}, "architectures": ["DFlashDraftModel"]},
        {"model_type": "llama", "draft_vocab_size": 32000, "architectures": ["LlamaForCausalLMEagle3"]},
        {"format": 1, "architecture": {}, "target": {}},
    ],
    ids=["DFlash", "EAGLE-3", "rdchat's own"],
)
def test_damaged_drafters_in_the_hubs_cache_are_listed_and_are_no_models(
    small_model: Path, hub_cache: Path, config: dict[str, object]
) -> None:
    folder = into_hub_cache(small_model, hub_cache, "some-org/drafter")
    (folder / "config.json").write_text(json.dumps(config))
    (listed,) = library_models(read=read_facts)
    assert (listed.is_drafter, listed.can_be_loaded, bool(listed.problem)) == (True, False, True)
    assert installed_models(read_facts) == ()


def test_other_revisions_are_listed_by_their_names_and_loaded_by_their_folders(
    small_model: Path, hub_cache: Path
) -> None:
    into_hub_cache(small_model, hub_cache, "some-org/small")
    older = into_hub_cache(small_model, hub_cache, "some-org/small", NEWER, "v1")
    models = {model.revision: model for model in library_models(read=read_facts)}
    assert models.keys() == {"main", "v1"}
    assert models["main"].model == "some-org/small"
    assert models["v1"].model == str(older)


def test_an_unfinished_download_is_listed_with_what_is_here_of_it(hub_cache: Path) -> None:
    repository = repository_of("some-org/begun")
    files = (HubFile("config.json", 30, "a" * 40), HubFile("model.safetensors", 970, "b" * 64))
    write_record(repository, RepositoryFiles("some-org/begun", "main", "c" * 40, files))
    (repository.work / f"{'b' * 64}.part").write_bytes(b"x" * 300)
    (model,) = library_models(read=read_facts)
    assert (model.is_unfinished, model.can_be_loaded) == (True, False)
    assert (model.disk_bytes, model.download_bytes) == (300, 1000)


def test_folders_are_read_once_and_again_when_they_change(small_model: Path, hub_cache: Path) -> None:
    read = Mock(side_effect=read_facts)
    folder = into_hub_cache(small_model, hub_cache, "some-org/small")
    first = list(library_models("", read))
    assert list(library_models("", read)) == first
    read.assert_called_once_with(folder)
    status = (folder / "config.json").stat()
    os.utime(folder / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    (folder / "tokenizer.json").unlink()
    (changed,) = library_models("", read)
    assert "no tokenizer" in changed.problem
    assert len(read.mock_calls) == 2


def test_a_damaged_cache_file_is_made_anew(small_model: Path, hub_cache: Path) -> None:
    into_hub_cache(small_model, hub_cache, "some-org/small")
    first = list(library_models(read=read_facts))
    (file,) = (paths.cache_dir() / "facts").iterdir()
    for damage in ("{", "[]", file.read_text().replace('"sizes"', '"size"'), ""):
        file.write_text(damage)
        assert list(library_models(read=read_facts)) == first


def test_what_is_dropped_is_judged_in_plain_words(small_model: Path, tmp_path: Path) -> None:
    assert problem_of(str(small_model)) == ""
    (tmp_path / "Qwen3-8B-Q4_K_M.gguf").write_bytes(b"GGUF")
    problem = problem_of(str(tmp_path / "Qwen3-8B-Q4_K_M.gguf"))
    assert "is a GGUF file, which rdchat does not read. Look for its MLX version in Models > Find" in problem
    assert "`rdchat models search Qwen3-8B-Q4_K_M`" in problem
    (tmp_path / "photo.jpg").write_bytes(b"x")
    assert "is a file, not a model" in problem_of(str(tmp_path / "photo.jpg"))
    (tmp_path / "empty").mkdir()
    assert "is empty" in problem_of(str(tmp_path / "empty"))


@pytest.mark.slow
def test_a_child_reads_as_this_process_does_and_a_crash_of_it_costs_one_folder(
    small_model: Path, tmp_path: Path
) -> None:
    odd = Path(shutil.copytree(small_model, tmp_path / "ünusual\nname"))
    told: list[str] = []
    child = ChildProcess("facts")
    with facts_reader(child=child) as read:
        for path in (small_model, odd, tmp_path, tmp_path / "nothing"):
            assert read(path) == read_facts(path)
        kill_while_asked(child, lambda: told.append(read(small_model).problem))
        assert "could not be read" in told[0]
        assert read(small_model) == read_facts(small_model)


@pytest.mark.slow
def test_a_header_that_takes_too_much_memory_is_the_models_problem(small_model: Path):
    with facts_reader(Limits(memory_bytes=-(1 << 40))) as read:  # any memory is too much
        facts = read(small_model)
    assert "of memory, so it was ended" in facts.problem


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
        found = {model.name: model for model in library_models(read=read_facts)}
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
