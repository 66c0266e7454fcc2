"""Models of other programs are found where those keep them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as some

from rdchat.hub.cache_layout import hub_cache, snapshot_of
from rdchat.inference.api import ranked_address, remote_address
from rdchat.inference.library.local_models import is_known
from rdchat.inference.models.model_locations import find_card, model_cards, other_revisions
from tests.inference.library.conftest import COMMIT, into_hub_cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_fetched_data_set_an_unfinished_download_and_plain_files_are_no_models(small_model: Path, home: Path) -> None:
    hub = home / ".cache/huggingface/hub"
    (hub / "datasets--some--texts" / "refs").mkdir(parents=True)
    for name, commit in {"begun": "", "lost": COMMIT, "evil": "../../../../other"}.items():
        (hub / f"models--some--{name}" / "refs").mkdir(parents=True)
        if commit:
            (hub / f"models--some--{name}" / "refs" / "main").write_text(commit)
    (hub / "version.txt").write_text("1")
    (home / ".lmstudio/models/someone").mkdir(parents=True)
    (home / ".lmstudio/models/notes.txt").touch()
    assert model_cards() == []


COMMITS = ["a" * 40, "b" * 40, "c" * 40]
_REFERENCES = some.dictionaries(some.sampled_from(["main", "v1", "v2"]), some.sampled_from([*COMMITS, "", "../.."]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.dictionaries(some.sampled_from(COMMITS), some.booleans()), _REFERENCES)
def test_each_snapshot_is_found_once_whatever_names_it(
    home: Path, snapshots: dict[str, bool], references: dict[str, str]
) -> None:
    """Law: weights on the disk are found by the model's name, but for those that another name has.

    Those that were fetched by their commit have no reference `main`. Other tools move it to a commit of which they
    fetched nothing, or only the configuration (raullenchai/Rapid-MLX#2616, unslothai/unsloth#7375).
    """
    repository = home / ".cache/huggingface/hub/models--some--small"
    shutil.rmtree(repository, ignore_errors=True)
    for commit, has_weights in snapshots.items():
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
        if has_weights:
            (repository / "snapshots" / commit / "model.safetensors").touch()
    (repository / "refs").mkdir(parents=True)
    for revision, commit in references.items():
        (repository / "refs" / revision).write_text(commit)
    cards = [*model_cards(), *other_revisions()]
    assert sorted(card.path.name for card in cards) == sorted(snapshots)
    assert all(find_card(card.listed_name) == card for card in cards)
    unnamed = snapshots.keys() - references.values()
    main = references.get("main", "")
    weights = any(snapshots[commit] for commit in unnamed)
    found = snapshot_of("some/small")
    assert (found is not None) is (main in snapshots or weights or (main not in COMMITS and bool(unnamed)))
    if found is not None:
        assert found.name in {main, *unnamed}
        assert snapshots[found.name] is (weights or snapshots.get(main, False))
        assert found.name == main or not snapshots.get(main)


def test_of_several_snapshots_without_a_name_the_newest_counts(home: Path) -> None:
    snapshots = home / ".cache/huggingface/hub/models--some--small/snapshots"
    for commit, changed in zip(COMMITS, (10, 30, 20), strict=True):
        (snapshots / commit).mkdir(parents=True)
        os.utime(snapshots / commit, (changed, changed))
    assert snapshot_of("some/small") == snapshots / COMMITS[1]


def test_a_folder_that_two_programs_name_is_listed_once(small_model: Path, home: Path) -> None:
    snapshot = into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/small")
    (home / ".lmstudio/models/some-org").mkdir(parents=True)
    (home / ".lmstudio/models/some-org/small").symlink_to(snapshot)
    assert [card.origin for card in model_cards()] == ["Hugging Face"]


SETTINGS = (
    {},
    {"HF_HOME": "~/elsewhere"},
    {"HF_HUB_CACHE": "/data/hub", "HF_HOME": "/ignored"},
    {"XDG_CACHE_HOME": "/data/cache"},
    {"HUGGINGFACE_HUB_CACHE": "$HOME/old"},
)


@pytest.mark.slow
def test_the_hubs_cache_is_where_its_own_library_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"]
    runs = [subprocess.Popen(command, env=os.environ | each, stdout=subprocess.PIPE, text=True) for each in SETTINGS]
    for environment, run in zip(SETTINGS, runs, strict=True):
        with monkeypatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            assert str(hub_cache()) == run.communicate()[0].strip()


def test_what_is_listed_is_known_and_any_other_name_is_not(small_model: Path, home: Path) -> None:
    """The names of others, as imports bring them, too."""
    into_hub_cache(small_model, home / ".cache/huggingface/hub", "some-org/small")
    (card,) = model_cards()
    here = [card.model, str(card.path), str(small_model), ranked_address(("a", "b"), card.model)]
    here += [ranked_address(("a", "b"), None), remote_address("studio", "any")]
    assert all(is_known(name, ["studio"]) for name in here)
    gone = ["", "gone", "some-org/gone", "/models/gone", "~nobody/gone", "a\0b", "x" * 5000, "../" * 3000, "remote:/x"]
    gone += [remote_address("other", "any"), ranked_address(("a",), "gone")]
    assert not any(is_known(name, ["studio"]) for name in gone)
