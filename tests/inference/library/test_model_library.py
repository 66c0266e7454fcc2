"""Everything that can be run is listed, wherever it is, with facts from headers; nothing else is."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from rdchat import paths
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.download_record import write_record
from rdchat.hub.known_files import HubFile, RepositoryFiles
from rdchat.inference.library.model_library import (
    facts_reader,
    installed_models,
    library_models,
    problem_of,
    read_facts,
)
from rdchat.inference.models.model_files import check_model_folder
from rdchat.work.child_process import ChildProcess, Limits
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
    found = {model.name: model for model in library_models(str(own))}
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
    names = [model.name for model in installed_models()]
    assert names == ["converted-12345678", "some-org/small-4bit", "mlx-community/Small", "older/Small"]


def test_a_model_that_was_published_with_mtp_layers_says_so(home: Path, small_model: Path) -> None:
    own = home / "models"
    for name, count in (("with", 1), ("without", 0)):
        folder = Path(shutil.copytree(small_model, own / name))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": count}))
    found = {model.name: model.states_mtp for model in library_models(str(own))}
    assert found == {"with": True, "without": False}


def test_a_model_that_was_made_to_answer_has_a_chat_template(home: Path, small_model: Path) -> None:
    """Wherever its files have one: only such a model is offered at the first start."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    own = home / "models"
    for name in ("none", "in the settings", "in its file", "in JSON"):
        folder = Path(shutil.copytree(small_model, own / name))
        for kept in ("chat_template.jinja", "chat_template.json"):
            (folder / kept).unlink(missing_ok=True)
        settings = folder / "tokenizer_config.json"
        fields = json.loads(settings.read_text()) if settings.exists() else {}
        fields.pop("chat_template", None)
        if name == "in the settings":
            fields["chat_template"] = template
        settings.write_text(json.dumps(fields))
    (own / "in its file" / "chat_template.jinja").write_text(template)
    (own / "in JSON" / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    found = {model.name: model.has_template for model in library_models(str(own)) if not model.problem}
    assert found == {"none": False, "in the settings": True, "in its file": True, "in JSON": True}


@pytest.mark.parametrize("chosen", ["", "~", "/", "relative", "/not/there"])
def test_a_home_folder_or_none_is_not_looked_into(small_model: Path, home: Path, chosen: str) -> None:
    shutil.copytree(small_model, home / "mine")
    assert list(library_models(str(home) if chosen == "~" else chosen)) == []


def test_the_default_model_is_left_to_the_menu(small_model: Path) -> None:
    paths.default_model_dir().parent.mkdir(parents=True)
    paths.default_model_dir().symlink_to(small_model)
    assert installed_models() == ()


def test_looking_at_some_does_not_forget_the_others(small_model: Path, home: Path, tmp_path: Path) -> None:
    shutil.copytree(small_model, home / ".lmstudio/models/someone/model")
    own = shutil.copytree(small_model, tmp_path / "own" / "model").parent
    list(library_models(str(own)))
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
    found = {model.name: model for model in library_models()}
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
    (listed,) = library_models()
    assert (listed.is_drafter, listed.can_be_loaded, bool(listed.problem)) == (True, False, True)
    assert installed_models() == ()


def test_other_revisions_are_listed_by_their_names_and_loaded_by_their_folders(
    small_model: Path, hub_cache: Path
) -> None:
    into_hub_cache(small_model, hub_cache, "some-org/small")
    older = into_hub_cache(small_model, hub_cache, "some-org/small", NEWER, "v1")
    models = {model.revision: model for model in library_models()}
    assert models.keys() == {"main", "v1"}
    assert models["main"].model == "some-org/small"
    assert models["v1"].model == str(older)


def test_an_unfinished_download_is_listed_with_what_is_here_of_it(hub_cache: Path) -> None:
    repository = repository_of("some-org/begun")
    files = (HubFile("config.json", 30, "a" * 40), HubFile("model.safetensors", 970, "b" * 64))
    write_record(repository, RepositoryFiles("some-org/begun", "main", "c" * 40, files))
    (repository.work / f"{'b' * 64}.part").write_bytes(b"x" * 300)
    (model,) = library_models()
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
    first = list(library_models())
    (file,) = (paths.cache_dir() / "facts").iterdir()
    for damage in ("{", "[]", file.read_text().replace('"sizes"', '"size"'), ""):
        file.write_text(damage)
        assert list(library_models()) == first


def test_what_is_dropped_is_judged_in_plain_words(small_model: Path, tmp_path: Path) -> None:
    assert problem_of(str(small_model)) == ""
    (tmp_path / "Qwen3-8B-Q4_K_M.gguf").write_bytes(b"GGUF")
    problem = problem_of(str(tmp_path / "Qwen3-8B-Q4_K_M.gguf"))
    assert "is a GGUF file, which rdchat does not read. Look for its MLX version in Discover" in problem
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
