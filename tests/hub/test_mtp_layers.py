"""A model's MTP layers come from whole files of its original, or there is one plain sentence."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.errors import ModelError, NetworkError, StorageError
from rdchat.hub import HubError, RepositoryFiles
from rdchat.hub.downloads.download_record import begin_drafter, listed_downloads
from rdchat.inference.api import ModelCard
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.library.model_library import find_part, library_models
from rdchat.inference.library.original_source import IncompleteModel, find_original, plan_part
from rdchat.inference.models.model_config import is_mtp
from rdchat.inference.models.safetensors_file import target_hash
from tests.hub.downloads.downloading import LIMITS, check_whole, download, hub_api
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.hub.mtp_samples import (
    CONFIG,
    FIRST,
    ORIGINAL,
    SECOND,
    SHARDS,
    TARGET,
    TRUNK,
    Original,
    check_layers,
    drafter_folder,
    header_of,
    make_target,
    packed,
    place,
    run,
    stored,
    target_of,
    tensors_of,
)


@pytest.fixture
def target(tmp_path: Path) -> IncompleteModel:
    return target_of(make_target(tmp_path / "target"))


def card_of(target: IncompleteModel) -> ModelCard:
    return ModelCard(TARGET, TARGET, "", target.folder)


def planned(target: IncompleteModel) -> RepositoryFiles:
    return plan_part(hub_api(), target, ORIGINAL)


def fetch(plan: RepositoryFiles, **limits: float) -> Path:
    """Fetch a plan's layers in this process."""
    return run(begin_drafter(plan), **limits)


def refused(hub: HubServer, target: IncompleteModel, original: Original) -> str:
    """Return the sentence with which a repository is refused before anything is fetched."""
    original.put(hub)
    with pytest.raises(HubError) as caught:
        planned(target)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return caught.value.message


def test_the_layers_come_whole_and_only_files_that_hold_some_are_fetched(
    hub: HubServer, target: IncompleteModel
) -> None:
    original = Original()
    original.shards["model-00000-of-00002.safetensors"] = stored(TRUNK, 4)
    commit = original.put(hub)
    plan = planned(target)
    assert [file.name for file in plan.files] == list(SHARDS)
    assert hub.sent.total() < 10_000
    asked = len(hub.requests)
    sent = hub.sent.total()
    folder = fetch(plan)
    check_layers(folder, original)
    assert folder == drafter_folder()
    assert folder.name.startswith("Tiny-Next-4bit-mtp-")
    assert hub.sent.total() - sent == plan.size == sum(len(original.shards[name]) for name in SHARDS)
    assert all(commit in request.path or "/blob/" in request.path for request in hub.requests[asked:])
    config = json.loads((folder / "config.json").read_text())
    own = config.pop("rdchat")
    assert config == CONFIG
    assert own["target"] == {"name": TARGET, "architecture": "qwen3_next", "hash": target_hash(target.folder)}
    files = {name: sha256(original.shards[name]) for name in SHARDS}
    assert own["source"] == {"repository": ORIGINAL, "commit": commit, "files": files}
    card = (folder / "card.md").read_text()
    assert all(words in card for words in (commit, ORIGINAL, TARGET))
    (listed,) = (each for each in library_models(read=read_facts) if each.path == folder)
    assert (listed.is_drafter, listed.can_be_loaded) == (True, False), "it was a damaged model"
    assert listed_downloads() == ()


def test_other_users_cannot_read_the_layers_whatever_the_umask(hub: HubServer, target: IncompleteModel) -> None:
    """The child that downloads has the person's umask, since it also writes to the hub's cache."""
    Original().put(hub)
    download = begin_drafter(planned(target))
    before = os.umask(0o022)
    try:
        folder = run(download)
    finally:
        os.umask(before)
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


def test_an_original_that_is_here_is_not_fetched_and_stays(hub: HubServer, target: IncompleteModel) -> None:
    original = Original()
    original.put(hub)
    snapshot, _ = download(ORIGINAL)
    sent = hub.sent.total()
    folder = fetch(planned(target))
    assert tensors_of((folder / "model.safetensors").read_bytes()) == original.layers
    assert hub.sent.total() - sent < 10_000
    check_whole(snapshot, original.files)
    assert listed_downloads() == ()


def test_a_drafter_that_cannot_be_written_keeps_what_was_fetched(
    hub: HubServer, target: IncompleteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    (tmp_path / "file").write_text("no folder")
    with monkeypatch.context() as patch:
        patch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "file"))
        with pytest.raises(StorageError):
            fetch(plan)
    sent = hub.sent.total()
    check_layers(fetch(plan), original)
    assert hub.sent.total() == sent


def test_a_drafter_of_the_same_name_is_not_touched(hub: HubServer, target: IncompleteModel) -> None:
    """Whoever can write the hub's cache can write a record there."""
    Original().put(hub)
    own = paths.drafters_dir() / "mine"
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    assert fetch(replace(planned(target), drafter="mine")) == own
    assert [path.name for path in own.iterdir()] == ["config.json"]


def test_an_unfinished_download_is_listed_and_goes_on_without_a_question(
    hub: HubServer, target: IncompleteModel, tmp_path: Path
) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    hub.faults[SHARDS[1]] = [Fault(cut=1_000), *[Fault(status=500)] * LIMITS.tries]
    with pytest.raises(NetworkError):
        fetch(plan)
    asked = len(hub.requests)
    kept = find_part(hub_api(), card_of(target))
    assert kept == plan
    (listed,) = listed_downloads()
    assert (listed.repository, listed.drafter, listed.is_model) == (ORIGINAL, target.drafter, False)
    assert 0 < listed.done_bytes < listed.total_bytes == plan.size
    assert not any(model.repository == ORIGINAL for model in library_models(read=read_facts))
    hub.faults.clear()
    check_layers(fetch(kept), original)
    assert not any("/api/" in request.path for request in hub.requests[asked:])
    assert hub.starts(original.shards[SHARDS[1]])[-1] == 1_000
    assert listed_downloads() == ()


def test_another_original_takes_the_place_of_an_unfinished_download(hub: HubServer, target: IncompleteModel) -> None:
    original = Original()
    original.put(hub)
    hub.faults[SHARDS[1]] = [Fault(cut=1_000), *[Fault(status=500)] * LIMITS.tries]
    with pytest.raises(NetworkError):
        fetch(planned(target))
    assert place().blobs.exists()
    hub.faults.clear()
    original.put(hub, "authors/Mirror")
    newer = find_part(hub_api(), card_of(target), "authors/Mirror")
    assert newer is not None
    fetched = begin_drafter(newer)
    assert not place().folder.exists()
    (listed,) = listed_downloads()
    assert (listed.repository, listed.id) == ("authors/Mirror", fetched.id)
    check_layers(run(fetched), original)


def test_layers_that_are_here_are_not_fetched_again(hub: HubServer, target: IncompleteModel) -> None:
    original = Original()
    original.put(hub)
    folder = fetch(planned(target))
    with pytest.raises(ModelError, match=r"has MTP layers in .*Tiny-Next-4bit-mtp"):
        planned(target)
    check_layers(folder, original)


def test_an_index_that_names_other_places_is_refused(hub: HubServer, target: IncompleteModel) -> None:
    original = Original()
    original.places["mtp.norm.weight"] = "../../../evil.safetensors"
    assert "names a file that it does not have" in refused(hub, target, original)
    original.places["mtp.norm.weight"] = "config.json"
    assert "names a file that it does not have" in refused(hub, target, original)


def _moved() -> bytes:
    header, size = header_of(SECOND)
    moved = header["mtp.norm.weight"]
    moved["data_offsets"] = [offset + 16 for offset in moved["data_offsets"]]
    return packed(header, bytes(size))


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        (_moved(), "does not follow the tensor before it"),
        (packed(b"[]"), "it lists no tensors"),
        (b"short", "is incomplete or not a safetensors file"),
        (stored({**SECOND, "mtp.fc.weight": ("BF16", (8, 16))}), "has a tensor in two files"),
        (stored({**SECOND, "mtp.\x1b[31m\n.weight": ("BF16", (8,))}), "with an impossible name"),
    ],
)
def test_files_that_are_damaged_are_refused_and_dropped(
    hub: HubServer, target: IncompleteModel, shard: bytes, words: str
) -> None:
    original = Original()
    original.shards[SHARDS[1]] = shard
    original.put(hub)
    with pytest.raises(ModelError) as caught:
        fetch(planned(target))
    assert words in caught.value.message
    assert not place().folder.exists()
    assert not paths.drafters_dir().exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_size": 16}, "another hidden_size than some-org/Tiny-Next-4bit: 16 instead of 8"),
        ({"vocab_size": 41}, "another vocab_size"),
        ({"num_hidden_layers": 3}, "another num_hidden_layers"),
        (
            {"model_type": "glm4_moe"},
            "another model_type than some-org/Tiny-Next-4bit: 'glm4_moe' instead of 'qwen3_next'",
        ),
    ],
)
def test_another_models_layers_are_refused(
    hub: HubServer, target: IncompleteModel, changed: dict[str, object], words: str
) -> None:
    original = Original()
    original.config |= changed
    assert words in refused(hub, target, original)


def test_eight_bit_floats_come_with_their_scales(hub: HubServer, tmp_path: Path) -> None:
    target = target_of(make_target(tmp_path / "other", model_type="deepseek_v3"))
    name = "mtp.layers.0.self_attn.o_proj.weight"
    original = Original(places=dict(Original().places) | {name: SHARDS[1]})
    original.config["model_type"] = "deepseek_v3"
    shard = stored({**SECOND, name: ("F8_E4M3", (8, 8)), f"{name}_scale_inv": ("F32", (1, 1))}, 2)
    original.shards[SHARDS[1]] = shard
    original.put(hub)
    found = tensors_of((fetch(planned(target)) / "model.safetensors").read_bytes())
    assert {name, f"{name}_scale_inv"} < found.keys()
    known = tensors_of(shard) | original.layers
    assert all(known[tensor] == each for tensor, each in found.items())


def test_a_repository_without_mtp_layers_says_so(hub: HubServer, target: IncompleteModel) -> None:
    original = Original(shards={SHARDS[0]: stored({"model.norm.weight": ("BF16", (8,))})})
    original.places = {"model.norm.weight": SHARDS[0]}
    assert refused(hub, target, original) == f"{ORIGINAL} has no MTP layers."
    hub.add(ORIGINAL, {"README.md": b"# Nothing"})
    with pytest.raises(HubError, match=r"has no config\.json"):
        planned(target)


def test_a_repository_without_an_index_is_fetched_whole(hub: HubServer, target: IncompleteModel) -> None:
    config = {"config.json": json.dumps(CONFIG).encode()}
    hub.add(ORIGINAL, {**config, "model.safetensors": stored({"model.norm.weight": ("BF16", (8,))})})
    with pytest.raises(ModelError, match=f"{ORIGINAL} has no MTP layers"):
        fetch(planned(target))
    assert not place().folder.exists()
    original = Original(shards={"model.safetensors": stored({**TRUNK, **FIRST, **SECOND}, 1)})
    hub.add(ORIGINAL, {**config, **original.shards})
    check_layers(fetch(planned(target)), original)


@pytest.mark.parametrize(
    ("facts", "card", "found"),
    [
        ({"tags": ["mlx", f"base_model:{ORIGINAL}", f"base_model:quantized:{ORIGINAL}"]}, "", ORIGINAL),
        ({"tags": ["base_model:quantized:a/b", "base_model:quantized:a/c"]}, "", ""),
        ({"tags": ["base_model:finetune:a/b"]}, "---\nbase_model: a/b\nbase_model_relation: finetune\n---\n", ""),
        ({"tags": ["base_model:quantized:../../evil"]}, "", ""),
        ({"tags": [None, 1]}, f"---\nlicense: mit\nbase_model: {ORIGINAL}\n---\n# Card", ORIGINAL),
        ({}, f"---\nbase_model:\n- {ORIGINAL}\nbase_model_relation: quantized\n---\n", ORIGINAL),
        ({}, "---\nbase_model:\n- a/b\n- a/c\n---\n", "a/b"),
        ({}, f"# A card\nbase_model: {ORIGINAL}\n", ""),
        ({}, "---\nbase_model: ../../evil\n---\n", ""),
        ({}, f"---\r\nbase_model:\r\n  - '{ORIGINAL}'\r\n---\r\n", ORIGINAL),
    ],
)
def test_the_original_is_the_one_that_the_hub_or_the_card_names(
    hub: HubServer, tmp_path: Path, facts: dict[str, object], card: str, found: str
) -> None:
    hub.add(TARGET, {"config.json": b"{}"}, **facts)
    target = target_of(make_target(tmp_path / "other", card))
    assert find_original(hub_api(), target) == found


def test_a_model_that_the_hub_does_not_know_is_looked_up_in_its_card(hub: HubServer, tmp_path: Path) -> None:
    folder = make_target(tmp_path / "other", f"---\nbase_model: {ORIGINAL}\n---\n")
    assert find_original(hub_api(), target_of(folder)) == ORIGINAL
    asked = len(hub.requests)
    assert find_original(hub_api(), target_of(folder, "my own model")) == ORIGINAL
    assert len(hub.requests) == asked


def test_only_the_beginning_of_a_hostile_card_is_searched(hub: HubServer, tmp_path: Path) -> None:
    """The search once took time by the square of the lines."""
    hub.add(TARGET, {"config.json": b"{}"})
    many = 1_000_000
    for number, card in enumerate(
        (f"---\nbase_model:{many * chr(10)}", f"---\n{many * 'a'}\nbase_model: {ORIGINAL}\n")
    ):
        assert find_original(hub_api(), target_of(make_target(tmp_path / str(number), card))) == ""


@pytest.mark.parametrize("name", ["模型", "some-org/模型", "...", "~"])
def test_a_model_whose_name_has_no_latin_letters_has_a_folder(tmp_path: Path, name: str) -> None:
    assert target_of(make_target(tmp_path / "other"), name).drafter.startswith("model-mtp-")


def test_a_model_that_has_its_layers_needs_none(tmp_path: Path) -> None:
    folder = make_target(tmp_path / "other")
    (folder / "model.safetensors").write_bytes(stored({"mtp.norm.weight": ("BF16", (8,))}))
    with pytest.raises(ModelError, match="has MTP layers in its own files"):
        target_of(folder)


def test_a_family_whose_layers_cannot_draft_is_refused_before_anything_is_fetched(
    hub: HubServer, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"cannot use the MTP layers of .*: its sources disagree on a norm"):
        target_of(make_target(tmp_path / "other", model_type="ernie4_5_moe"))
    assert hub.requests == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mtp.fc.weight", True),
        ("model.mtp.layers.0.norm.weight", True),
        ("language_model.mtp.fc.weight", True),
        ("model.mtp_layers.0.input_proj.weight", True),
        ("model.mtp_linear_proj.0.weight", True),
        ("mtp_emb_norm.weight", True),
        ("model.layers.2.eh_proj.weight", True),
        ("language_model.model.layers.2.enorm.weight", True),
        ("model.layers.1.mlp.up_proj.weight", False),
        ("model.smtp.weight", False),
        ("visual.layers.5.norm.weight", False),
        ("lm_head.weight", False),
        ("mtp.embed_tokens.weight", False),
    ],
)
def test_tensors_are_told_by_their_names(name: str, expected: bool) -> None:
    assert is_mtp(name, CONFIG) is expected
    assert is_mtp(name, {"text_config": CONFIG}) is expected
    copies = ("lm_head.weight", "mtp.embed_tokens.weight")
    assert is_mtp(name, {"num_hidden_layers": 0}) is (expected or name.startswith("model.layers."))
    assert is_mtp(name, {"model_type": "qwen3_5_mtp"}) is (name not in copies)
