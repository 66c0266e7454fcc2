"""Models of other programs are found where those keep them, and each says why it cannot be loaded."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.hub.cache_layout import hub_cache
from rdchat.inference.models.installed_models import installed_models, model_places
from tests.inference.gguf_samples import write_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def into_hub_cache(folder: Path, hub: Path, name: str) -> Path:
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return Path(shutil.copytree(folder, repository / "snapshots" / COMMIT))


def test_the_hubs_cache_and_lm_studios_folders_are_listed(small_model: Path, home: Path) -> None:
    into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/small-4bit")
    new, old = home / ".lmstudio/models", home / ".cache/lm-studio/models"
    shutil.copytree(small_model, new / "mlx-community" / "Small-MLX")
    shutil.copytree(small_model, old / "older" / "Small")
    (new / "lmstudio-community" / "Tiny-GGUF").mkdir(parents=True)
    tiny = write_gguf(new / "lmstudio-community" / "Tiny-GGUF" / "Tiny-Q4_0.gguf")
    shutil.copy(tiny, tiny.with_name("mmproj-model-f16.gguf"))
    assert [(model.name, model.model, model.place, model.problem) for model in installed_models()] == [
        ("some-org/small-4bit", "some-org/small-4bit", "Hugging Face", ""),
        ("Tiny-Q4_0", str(tiny), "LM Studio", ""),
        ("mlx-community/Small-MLX", str(new / "mlx-community" / "Small-MLX"), "LM Studio", ""),
        ("older/Small", str(old / "older" / "Small"), "LM Studio", ""),
    ]


def test_what_cannot_be_loaded_says_why(small_model: Path, home: Path) -> None:
    folder = into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/painter")
    (folder / "config.json").write_text(json.dumps({"model_type": "painter"}))
    cut = shutil.copytree(small_model, home / ".lmstudio/models/someone/cut-short")
    (cut / "model.safetensors").unlink()
    problems = {model.name: model.problem for model in installed_models()}
    assert "'painter' is unknown" in problems["some-org/painter"]
    assert "weights" in problems["someone/cut-short"]


def test_a_model_that_was_mended_is_looked_at_again(small_model: Path, home: Path) -> None:
    folder = home / ".lmstudio/models/someone/model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert installed_models()[0].problem
    shutil.rmtree(folder)
    shutil.copytree(small_model, folder)
    os.utime(folder, ns=(1, 2))  # the clock of a file system may not have moved on
    assert not installed_models()[0].problem


def test_a_fetched_data_set_an_unfinished_download_and_plain_files_are_no_models(small_model: Path, home: Path) -> None:
    hub = home / ".cache/huggingface/hub"
    (hub / "datasets--some--texts" / "refs").mkdir(parents=True)
    (hub / "models--some--begun" / "refs").mkdir(parents=True)
    (hub / "models--some--lost" / "refs").mkdir(parents=True)
    (hub / "models--some--lost" / "refs" / "main").write_text(COMMIT)
    (hub / "models--some--evil" / "refs").mkdir(parents=True)
    (hub / "models--some--evil" / "refs" / "main").write_text("../../../../other")
    (hub / "version.txt").write_text("1")
    (home / ".lmstudio/models/someone").mkdir(parents=True)
    (home / ".lmstudio/models/notes.txt").touch()
    assert model_places() == []


def test_a_folder_that_two_programs_name_is_listed_once(small_model: Path, home: Path) -> None:
    snapshot = into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/small")
    (home / ".lmstudio/models/some-org").mkdir(parents=True)
    (home / ".lmstudio/models/some-org/small").symlink_to(snapshot)
    assert [place.place for place in model_places()] == ["Hugging Face"]


def test_the_default_model_is_left_to_the_menu(small_model: Path) -> None:
    paths.default_model_dir().parent.mkdir(parents=True)
    paths.default_model_dir().symlink_to(small_model)
    assert [place.path for place in model_places()] == [paths.default_model_dir()]
    assert installed_models() == ()


SETTINGS = (
    {},
    {"HF_HOME": "~/elsewhere"},
    {"HF_HUB_CACHE": "/data/hub", "HF_HOME": "/ignored"},
    {"XDG_CACHE_HOME": "/data/cache"},
    {"HUGGINGFACE_HUB_CACHE": "$HOME/old"},
)


def test_the_hubs_cache_is_where_its_own_library_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "import os, json, subprocess, sys\n"
    told += "code = 'from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)'\n"
    told += (
        f"runs = [subprocess.Popen([sys.executable, '-c', code], env=os.environ | e, stdout=-1) for e in {SETTINGS}]\n"
    )
    told += "print(json.dumps([run.communicate()[0].decode().strip() for run in runs]))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    for settings, theirs in zip(SETTINGS, json.loads(done.stdout), strict=True):
        with monkeypatch.context() as changed:
            for name, value in settings.items():
                changed.setenv(name, value)
            assert str(hub_cache()) == theirs
