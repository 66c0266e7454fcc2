"""Foreign or damaged drafters never break the model."""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError
from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.auto.cost_model import CostFile
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.drafting.checkpoints.drafter_folders import apple_checkpoint, stored
from tests.time_limits import at_most


@pytest.fixture
def drafter(target: LoadedModel) -> Path:
    """A good drafter among the person's own."""
    folder = paths.drafters_dir() / "good"
    write_drafter(folder, stored(target).written(), "")
    return folder


def change(folder: Path, part: str | None, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    (config[part] if part else config).update(changes)
    path.write_text(json.dumps(config))


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "nested": lambda folder: (folder / "config.json").write_text("[" * 100_000),
    "pipe": lambda folder: make_pipe(folder / "config.json"),
    "pipe of weights": lambda folder: make_pipe(folder / "model.safetensors"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "cut short": lambda folder: os.truncate(folder / "model.safetensors", 5000),
    "device": lambda folder: ((folder / "config.json").unlink(), (folder / "config.json").symlink_to("/dev/zero")),
    "lost link": lambda folder: ((folder / "config.json").unlink(), (folder / "config.json").symlink_to("gone")),
    "empty": lambda folder: (folder / "config.json").write_text(""),
    "many blocks": lambda folder: change(folder, "architecture", blocks=10**9),
}


@pytest.mark.parametrize("damage", share(DAMAGE, 5))
def test_a_damaged_drafter_is_left_out_and_the_panel_says_why(damage: str, target: LoadedModel, drafter: Path) -> None:
    """One had every model fail with "rdchat made a mistake"."""
    bad = drafter.parent / "bad"
    write_drafter(bad, stored(target).written(), "")
    os.utime(drafter / "config.json", (0, 0))  # the damaged one is the newest
    DAMAGE[damage](bad)
    with at_most(60):
        found = search_drafters(TargetBinding.for_model(target.info).hash)
        told = {option.mode: option for option in Drafters(target).mode_options(DraftSettings())}
    assert found.folder == drafter
    assert len(found.left_out) == 1
    assert found.left_out[0].startswith("The drafter bad is not used: ")
    assert told[Mode.DRAFTER].available
    assert told[Mode.DRAFTER].source == str(drafter)
    for mode in (Mode.DRAFTER, Mode.AUTO):
        assert found.left_out[0] in told[mode].reason
    for mode in (Mode.DRAFTER, Mode.AUTO, Mode.LOOKUP):
        assert Drafters(target).try_load(DraftSettings(mode=mode)) is None


def test_with_nothing_but_a_damaged_drafter_the_panel_says_why(target: LoadedModel, drafter: Path) -> None:
    DAMAGE["nested"](drafter)
    told = {option.mode: option for option in Drafters(target).mode_options(DraftSettings())}
    assert not told[Mode.DRAFTER].available
    assert "nested too deeply" in told[Mode.DRAFTER].reason
    assert told[Mode.AUTO].available


def test_a_damaged_drafter_for_another_model_says_nothing(target: LoadedModel, drafter: Path) -> None:
    change(drafter, "target", hash="another")
    change(drafter, "architecture", blocks=10**9)
    assert search_drafters(TargetBinding.for_model(target.info).hash).left_out == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": 10**9}, "it has more than 1,000 blocks"),
        ({"blocks": 900}, "fewer weights than its configuration needs"),
        ({"exit_size": 2**31}, "a size is too large for MLX"),
        ({"exit_size": 2**31 - 1}, "fewer weights than its configuration needs"),
        ({"state_size": 2**30}, "fewer weights than its configuration needs"),
        ({"cell": "gru"}, "its configuration is damaged"),
        ({"cell": "lstm"}, "its configuration is damaged"),
        ({"hidden_size": "32"}, "its configuration is damaged"),
        ({"hidden_size": None}, "its configuration is damaged"),
        ({"blocks": True}, "its configuration is damaged"),
        ({"hidden_size": 10**30}, "a number is too large"),
        ({"draft_vocabulary_size": 2**31 - 1}, "fewer weights than its configuration needs"),
        ({"draft_vocabulary_size": 600}, "proposes tokens that tiny does not have"),
        ({"target_layers": [0] * 2000}, "it reads more than 1,000 layers"),
        ({"target_layers": 3}, "its configuration is damaged"),
        ({"inverse_temperature": 10**400}, "its configuration is damaged"),
        ({"cell": ["rnn"]}, "its configuration is damaged"),
        ({"x" * 2 * 10**6: 1}, "is too large: 2 MB; the limit is 1 MB"),
        ({"exit_size": 48}, "has the shape"),
    ],
)
def test_architectures_that_the_weights_do_not_account_for(
    changes: dict[str, Any], words: str, target: LoadedModel, drafter: Path
) -> None:
    change(drafter, "architecture", **changes)
    with at_most(60), pytest.raises(ModelError, match=words) as caught:
        load_drafter(drafter, target)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("binding", [3, None, [], {"hash": 3}, {"name": 3, "architecture": "a", "hash": "b"}])
def test_a_drafter_that_does_not_say_whose_it_is(binding: object, target: LoadedModel, drafter: Path) -> None:
    change(drafter, None, target=binding)
    with pytest.raises(ModelError, match="does not say which model"):
        check_drafter(drafter, target)


@pytest.mark.parametrize("name", ["draft_vocabulary", "output.weight"])
def test_weights_of_odd_types(name: str, target: LoadedModel, drafter: Path) -> None:
    path = drafter / "model.safetensors"
    tensors = dict(mx.load(str(path)))
    mx.eval(tensors)
    odd = mx.bfloat16 if name == "draft_vocabulary" else mx.int64
    mx.save_safetensors(str(path), tensors | {name: tensors[name].astype(odd)})
    with pytest.raises(ModelError, match=f"The drafter good cannot be used: its tensor {name} is stored as"):
        load_drafter(drafter, target)


@pytest.mark.parametrize(
    "changes",
    [{"num_draft_layers": 10**9}, {"exit_dim": 2**31}, {"vocab_size": 2**31 - 1}, {"exit_dim": 1e400}, {"rnn": "x"}],
)
def test_apples_checkpoints_with_absurd_sizes(changes: dict[str, Any], tmp_path: Path, target: LoadedModel) -> None:
    apple_checkpoint(tmp_path / "apple", 32, 48, 1, False, target.info.vocabulary_size)
    change(tmp_path / "apple", None, **changes)
    with at_most(60), pytest.raises(ModelError):
        load_drafter(tmp_path / "apple", target)


def test_apples_checkpoint_with_a_flat_matrix(tmp_path: Path, target: LoadedModel) -> None:
    tensors = apple_checkpoint(tmp_path / "apple", 32, 48, 1, True, target.info.vocabulary_size)
    flat = tensors | {"input_proj.weight": mx.zeros((48 * 64,))}
    mx.save_safetensors(str(tmp_path / "apple" / "model.safetensors"), flat)
    with pytest.raises(ModelError, match=r"input_proj\.weight has the shape"):
        load_drafter(tmp_path / "apple", target)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "3", '{"costs": [[1, 2]]}', '{"costs": [[1e999, 1, 1]]}', "{}"])
def test_damaged_costs_are_measured_again(text: str) -> None:
    file = CostFile({"part": "calls"})
    file.add_measurement({(1, 1): 2.0})
    (place,) = (paths.cache_dir() / "costs").iterdir()
    place.write_text(text)
    assert file.read_costs() == ({}, 0)


def test_a_drafter_beside_a_lost_link_drafts(target: LoadedModel, drafter: Path) -> None:
    """Its files are told apart by their times, and a link that led nowhere had none."""
    (drafter / "notes.txt").symlink_to("gone")
    drafters = Drafters(target)
    assert drafters.load_drafter(DraftSettings(mode=Mode.AUTO)) is None
    assert drafters.auto.available.folder == drafter


def test_a_models_hash_reads_no_pipe(target: LoadedModel) -> None:
    make_pipe(target.info.path / "tokenizer.json")
    with at_most(60), pytest.raises(ModelError, match=r"tokenizer\.json is a named pipe"):
        target_hash(target.info.path)
    with (target.info.path / "model-2.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 2**40))
        file.truncate(2**40)
    make_pipe(target.info.path / "model-3.safetensors")
    with at_most(60), pytest.raises(ModelError, match=r"model-3\.safetensors is a named pipe"):
        target_hash(target.info.path)


def test_a_home_that_is_none_is_named(target: LoadedModel) -> None:
    settings = replace(DraftSettings(mode=Mode.DRAFTER), drafter="~nosuchuser/drafter")
    told = {option.mode: option for option in Drafters(target).mode_options(settings)}
    assert told[Mode.DRAFTER].reason.startswith(
        "The drafter cannot be ~nosuchuser/drafter: there is no home folder ~nosuchuser."
    )


@pytest.mark.parametrize("mode", [Mode.DRAFTER, Mode.AUTO])
def test_a_drafter_that_failed_is_read_again_only_when_its_files_change(
    mode: Mode, target: LoadedModel, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights were read at every reply."""
    weights = drafter / "model.safetensors"
    good = weights.read_bytes()
    os.truncate(weights, 5000)
    reads = list[Path]()
    drafters = Drafters(target)

    def counted(folder: Path, model: LoadedModel) -> Head:
        reads.append(folder)
        return load_drafter(folder, model)

    monkeypatch.setattr("rdchat.inference.drafters.load_drafter", counted)
    settings = DraftSettings(mode, drafter=str(drafter))
    told = {drafters.try_load(settings) for _ in range(3)}
    assert len(told) == 1
    assert (None in told) is (mode is Mode.AUTO)
    assert drafters.auto.available.head is None
    assert reads == [drafter]
    weights.write_bytes(good)
    os.utime(weights, (1, 1))  # surely another time than before
    assert drafters.try_load(settings) is None
    assert reads == [drafter, drafter]


def test_mtp_layers_that_do_not_fit_are_loaded_once_there_is_room(
    target: LoadedModel, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint says to close other apps."""
    drafters = Drafters(target)
    settings = DraftSettings(Mode.DRAFTER, drafter=str(drafter))
    with monkeypatch.context() as patch:
        patch.setattr("rdchat.inference.drafters.load_drafter", refuse)
        assert drafters.try_load(settings) == "No room. Close other apps."
    assert drafters.try_load(settings) is None


def refuse(folder: Path, model: LoadedModel) -> Head:
    raise DoesNotFitError("No room.", "Close other apps.")
