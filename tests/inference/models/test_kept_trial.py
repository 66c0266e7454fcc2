"""What a model can verify is tried once, and again after a change of its files, versions, precision or device."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat import paths
from rdchat.inference import loading
from rdchat.inference.api import Capability, DraftKind
from rdchat.inference.loading import load_model
from rdchat.inference.models import model_locations
from rdchat.inference.verification.capability import check_capability, use_capability
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from tests.inference.fakes import ALPHABET, tiny_llama


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Capability]:
    """The trials that were made."""
    made: list[Capability] = []

    def check(*arguments: Any) -> Capability:
        made.append(check_capability(*arguments))
        return made[-1]

    monkeypatch.setattr(loading, "check_capability", check)
    return made


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "model"))


def test_it_is_tried_once(model: Path, tried: list[Capability]) -> None:
    first = load_model(model)
    assert tried == [], "nobody asked yet"
    found = first.capability
    again = load_model(model)
    assert again.capability == found == tried[0]
    assert again.capability.errors == found.errors != {}
    assert again.capability.inputs == found.inputs == 3
    assert len(tried) == 1
    assert again.hooks.states.recorded == first.hooks.states.recorded


@pytest.mark.parametrize("change", ["file", "precision", "mlx", "mlx-lm", "rdchat", "device", "code"])
def test_a_change_tries_it_again(
    change: str, model: Path, tried: list[Capability], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load_model(model).capability
    match change:
        case "file":
            os.utime(model / "model.safetensors", ns=(1, 2))
        case "mlx":
            monkeypatch.setattr(loading, "version", lambda _name: "other")
        case "mlx-lm" | "rdchat":
            monkeypatch.setattr(model_locations, "_versions", lambda: "other")
        case "device":
            monkeypatch.setattr(loading, "device_name", lambda: "Apple M9")
        case "code":
            monkeypatch.setattr(loading, "__file__", str(tmp_path / "models" / "loading.py"))
    dtype = "float16" if change == "precision" else "auto"
    assert load_model(model, dtype).capability
    assert len(tried) == 2
    assert load_model(model, dtype).capability
    assert len(tried) == 2


def test_a_file_that_changes_while_it_loads_is_tried_again(
    model: Path, tried: list[Capability], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(model)
    os.utime(model / "model.safetensors", ns=(1, 2))
    assert loaded.capability
    assert load_model(model).capability
    assert len(tried) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "kind", "inputs", "errors"])
def test_a_damaged_result_is_tried_again(model: Path, tried: list[Capability], damage: str) -> None:
    found = load_model(model).capability
    (file,) = (paths.cache_dir() / "facts").glob("verification-*.json")
    text = file.read_text()
    file.write_text(text.replace(f'"{damage}"', '"other"') if damage.isalpha() and damage != "null" else damage)
    assert load_model(model).capability == found
    assert len(tried) == 2


@pytest.mark.parametrize("kind", [DraftKind.TREE, DraftKind.FED_AGAIN])
def test_a_kept_result_leaves_the_hooks_as_the_trial_does(kind: DraftKind) -> None:
    network = tiny_llama().network
    hooks = ModelHooks(network)
    found = check_capability(network, hooks, len(ALPHABET))
    other = tiny_llama().network
    kept = ModelHooks(other)
    use_capability(other, kept, len(ALPHABET), replace(found, kind=kind))
    assert kept.states.recorded is (kind is DraftKind.TREE)
    for each, seen in ((network, hooks), (other, kept)):
        each(mx.array([[1, 2]]), cache=KVCache(each).layers)
        assert seen.hidden is not None
    assert hooks.hidden is not None
    assert kept.hidden is not None
    assert kept.hidden.shape == hooks.hidden.shape
