"""A drafter folder survives the round trip, and every kind of damage is named."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError
from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import (
    bound_hash,
    check_drafter,
    load_drafter,
    target_named_in,
)
from rdchat.inference.drafting.checkpoints.drafter_search import search_drafters
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, Output
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.verification.target import LoadedModel
from tests.grids import pairs, share
from tests.inference.drafting.checkpoints.drafter_folders import (
    CONFIG,
    apple_checkpoint,
    change,
    change_tensors,
    edit_tensors,
    refused,
    stored,
    with_files,
)
from tests.inference.fakes import ALPHABET, shared_llama
from tests.time_limits import at_most


@pytest.fixture
def folder(tmp_path: Path, target: LoadedModel) -> Path:
    write_drafter(tmp_path / "drafter", stored(target).written(), "# card\n")
    return tmp_path / "drafter"


def refuses(folder: Path, target: LoadedModel, words: str) -> None:
    assert refused(folder, target, words).hint


def test_what_was_saved_is_loaded(tmp_path: Path, target: LoadedModel) -> None:
    drafter = stored(target, replace(CONFIG, target_layers=(1,), inverse_temperature=0.8))
    write_drafter(tmp_path / "drafter", drafter.written(), "# card\n")
    loaded = load_drafter(tmp_path / "drafter", target)
    assert loaded.network.config == drafter.head.config
    assert bound_hash(tmp_path / "drafter") == drafter.target.hash
    assert loaded.vocabulary.tolist() == [1, 4, 9, 16, 25]
    expected = dict(tree_flatten(drafter.head.parameters()))
    for name, array in tree_flatten(loaded.network.parameters()):
        assert mx.array_equal(array, expected[name]), name
    assert sorted(path.name for path in (tmp_path / "drafter").iterdir()) == [
        "card.md",
        "config.json",
        "model.safetensors",
    ]


def test_the_hash_is_of_the_files_and_sees_weights_shapes_and_tokenizer(tmp_path: Path, target: LoadedModel) -> None:
    first = target_hash(target.info.path)
    assert target_hash(target.info.path) == first
    assert target_hash(with_files(shared_llama(), tmp_path / "same", "tokenizer").info.path) == first
    assert target_hash(with_files(shared_llama(), tmp_path / "words", "other").info.path) != first
    assert target_hash(with_files(shared_llama(seed=1), tmp_path / "weights", "tokenizer").info.path) != first


def test_a_drafter_for_another_model_is_refused(folder: Path, tmp_path: Path, target: LoadedModel) -> None:
    other = with_files(shared_llama(seed=1), tmp_path / "other", "tokenizer")
    refuses(folder, other, "other weights of that name")
    change(folder, "target", name="somebody")
    refuses(folder, other, "trained for the model somebody.* not for the loaded tiny")


def test_a_missing_drafter_is_named(tmp_path: Path, target: LoadedModel) -> None:
    refuses(tmp_path / "nowhere", target, "no drafter at .*nowhere")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 2}'])
def test_a_damaged_configuration_is_refused(text: str, folder: Path, target: LoadedModel) -> None:
    (folder / "config.json").write_text(text)
    refuses(folder, target, "config.json")


def test_missing_weights_are_refused(folder: Path, target: LoadedModel) -> None:
    (folder / "model.safetensors").unlink()
    refuses(folder, target, "no model.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recurrence__weight": None}, "the tensor recurrence.weight is missing"),
        ({"draft_vocabulary": None}, "the tensor draft_vocabulary is missing"),
        ({"blocks__7__weight": mx.zeros((2, 2))}, "blocks.7.weight"),
        ({"output__weight": mx.zeros((3, 32))}, r"output.weight has the shape \(3, 32\) instead of \(32, 32\)"),
        *(
            ({"from_state__weight": mx.full((32, 32), value)}, "from_state.weight .*not finite")
            for value in (mx.nan, mx.inf)
        ),
        *(
            ({"draft_vocabulary": mx.array(ids, mx.int32)}, "draft_vocabulary")
            for ids in ([1, 2, 3, 4], [1, 2, 3, 4, len(ALPHABET)], [-1, 2, 3, 4, 5], [1, 2, 2, 4, 5])
        ),
    ],
)
def test_tensors_that_are_wrong_are_named(
    changes: dict[str, mx.array | None], words: str, folder: Path, target: LoadedModel
) -> None:
    change_tensors(folder, **changes)
    refuses(folder, target, words)


def test_drafters_are_found_by_the_targets_hash(
    tmp_path: Path, target: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    assert search_drafters(target_hash(target.info.path)).folder is None
    own = tmp_path / "data" / "drafters"
    (own / "half-written").mkdir(parents=True)
    (own / "half-written" / "config.json").write_text("{")
    other = with_files(shared_llama(seed=1), tmp_path / "other", "tokenizer")
    write_drafter(own / "another", stored(other).written(), "")
    assert search_drafters(target_hash(target.info.path)).folder is None
    write_drafter(own / "mine", stored(target).written(), "")
    assert search_drafters(target_hash(target.info.path)).folder == own / "mine"
    assert search_drafters(target_hash(other.info.path)).folder == own / "another"


def rename(tensors: dict[str, mx.array], old: str, new: str) -> None:
    """Rename the tensors whose names begin with `old`."""
    for name in [name for name in tensors if name.startswith(old)]:
        tensors[new + name.removeprefix(old)] = tensors.pop(name)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("names", "inner", "rnn", "blocks"),
    pairs(
        [{}, {"lm_head.": "lm_heads.", "input_proj.": "input_projs."}, {"lm_head.": "0."}],
        [48, 64],
        [True, False],
        [0, 2],
    ),
)
def test_apples_checkpoint_computes_apples_head(
    names: dict[str, str], inner: int, rnn: bool, blocks: int, tmp_path: Path, target: LoadedModel
) -> None:
    """Against their forward pass written out in NumPy, in each spelling of the names that TensorRT-LLM reads.

    The checkpoint is synthetic, as no real one was at hand.
    """
    folder = tmp_path / "apple"
    raw = apple_checkpoint(folder, 32, inner, blocks, rnn, len(ALPHABET))
    for usual, other in names.items():
        edit_tensors(folder, lambda tensors: rename(tensors, usual, other))  # noqa: B023  runs at once
    t = {name: np.array(array, dtype=np.float64) for name, array in raw.items()}
    loaded = load_drafter(folder, target)
    assert bound_hash(folder) is None
    assert loaded.network.config.output is Output.OWN
    assert loaded.vocabulary.tolist() == list(range(len(ALPHABET)))

    hidden = mx.random.normal((32,))
    tokens = mx.random.normal((3, 32))
    found = loaded.network.initial_state(())
    state = np.zeros(32)
    for token in tokens:
        found = loaded.network.advance(found, token)
        e = np.array(token)
        state = silu(t["rnn_w.weight"] @ e + t["rnn_u.weight"] @ state + t["rnn_u.bias"]) if rnn else e + state
    x = np.concatenate([np.array(hidden), state])
    if inner != 64:
        x = t["input_proj.weight"] @ x + t["input_proj.bias"]
    for i in range(blocks):
        x = x + silu(t[f"lm_head.{i}.linear.weight"] @ x + t[f"lm_head.{i}.linear.bias"])
    logits = t[f"lm_head.{blocks}.weight"] @ x
    np.testing.assert_allclose(
        np.array(loaded.network.features(loaded.network.context(hidden), found)), logits, atol=1e-4
    )


def test_an_apple_checkpoint_with_unknown_names_or_sizes_is_refused(tmp_path: Path, target: LoadedModel) -> None:
    folder = tmp_path / "apple"
    apple_checkpoint(folder, 32, 48, 1, True, len(ALPHABET))
    change_tensors(folder, surprise=mx.zeros(1))
    refuses(folder, target, "surprise")
    change(folder, exit_dim=None)
    refuses(folder, target, "exit_dim")


def test_a_drafter_that_is_replaced_is_never_half_old_and_half_new(
    folder: Path, target: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each step of the writing: either nothing is found, or a drafter that can be loaded."""
    moved = 0
    plain = Path.replace

    def replace_and_look(self: Path, goal: Path) -> Path:
        nonlocal moved
        moved += 1
        assert not (folder / "config.json").exists()  # the old one describes other weights
        assert target_named_in(folder) is None  # and yet a resumed training may go on here
        return plain(self, goal)

    monkeypatch.setattr(Path, "replace", replace_and_look)
    wider = HeadConfig(hidden_size=32, draft_vocabulary_size=5, exit_size=48, state_size=32)
    write_drafter(folder, stored(target, wider).written(), "new")
    assert moved == 3
    assert load_drafter(folder, target).network.config.exit_size == 48
    assert target_named_in(folder) == TargetBinding.for_model(target.info).hash


def test_a_damaged_models_header_does_not_take_all_memory(target: LoadedModel) -> None:
    weights = target.info.path / "model.safetensors"
    weights.write_bytes(b"\xff" * 7 + b"\x7f" + weights.read_bytes()[8:])
    assert target_hash(target.info.path)


@pytest.fixture
def drafter(target: LoadedModel) -> Path:
    """A good drafter among the person's own."""
    folder = paths.drafters_dir() / "good"
    write_drafter(folder, stored(target).written(), "")
    return folder


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
        told = {option.mode: option for option in Drafters(target).draft_options(DraftSettings()).modes}
    assert found.folder == drafter
    assert len(found.left_out) == 1
    assert found.left_out[0].startswith("The drafter bad is not used: ")
    assert told[Mode.DRAFTER].available
    assert told[Mode.DRAFTER].source == str(drafter)
    for mode in (Mode.DRAFTER, Mode.AUTO):
        assert found.left_out[0] in told[mode].reason
    for mode in (Mode.DRAFTER, Mode.AUTO, Mode.LOOKUP):
        assert not isinstance(Drafters(target).load_drafters(DraftSettings(mode=mode)), str)


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
        ({"cell": "gru"}, "its configuration is damaged"),
        ({"hidden_size": "32"}, "its configuration is damaged"),
        ({"hidden_size": 10**30}, "a number is too large"),
        ({"draft_vocabulary_size": 2**31 - 1}, "fewer weights than its configuration needs"),
        ({"draft_vocabulary_size": 600}, "proposes tokens that tiny does not have"),
        ({"target_layers": [0] * 2000}, "it reads more than 1,000 layers"),
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
    refused(drafter, target, words)


@pytest.mark.parametrize("binding", [3, None, [], {"hash": 3}, {"name": 3, "architecture": "a", "hash": "b"}])
def test_a_drafter_that_does_not_say_whose_it_is(binding: object, target: LoadedModel, drafter: Path) -> None:
    change(drafter, target=binding)
    refused(drafter, target, "does not say which model", check_drafter)


@pytest.mark.parametrize(
    "changes",
    [{"num_draft_layers": 10**9}, {"exit_dim": 2**31}, {"vocab_size": 2**31 - 1}, {"exit_dim": 1e400}, {"rnn": "x"}],
)
def test_apples_checkpoints_with_absurd_sizes(changes: dict[str, Any], tmp_path: Path, target: LoadedModel) -> None:
    apple_checkpoint(tmp_path / "apple", 32, 48, 1, False, target.info.vocabulary_size)
    change(tmp_path / "apple", **changes)
    refused(tmp_path / "apple", target, ".")


def test_a_drafter_beside_a_lost_link_drafts(target: LoadedModel, drafter: Path) -> None:
    """Its files are told apart by their times, and a link that led nowhere had none."""
    (drafter / "notes.txt").symlink_to("gone")
    drafters = Drafters(target)
    loaded = drafters.load_drafters(DraftSettings(mode=Mode.AUTO), strict=True)
    assert isinstance(loaded, AvailableDrafters)
    assert loaded.folder == drafters.auto.available.folder == drafter


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
    told = {option.mode: option for option in Drafters(target).draft_options(settings).modes}
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
    told = {drafters.load_drafters(settings) for _ in range(3)}
    assert len(told) == 1
    assert (AvailableDrafters() in told) is (mode is Mode.AUTO)
    assert drafters.auto.available.head is None
    assert reads == [drafter]
    weights.write_bytes(good)
    os.utime(weights, (1, 1))  # surely another time than before
    assert not isinstance(drafters.load_drafters(settings), str)
    assert reads == [drafter, drafter]


def test_mtp_layers_that_do_not_fit_are_loaded_once_there_is_room(
    target: LoadedModel, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint says to close other apps."""

    def refuse(folder: Path, model: LoadedModel) -> Head:
        raise DoesNotFitError("No room.", "Close other apps.")

    drafters = Drafters(target)
    settings = DraftSettings(Mode.DRAFTER, drafter=str(drafter))
    with monkeypatch.context() as patch:
        patch.setattr("rdchat.inference.drafters.load_drafter", refuse)
        assert drafters.load_drafters(settings) == "No room. Close other apps."
    assert not isinstance(drafters.load_drafters(settings), str)
