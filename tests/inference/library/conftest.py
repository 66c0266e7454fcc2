"""A home folder of the test's own, and places in it where models lie."""

import shutil
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without models."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def hub_cache(home: Path) -> Path:
    return home / ".cache/huggingface/hub"


def into_hub_cache(folder: Path, hub: Path, name: str, commit: str = COMMIT, revision: str = "main") -> Path:
    """Copy a model's files into the hub's cache as a revision."""
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / revision).write_text(commit)
    return Path(shutil.copytree(folder, repository / "snapshots" / commit))
