"""Models of other programs are found where those keep them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.hub.cache_layout import hub_cache
from rdchat.inference.models.model_locations import model_cards

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
    assert model_cards() == []


def test_a_folder_that_two_programs_name_is_listed_once(small_model: Path, home: Path) -> None:
    snapshot = into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/small")
    (home / ".lmstudio/models/some-org").mkdir(parents=True)
    (home / ".lmstudio/models/some-org/small").symlink_to(snapshot)
    assert [card.origin for card in model_cards()] == ["Hugging Face"]


def test_the_default_model_is_left_to_the_menu(small_model: Path) -> None:
    paths.default_model_dir().parent.mkdir(parents=True)
    paths.default_model_dir().symlink_to(small_model)
    assert [card.path for card in model_cards()] == [paths.default_model_dir()]


SETTINGS = (
    {},
    {"HF_HOME": "~/elsewhere"},
    {"HF_HUB_CACHE": "/data/hub", "HF_HOME": "/ignored"},
    {"XDG_CACHE_HOME": "/data/cache"},
    {"HUGGINGFACE_HUB_CACHE": "$HOME/old"},
)


@pytest.mark.slow
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
