"""A model's MTP layers come from its original's repository by ranges, whole and checked, or with one plain sentence."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.errors import ModelError, NetworkError, StorageFullError
from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_record import DrafterPlan, listed_downloads
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import AccessRefusedError, ChangedFileError, HubError
from rdchat.inference.models.model_files import target_hash
from rdchat.inference.models.mtp_source import MtpTarget, find_original, plan_mtp, saved_plan
from rdchat.inference.models.mtp_tensors import is_mtp
from rdchat.inference.models.safetensors_file import MAX_HEADER_BYTES
from tests.disks import small_disk
from tests.grids import share
from tests.hub.downloading import LIMITS
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.hub.mtp_samples import (
    CONFIG,
    ORIGINAL,
    SECOND,
    SHARDS,
    TARGET,
    Original,
    check_layers,
    drafter_folder,
    header_of,
    make_target,
    packed,
    run,
    stored,
    target_of,
    tensors_of,
)


@pytest.fixture
def target(tmp_path: Path) -> MtpTarget:
    return target_of(make_target(tmp_path / "target"))


def api() -> HubApi:
    return HubApi(Tokens().access(find_endpoint()))


def planned(target: MtpTarget) -> DrafterPlan:
    return plan_mtp(api(), target, ORIGINAL)


def fetch(plan: DrafterPlan, **limits: float) -> Path:
    """Fetch a plan's layers in this process."""
    return run(plan.begin(), **limits)


def refused(hub: HubServer, target: MtpTarget, original: Original) -> str:
    """Return the sentence with which a repository is refused before anything is fetched."""
    original.put(hub)
    with pytest.raises(HubError) as caught:
        planned(target)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return caught.value.message


def test_the_layers_come_whole_and_nothing_else_is_fetched(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    commit = original.put(hub)
    plan = planned(target)
    asked, sent = len(hub.requests), hub.sent.total()
    folder = fetch(plan)
    check_layers(folder, original)
    assert folder == drafter_folder()
    assert folder.name.startswith("Tiny-Next-4bit-mtp-")
    size = sum(len(data) for _, _, data in original.layers.values())
    assert hub.sent.total() - sent == size
    assert plan.size == (folder / "model.safetensors").stat().st_size
    assert all(commit in request.path or "/blob/" in request.path for request in hub.requests[asked:])
    config = json.loads((folder / "config.json").read_text())
    own = config.pop("rdchat")
    assert config == CONFIG
    assert own["target"] == {"name": TARGET, "architecture": "qwen3_next", "hash": target_hash(target.folder)}
    files = {
        name: {"etag": f'"store-{sha256(data)}"', "checksum": sha256(data)} for name, data in original.shards.items()
    }
    assert own["source"] == {"repository": ORIGINAL, "commit": commit, "files": files}
    card = (folder / "card.md").read_text()
    assert "could not be checked against" in card
    assert all(words in card for words in (commit, ORIGINAL, sha256(original.shards[SHARDS[0]])))


def test_other_users_cannot_read_the_layers_whatever_the_umask(hub: HubServer, target: MtpTarget) -> None:
    """The child that downloads has the person's umask, since it also writes to the hub's cache."""
    Original().put(hub)
    plan = planned(target)
    place, modes = target.folder_for(ORIGINAL), dict[str, int]()
    hub.fault(SHARDS[1], Fault(cut=1_000))
    begun = lambda: place.work.glob("*.part")  # noqa: E731
    hub.before_bytes[SHARDS[1]] = lambda: modes.update((each.name, each.stat().st_mode) for each in begun())
    download = plan.begin()
    before = os.umask(0o022)
    try:
        folder = run(download)
    finally:
        os.umask(before)
    modes |= {each.name: each.stat().st_mode for each in folder.iterdir()}
    assert {name: oct(mode & 0o777) for name, mode in modes.items()} == dict.fromkeys(modes, "0o600")
    assert {f"{plan.files.files[0].digest}.part", "model.safetensors", "config.json"} < modes.keys()


def test_the_plan_reads_only_headers(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.shards["model-00000-of-00002.safetensors"] = b"not asked for"
    original.put(hub)
    planned(target)
    assert not hub.starts(b"not asked for")
    assert not target.folder_for().folder.exists()


def test_a_header_longer_than_the_first_request_is_read_whole(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    many = {f"model.layers.0.experts.{number}.up_proj.weight": ("BF16", (1,)) for number in range(3_000)}
    original.shards[SHARDS[1]] = stored({**many, **SECOND}, 2)
    original.put(hub)
    check_layers(fetch(planned(target)), original)
    assert hub.starts(original.shards[SHARDS[1]])[:2] == [0, 2**18]


def test_cuts_at_random_bytes_cost_no_byte_twice(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    for shard in SHARDS:
        hub.fault(shard, *(Fault(cut=random.Random(seed).randrange(1, 100_000)) for seed in range(6)))
    sent = hub.sent.total()
    check_layers(fetch(plan), original)
    assert hub.sent.total() - sent == sum(len(data) for _, _, data in original.layers.values())


def test_an_unfinished_download_is_listed_and_goes_on_without_a_plan(
    hub: HubServer, target: MtpTarget, tmp_path: Path
) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    hub.faults[SHARDS[1]] = [Fault(cut=1_000), *[Fault(status=500)] * LIMITS.tries]
    with pytest.raises(NetworkError):
        fetch(plan)
    kept = saved_plan(target)
    assert kept is not None
    assert (kept.files, kept.is_saved) == (plan.files, True)
    (listed,) = listed_downloads()
    assert (listed.repository, listed.drafter, listed.is_model) == (ORIGINAL, target.folder_for().folder.name, False)
    assert 0 < listed.done_bytes < listed.total_bytes == plan.files.size
    hub.faults.clear()
    asked = len(hub.requests)
    check_layers(fetch(kept), original)
    assert not any("/api/" in request.path for request in hub.requests[asked:])
    assert listed_downloads() == ()


def test_layers_that_are_here_are_not_fetched_again(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    folder = fetch(plan)
    with pytest.raises(ModelError, match=r"are in .*Tiny-Next-4bit-mtp"):
        planned(target)
    sent = hub.sent.total()
    again = run(Download(ORIGINAL, plan.files.commit, drafter=folder.name))  # killed before the app knew
    assert (again, hub.sent.total()) == (folder, sent)
    check_layers(folder, original)


def test_a_kill_between_weights_and_configuration_fetches_nothing_again(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.put(hub)
    plan = planned(target)
    folder = fetch(plan)
    (folder / "config.json").unlink()
    weights = (folder / "model.safetensors").read_bytes()
    download = plan.begin()
    (folder / "model.safetensors").write_bytes(weights)  # as after the kill: the order is there too
    sent = hub.sent.total()
    run(download)
    assert hub.sent.total() == sent
    check_layers(folder, original)


def test_a_shard_that_changed_is_refused_and_what_came_of_the_old_one_is_removed(
    hub: HubServer, target: MtpTarget
) -> None:
    original = Original()
    commit = original.put(hub)
    plan = planned(target)
    hub.fault(SHARDS[0], Fault(cut=5_000))
    newer = stored(SECOND, 7)
    hub.before_bytes[SHARDS[0]] = lambda: hub.repositories[ORIGINAL].commits[commit].update({SHARDS[1]: newer})
    with pytest.raises(ChangedFileError, match="no longer the file whose parts were chosen"):
        fetch(plan)
    assert not target.folder_for().folder.exists()
    with pytest.raises(HubError, match="Nothing is left"):
        run(Download(ORIGINAL, commit, drafter=target.folder_for().folder.name))
    assert not target.folder_for().folder.exists()


def test_a_store_without_etags_is_believed_as_long_as_the_sizes_are_right(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.put(hub)
    hub.etags = False
    folder = fetch(planned(target))
    check_layers(folder, original)
    assert f"| {SHARDS[0]} | none | {sha256(original.shards[SHARDS[0]])} |" in (folder / "card.md").read_text()


def test_an_etag_that_is_gone_counts_as_a_change(hub: HubServer, target: MtpTarget) -> None:
    Original().put(hub)
    plan = planned(target)
    hub.etags = False
    with pytest.raises(ChangedFileError):
        fetch(plan)


@pytest.mark.parametrize(
    "fault",
    share(
        [
            Fault(ignore_range=True),
            Fault(headers={"Content-Range": "bytes 0-9/10"}),
            Fault(headers={"Content-Encoding": "gzip"}),
            Fault(redirect="http://[::1"),
            Fault(status=404),
        ],
        3,
    ),
)
def test_a_server_that_sends_other_bytes_is_refused(hub: HubServer, target: MtpTarget, fault: Fault) -> None:
    Original().put(hub)
    plan = planned(target)
    hub.fault(SHARDS[1], *[fault] * 9)
    with pytest.raises(NetworkError):
        fetch(plan)
    assert not (target.folder_for().folder / "config.json").exists()


def test_a_store_of_many_bytes_gets_no_more_than_its_part(hub: HubServer, target: MtpTarget) -> None:
    """It sends more than was asked for, without saying so."""
    Original().put(hub)
    plan = planned(target)
    part = plan.files.files[0].parts[-1]
    place = f"bytes {part.start}-{part.stop - 1}/{part.size}"
    head = f"HTTP/1.1 206 Partial Content\r\nContent-Range: {place}\r\n\r\n".encode()
    hub.fault(part.name, *[Fault(raw=lambda: [head, bytes(10**7)])] * 9)
    with pytest.raises(HubError, match=f"sends more of {part.name}|does not send parts|no longer the file"):
        fetch(plan)
    assert not (target.folder_for().folder / "config.json").exists()


def test_a_header_of_a_gigabyte_is_not_read(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.shards[SHARDS[1]] = (10**9).to_bytes(8, "little") + bytes(300_000)
    original.put(hub)
    hub.repositories[ORIGINAL].told[SHARDS[1]] = {"lfs": {"size": 10**10, "sha256": sha256(original.shards[SHARDS[1]])}}
    place = {"Content-Range": f"bytes 0-{2**18 - 1}/{10**10}"}
    hub.fault(SHARDS[1], Fault(headers=place))
    with pytest.raises(HubError, match=r"The header of .* is too long: 1.00 GB"):
        planned(target)
    assert hub.sent.total() < 10**6
    assert MAX_HEADER_BYTES < 10**8


def test_an_index_that_names_other_places_is_refused(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.places["mtp.norm.weight"] = SHARDS[0]
    assert "is wrong: model-00001-of-00002.safetensors has no tensor mtp.norm" in refused(hub, target, original)
    original.places["mtp.norm.weight"] = "../../../evil.safetensors"
    assert "names a file that it does not have" in refused(hub, target, original)


def _moved(by: int, name: str = "mtp.norm.weight") -> bytes:
    header, size = header_of(SECOND)
    header[name]["data_offsets"] = [offset + by for offset in header[name]["data_offsets"]]
    return packed(header, bytes(size))


@pytest.mark.parametrize(
    ("shard", "words"),
    share(
        [
            (_moved(16), "mtp.norm.weight does not follow the tensor before it"),
            (_moved(10**9), "mtp.norm.weight does not follow the tensor before it"),
            (_moved(-16), "does not follow the tensor before it"),
            (packed(header_of(SECOND)[0], bytes(header_of(SECOND)[1] - 16)), "its header describes"),
            (packed(header_of(SECOND)[0], bytes(header_of(SECOND)[1] + 16)), "its header describes"),
            (packed(b"{" * 2_000), "is damaged: it is n"),
            (packed(b"[]"), "it lists no tensors"),
            (b"short", "is not a safetensors file"),
            ((9_000).to_bytes(8, "little") + b"{}", "is shorter than its header says"),
        ],
        3,
    ),
)
def test_tensors_outside_of_their_file_or_over_each_other_are_refused(
    hub: HubServer, target: MtpTarget, shard: bytes, words: str
) -> None:
    original = Original()
    original.shards[SHARDS[1]] = shard
    assert words in refused(hub, target, original)


def test_a_shard_of_another_size_than_the_hub_lists_is_refused(hub: HubServer, target: MtpTarget) -> None:
    original = Original()
    original.put(hub)
    data = original.shards[SHARDS[1]]
    hub.repositories[ORIGINAL].told[SHARDS[1]] = {"lfs": {"size": len(data) + 8, "sha256": sha256(data)}}
    with pytest.raises(ChangedFileError, match="is not the file that the hub lists"):
        planned(target)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_size": 16}, "another hidden_size than some-org/Tiny-Next-4bit: 16 instead of 8"),
        ({"vocab_size": 41}, "another vocab_size"),
        ({"num_hidden_layers": 3}, "another num_hidden_layers"),
        ({"model_type": "glm4_moe"}, "has a glm4_moe model"),
    ],
)
def test_another_models_layers_are_refused(
    hub: HubServer, target: MtpTarget, changed: dict[str, object], words: str
) -> None:
    original = Original()
    original.config |= changed
    assert words in refused(hub, target, original)


def _with(name: str, dtype: str, *shape: int) -> Original:
    """Return the original with another tensor."""
    tensors = {**SECOND, name: (dtype, shape)}
    original = Original(places=dict(Original().places) | {name: SHARDS[1]})
    original.shards[SHARDS[1]] = stored(tensors, 2)
    return original


@pytest.mark.slow
def test_shapes_and_types_are_held_against_the_configuration(hub: HubServer, target: MtpTarget) -> None:
    wrong = _with("mtp.pre_fc_norm_embedding.weight", "BF16", 9)
    assert "has the shape (9,) instead of (8,)" in refused(hub, target, wrong)
    packed_weights = _with("mtp.layers.0.mlp.gate_proj.weight", "U32", 8, 1)
    assert "as U32, which rdchat cannot convert" in refused(hub, target, packed_weights)
    twice = _with("mtp.fc.weight", "BF16", 8, 16)
    assert "has the tensor mtp.fc.weight in two files" in refused(hub, target, twice)
    odd = _with("mtp.\x1b[31m\n.weight", "BF16", 8)
    assert "impossible names" in refused(hub, target, odd)


@pytest.mark.parametrize("family", share(["qwen3_next", "deepseek_v3"], 2))
def test_eight_bit_floats_come_with_their_scales_where_mlx_lm_multiplies_them_in(
    hub: HubServer, tmp_path: Path, family: str
) -> None:
    target = target_of(make_target(tmp_path / "other", model_type=family))
    name = "mtp.layers.0.self_attn.o_proj.weight"
    original = _with(name, "F8_E4M3", 8, 8)
    original.config["model_type"] = family
    assert "as F8_E4M3, which rdchat cannot convert" in refused(hub, target, original)
    shard = stored({**SECOND, name: ("F8_E4M3", (8, 8)), f"{name}_scale_inv": ("F32", (1, 1))}, 2)
    original.shards[SHARDS[1]] = shard
    if family == "qwen3_next":
        assert "as F8_E4M3, which rdchat cannot convert" in refused(hub, target, original)
        return
    original.put(hub)
    found = tensors_of((fetch(planned(target)) / "model.safetensors").read_bytes())
    assert {name, f"{name}_scale_inv"} < found.keys()
    known = tensors_of(shard) | original.layers
    assert all(known[tensor] == each for tensor, each in found.items())


def test_a_repository_without_mtp_layers_says_so(hub: HubServer, target: MtpTarget) -> None:
    original = Original(shards={SHARDS[0]: stored({"model.norm.weight": ("BF16", (8,))})})
    original.places = {"model.norm.weight": SHARDS[0]}
    assert refused(hub, target, original) == f"{ORIGINAL} has no MTP layers."
    hub.add(ORIGINAL, {"README.md": b"# Nothing"})
    with pytest.raises(HubError, match=r"has no config\.json"):
        planned(target)


def test_a_gated_repository_asks_for_access_and_the_token_goes_to_the_hub_alone(
    hub: HubServer, target: MtpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Original()
    original.put(hub, gated=True)
    with pytest.raises(AccessRefusedError, match="is gated"):
        planned(target)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setenv("RDCHAT_HUB_TOKEN_HOST", hub.url.removeprefix("http://"))
    check_layers(fetch(planned(target)), original)
    assert {request.token for request in hub.requests if "/blob/" in request.path} == {""}
    assert hub.token in {request.token for request in hub.requests}


def test_layers_that_the_disk_cannot_hold_are_not_begun(hub: HubServer, target: MtpTarget, tmp_path: Path) -> None:
    Original().put(hub)
    plan = planned(target)
    sent = hub.sent.total()
    with pytest.raises(StorageFullError, match=r"needs .* GB more, and the disk has"):
        fetch(plan, reserve_bytes=2**60)
    assert hub.sent.total() == sent


def test_a_disk_that_fills_up_keeps_what_came(
    hub: HubServer, target: MtpTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Original()
    original.put(hub)
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "disk"))
    plan = planned(target)
    with small_disk(tmp_path / "disk", kibibytes=1_600) as disk:
        filler = disk.folder / "other"
        hub.before_bytes[SHARDS[1]] = lambda: filler.write_bytes(bytes(700_000))
        with pytest.raises(StorageFullError):
            fetch(plan)
        filler.unlink()
        kept = saved_plan(target)
        assert kept is not None
        check_layers(fetch(kept), original)


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
    assert find_original(api(), target) == found


def test_a_model_that_the_hub_does_not_know_is_looked_up_in_its_card(hub: HubServer, tmp_path: Path) -> None:
    folder = make_target(tmp_path / "other", f"---\nbase_model: {ORIGINAL}\n---\n")
    assert find_original(api(), target_of(folder)) == ORIGINAL
    asked = len(hub.requests)
    assert find_original(api(), target_of(folder, "my own model")) == ORIGINAL
    assert len(hub.requests) == asked


def test_only_the_beginning_of_a_hostile_card_is_searched(hub: HubServer, tmp_path: Path) -> None:
    """The search once took time by the square of the lines."""
    hub.add(TARGET, {"config.json": b"{}"})
    many = 1_000_000
    for number, card in enumerate(
        (f"---\nbase_model:{many * chr(10)}", f"---\n{many * 'a'}\nbase_model: {ORIGINAL}\n")
    ):
        assert find_original(api(), target_of(make_target(tmp_path / str(number), card))) == ""


@pytest.mark.parametrize("name", ["模型", "some-org/模型", "...", "~"])
def test_a_model_whose_name_has_no_latin_letters_has_a_place(tmp_path: Path, name: str) -> None:
    place = target_of(make_target(tmp_path / "other"), name).folder_for()
    assert place.folder.name.startswith("model-mtp-")


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
    ],
)
def test_tensors_are_told_by_their_names(name: str, expected: bool) -> None:
    assert is_mtp(name, CONFIG) is expected
    assert is_mtp(name, {"text_config": CONFIG}) is expected
    assert is_mtp(name, {"model_type": "qwen3_5_mtp"})


def test_a_damaged_record_is_none(hub: HubServer, target: MtpTarget) -> None:
    Original().put(hub)
    plan = planned(target)
    plan.begin()
    (path,) = target.folder_for().work.glob("download-*.json")
    good = json.loads(path.read_text())
    file, *others = good["files"]
    for changed in (
        {"commit": "main"},
        {"repository": "../evil"},
        {"files": [file | {"name": "../evil"}, *others]},
        {"files": [file | {"head": "\u20ac"}, *others]},
        {"files": [file | {"head": 1}, *others]},
        {"files": [file | {"head": None}, *others]},
        {"files": [file | {"parts": 1}, *others]},
        {"files": [file | {"parts": [1]}, *others]},
        {"files": [file | {"size": file["size"] + 1}, *others]},
        {"files": [file]},
        {"files": 1},
    ):
        path.write_text(json.dumps({**good, **changed}))
        assert saved_plan(target) is None
    for key, value in (
        ("start", -1),
        ("stop", 0),
        ("name", "../evil"),
        ("size", 2**60),
        ("start", 1.5),
        ("name", 1),
        ("etag", None),
    ):
        path.write_text(json.dumps(good | {"files": [file | {"parts": [file["parts"][0] | {key: value}]}, *others]}))
        assert saved_plan(target) is None
    path.write_text(json.dumps(good))
    assert saved_plan(target) == replace(plan, is_saved=True)
    with pytest.raises(HubError, match="Nothing is left"):
        run(Download("a/b", plan.files.commit, drafter=target.folder_for().folder.name))
    assert saved_plan(target) is not None
