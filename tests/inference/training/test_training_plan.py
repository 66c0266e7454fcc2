"""Problems are reported before any long work begins."""

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchKVCache

from rdchat import paths
from rdchat.errors import (
    DoesNotFitError,
    ModelError,
    RdchatError,
    StorageError,
    StorageFullError,
)
from rdchat.inference.api import Capability, DraftKind, TrainingSettings
from rdchat.inference.device import MemoryRoom
from rdchat.inference.training import training_plan
from rdchat.inference.training.training_plan import TrainingPlan, make_plan
from rdchat.inference.training.training_run import DrafterTraining
from rdchat.inference.verification.target import LoadedModel
from tests.disks import small_disk
from tests.grids import share
from tests.inference.drafting.checkpoints.drafter_folders import saved_random_drafter
from tests.inference.fakes import ALPHABET, CharacterTokenizer, lenient_llama, loaded, tiny_llama
from tests.inference.families import CHAINS, TREES, network_of
from tests.inference.known_capabilities import with_known
from tests.time_limits import at_most

LANE_BYTES = 2 * 2 * 2 * 8 * 4 * 1408  # keys and values of two layers, of two heads of 8 numbers, of 4 bytes each


@pytest.fixture(scope="module")
def model() -> Iterator[LoadedModel]:
    """A model whose decoding of batches is checked once."""
    model = lenient_llama()
    check = training_plan.check_batched_decoding
    check(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            training_plan, "check_batched_decoding", lambda other: other.network is model.network or check(other)
        )
        yield model


@pytest.fixture
def settings(tmp_path: Path) -> TrainingSettings:
    return TrainingSettings(tmp_path / "out", tokens=5000)


def refuses(
    kind: type[RdchatError], words: str, model: LoadedModel, settings: TrainingSettings, resume: bool = False
) -> None:
    with pytest.raises(kind, match=words):
        make_plan(model, settings, resume)


def test_layers_of_three_depths_are_read(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = make_plan(model, settings, resume=False)
    assert plan.reads.layers == (0, 1)  # of two; there is none after three quarters


def test_a_plan_says_what_it_takes(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = make_plan(model, settings, resume=False)
    assert plan.folder.is_relative_to(paths.cache_dir())
    assert plan.budget.disk_bytes == 5000 * 10
    assert make_plan(model, replace(settings, tokens=10**7), resume=False).budget.memory_bytes > 10**7 * 64
    assert not paths.cache_dir().exists()  # to look is not to begin


@pytest.mark.slow
def test_other_data_has_a_folder_of_its_own(model: LoadedModel, settings: TrainingSettings) -> None:
    plans = [settings, replace(settings, seed=1), replace(settings, prompts=("a question",))]
    assert len({make_plan(model, item, resume=False).folder for item in plans}) == 3
    longer = replace(settings, tokens=9000, out=settings.out / "other")
    assert make_plan(model, longer, resume=False).folder == make_plan(model, settings, resume=False).folder


def disk_with(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**12, 10**12 - free, free))


def test_a_disk_without_room(model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_with(500_020_000, monkeypatch)
    refuses(StorageFullError, r"needs 50 KB .* room for 20 KB", model, settings)


@pytest.mark.slow
def test_a_resumed_training_needs_room_only_for_the_data_that_it_lacks(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(settings, sequences=4)
    shards = begin(model, settings).folder / "shards"
    shards.mkdir(exist_ok=True)
    (shards / "00000.npz").write_bytes(bytes(40_000))
    disk_with(500_020_000, monkeypatch)
    assert make_plan(model, settings, resume=True).resumed
    disk_with(500_005_000, monkeypatch)
    with pytest.raises(StorageFullError):
        make_plan(model, settings, resume=True)
    (shards / "00001.npz").write_bytes(bytes(10**6))
    disk_with(1000, monkeypatch)
    assert make_plan(model, settings, resume=True).resumed, "it needs no more"


def begin(model: LoadedModel, settings: TrainingSettings) -> TrainingPlan:
    """Run a training up to its first event."""
    plan = make_plan(model, settings, resume=False)
    events = DrafterTraining(model, plan).train()
    next(events)
    events.close()
    return plan


@pytest.mark.slow
def test_what_was_settled_holds_for_every_run(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template may name the day."""
    settings = replace(settings, sequences=4, chat_questions=("what is tea",))
    plan = begin(model, settings)
    monkeypatch.setattr(
        "rdchat.inference.training.training_plan.chat_template", lambda _model: pytest.fail("asked again")
    )
    again = make_plan(model, replace(settings, chat_questions=("what is tea", "asked since then")), resume=True)
    assert again.resumed
    assert not plan.resumed
    assert (again.folder, again.record.template(model), again.settings.chat_questions) == (
        plan.folder,
        plan.record.template(model),
        ("what is tea",),
    )


@pytest.mark.slow
def test_a_training_is_not_continued_in_another_precision(model: LoadedModel, settings: TrainingSettings) -> None:
    begin(model, replace(settings, sequences=4))
    other = replace(model, info=replace(model.info, dtype="4bit"))
    refuses(RdchatError, r"began with the model in float32", other, replace(settings, sequences=4), resume=True)


@pytest.mark.slow
def test_a_note_that_is_damaged_is_named(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = begin(model, replace(settings, sequences=4))
    (plan.folder / "begun.json").write_text("{")
    refuses(RdchatError, r"begun\.json is damaged", model, replace(settings, sequences=4), resume=True)


@pytest.mark.slow
def test_a_note_that_is_a_pipe_is_not_waited_for(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = begin(model, replace(settings, sequences=4))
    (plan.folder / "begun.json").unlink()
    os.mkfifo(plan.folder / "begun.json")
    with at_most(60), pytest.raises(RdchatError, match="is a named pipe"):
        make_plan(model, replace(settings, sequences=4), resume=True)


def test_sequences_are_fewer_where_memory_is_small(
    model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.inference.training.training_plan.total_memory_bytes", lambda: 10 * LANE_BYTES)
    plan = make_plan(model, settings, resume=False)
    assert plan.settings.sequences == 5  # 0.6 of it, logits counted as well
    monkeypatch.undo()


def test_too_little_memory(model: LoadedModel, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    room = MemoryRoom(limit_bytes=10**6, free_bytes=10**12)
    monkeypatch.setattr("rdchat.inference.training.training_plan.memory_room", lambda: room)
    refuses(DoesNotFitError, r"needs .* of memory .* 1 MB are free", model, settings)
    assert make_plan(model, replace(settings, anyway=True), resume=False).budget.memory_bytes > 10**6


def test_questions_that_are_too_long_are_left_out(model: LoadedModel, settings: TrainingSettings) -> None:
    short = "what is tea"
    long = "a" * 401
    plan = make_plan(model, replace(settings, prompts=(short, long), chat_questions=(long,)), resume=False)
    assert (plan.settings.prompts, plan.settings.chat_questions, plan.left_out) == ((short,), (), 2)
    refuses(RdchatError, "All questions are longer than 400 tokens", model, replace(settings, prompts=(long,)))


def test_an_output_folder_that_holds_something_else(model: LoadedModel, settings: TrainingSettings) -> None:
    settings.out.mkdir()
    make_plan(model, settings, resume=False)  # empty
    (settings.out / "thesis.txt").write_text("years of work")
    refuses(RdchatError, "something other than a drafter", model, settings)


def test_an_output_that_is_a_file(model: LoadedModel, settings: TrainingSettings) -> None:
    settings.out.write_text("x")
    refuses(RdchatError, "is a file", model, settings)


def test_an_output_whose_path_is_no_text(model: LoadedModel, settings: TrainingSettings) -> None:
    """MLX raised `std::bad_cast` at the end of the training, when the drafter was written."""
    odd = settings.out.with_name("odd\udcff")
    refuses(RdchatError, "is not UTF-8 text, which MLX needs", model, replace(settings, out=odd))


def test_a_folder_in_which_a_drafter_was_half_written_is_taken(model: LoadedModel, settings: TrainingSettings) -> None:
    """Killed between weights and configuration; --resume has to be able to go on."""
    settings.out.mkdir()
    (settings.out / "part-model.safetensors").write_bytes(b"half")
    make_plan(model, settings, resume=False)
    (settings.out / "model.safetensors").write_bytes(b"weights")
    refuses(RdchatError, "something other than a drafter", model, settings)  # anybody's weights
    (settings.out / "part-config.json").write_text("{")
    make_plan(model, settings, resume=False)


def test_an_output_folder_that_cannot_be_written_to(model: LoadedModel, settings: TrainingSettings) -> None:
    settings.out.mkdir()
    with small_disk(settings.out) as disk:
        disk.make_read_only()
        refuses(StorageError, "cannot be written to", model, replace(settings, out=settings.out / "deeper" / "drafter"))


def test_an_older_drafter_of_the_same_model_may_be_replaced(model: LoadedModel, settings: TrainingSettings) -> None:
    saved_random_drafter(model, settings.out, 32)
    make_plan(model, settings, resume=False)
    config = json.loads((settings.out / "config.json").read_text())
    config["target"]["hash"] = "0" * 64
    (settings.out / "config.json").write_text(json.dumps(config))
    refuses(RdchatError, "something other than a drafter for tiny", model, settings)


def test_a_training_that_has_begun_is_only_continued_when_asked(model: LoadedModel, settings: TrainingSettings) -> None:
    plan = make_plan(model, settings, resume=False)
    (plan.folder / "shards").mkdir(parents=True)
    refuses(RdchatError, "--resume", model, settings)
    make_plan(model, settings, resume=True)


def test_a_template_without_a_user_role(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CharacterTokenizer, "apply_chat_template", lambda *_args, **_options: "hello")
    refuses(ModelError, "chat template changes the user's text", tiny_llama(0), settings)


def test_a_model_that_does_not_give_its_hidden_states(settings: TrainingSettings) -> None:
    silent = tiny_llama(0)
    trunk = silent.network.model
    trunk.__class__ = trunk.__class__.__mro__[1]  # without the hook
    silent.hooks.hidden = None
    refuses(ModelError, "does not provide the hidden states", silent, settings)


def of_family(name: str) -> LoadedModel:
    """Return a small random model of an architecture, with the tests' tokens; it was found out to take trees."""
    module, options = (TREES | CHAINS)[name]
    network = network_of(module, {"vocab_size": len(ALPHABET), "vocab_size_per_layer_input": 300, **options})
    return with_known(loaded(network), Capability(DraftKind.TREE))


FAMILIES = ["deepseek_v3", "gemma3", "qwen2", "mistral4", "phi3", "gpt_oss", "gpt2", "cohere2", "nanochat"]


@pytest.mark.parametrize("name", share(FAMILIES, 8))
def test_drafters_can_be_trained_for_many_families(name: str, settings: TrainingSettings) -> None:
    """What each sequence says is compared with what it says alone; DeepSeek's masks are numbers."""
    make_plan(of_family(name), settings, resume=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemma3n", "does not provide the hidden states"),  # its trunk gives the logits
        ("gemma2", "cannot answer several questions at once"),  # masks of its own
        ("llama4", "cannot answer several questions at once"),  # chunks
        ("lfm2", "keeps more than keys and values between tokens"),
    ],
)
def test_families_that_cannot_be_trained_for_are_refused(name: str, words: str, settings: TrainingSettings) -> None:
    refuses(ModelError, words, of_family(name), settings)


def test_sequences_that_say_something_else_than_alone_are_refused(
    settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a family would that reads positions in a way of its own: here all sequences see the longest one's columns."""
    monkeypatch.setattr(
        BatchKVCache,
        "make_mask",
        lambda self, count, **_o: mx.ones((self.offset.shape[0], 1, count, self.size() + count), mx.bool_),
    )
    refuses(ModelError, "its logits in a batch were different", tiny_llama(0), settings)


def test_a_model_that_cannot_verify_drafts_is_refused(model: LoadedModel, settings: TrainingSettings) -> None:
    lame = replace(model, try_out=lambda: Capability(DraftKind.NONE, "it is lame"))
    refuses(ModelError, "cannot check drafts: it is lame", lame, settings)
