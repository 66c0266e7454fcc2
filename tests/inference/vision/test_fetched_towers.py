"""A copy without a tower says so, fetches that of its original, and sees as the original does."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import mlx_lm
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError, NetworkError
from rdchat.hub import HubError
from rdchat.hub.downloads.download_record import begin_drafter, listed_downloads
from rdchat.inference import loading
from rdchat.inference.api import (
    NO_VISION,
    CacheFolder,
    ChatMessage,
    DraftSettings,
    Dtype,
    GenerationRequest,
    MemoryNeed,
    MemoryRoom,
    Mode,
    ModelCard,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.caches_on_disk import disk_caches
from rdchat.inference.library.folder_facts import read_facts
from rdchat.inference.library.model_library import library_models
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.session import ChatSession
from rdchat.inference.vision.families import CACHED_ROWS_BYTES, vision_of
from rdchat.inference.vision.image_rows import ImageRows
from tests.grids import share
from tests.hub.downloads.downloading import LIMITS
from tests.hub.hub_server import Fault, HubServer
from tests.hub.mtp_samples import run
from tests.inference.model_folders import change_config
from tests.inference.vision.seeing_models import (
    KINDS,
    ORIGINAL,
    SETTINGS,
    SeeingModel,
    apart,
    bytes_of,
    expected,
    fetched,
    is_tower,
    picture,
    planned,
    prepared,
    put_original,
    seeing_folder,
    without_tower,
)

PLAIN = DraftSettings(Mode.OFF)


@pytest.fixture
def original(hub: HubServer, tmp_path: Path) -> Path:
    return put_original(hub, tmp_path / "original", "qwen3_vl")


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return without_tower(seeing_folder(tmp_path / "copy", "qwen3_vl"))


@pytest.mark.parametrize("kind", share(KINDS, 4))
def test_a_copy_with_a_fetched_tower_has_the_logits_of_its_original(hub: HubServer, tmp_path: Path, kind: str) -> None:
    original, copy = (seeing_folder(tmp_path / name, kind) for name in ("whole", "copy"))
    put_original(hub, tmp_path / "original", kind)
    without_tower(copy)
    before = bytes_of(copy.iterdir())
    facts = read_facts(copy)
    info = load_model(copy, "float32").info
    assert (facts.sees, facts.blind, info.sees, info.blind) == (False, NO_VISION, False, NO_VISION)
    plan = planned(copy)
    assert [file.name for file in plan.files] == ["model-00002-of-00002.safetensors", SETTINGS]
    assert not any(request.path.endswith(".safetensors") for request in hub.requests)
    folder = fetched(copy)
    assert folder.parent == paths.towers_dir()
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "card.md", SETTINGS}
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert bytes_of(copy.iterdir()) == before
    whole, seeing = (SeeingModel(each, kind) for each in (original, copy))
    assert (seeing.model.info.sees, seeing.model.info.blind) == (True, "")
    logits = seeing.read(seeing.cache())
    assert np.array_equal(logits, whole.read(whole.cache()))
    assert apart(logits, expected(kind)["logits"]) < 1e-4


@pytest.mark.parametrize("kind", share(["qwen3_vl", "qwen3_5", "qwen2_5_vl", "mistral3", "pixtral"]))
def test_copies_by_mlx_lm_reply_as_the_original_does(hub: HubServer, tmp_path: Path, kind: str) -> None:
    original = put_original(hub, tmp_path / "original", kind)
    mlx_lm.convert(str(original), str(tmp_path / "copy"), dtype="float32")
    copy = tmp_path / "copy"
    image = picture(tmp_path / "images")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        # transformers takes the tokenizer of characters for Qwen's.
        shutil.copy(original / name, copy)
    assert not any((copy / name).exists() for name in (SETTINGS, "processor_config.json"))
    assert vision_of(copy).reason == NO_VISION
    fetched(copy)
    message = ChatMessage(Role.USER, "what is it?", images=(image,))
    request = GenerationRequest((message,), SamplingParams(temperature=0.9, max_tokens=8), 7, draft=PLAIN)
    replies = [[*ChatSession(load_model(folder, "float32")).generate(request)][-1] for folder in (original, copy)]
    assert all(isinstance(reply, ReplyEnd) for reply in replies)
    assert replies[0].token_ids == replies[1].token_ids


def test_a_broken_download_leaves_the_copy_as_it_was(hub: HubServer, copy: Path) -> None:
    before = bytes_of(copy.iterdir())
    plan = planned(copy)
    hub.faults["model-00002-of-00002.safetensors"] = [Fault(cut=1_000), *[Fault(status=500)] * LIMITS.tries]
    with pytest.raises(NetworkError):
        run(begin_drafter(plan))
    assert bytes_of(copy.iterdir()) == before
    assert (vision_of(copy).reason, paths.towers_dir().exists()) == (NO_VISION, False)
    assert load_model(copy, "float32").info.blind == NO_VISION
    (listed,) = listed_downloads()
    assert 0 < listed.done_bytes < listed.total_bytes == plan.size
    hub.faults.clear()
    fetched(copy)
    assert vision_of(copy).family is not None


def test_a_damaged_tower_does_not_stop_the_text(copy: Path) -> None:
    file = fetched(copy) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert "is incomplete" in vision_of(copy).reason
    info = load_model(copy, "float32").info
    assert (info.sees, info.blind) == (False, vision_of(copy).reason)
    (file.parent / "config.json").unlink()
    assert vision_of(copy).reason == NO_VISION


def test_a_tower_that_is_deleted_before_the_first_image_is_named(copy: Path) -> None:
    folder = fetched(copy)
    rows = ImageRows(copy, vision_of(copy))
    shutil.rmtree(folder)
    with pytest.raises(ModelError, match="has no weights"):
        rows.see("a", prepared("qwen3_vl")[0])


def test_a_tower_is_listed_and_removed_by_itself(copy: Path) -> None:
    def cards() -> dict[str, ModelCard]:
        return {card.name: card for card in library_models(str(copy), read_facts)}

    assert (cards()["copy"].sees, cards()["copy"].blind) == (False, NO_VISION)
    blind = cards()["copy"].sizes
    folder = fetched(copy)
    sees = cards()["copy"]
    tower = cards()[folder.name]
    assert (sees.sees, sees.blind, tower.family, tower.problem) == (True, "", "vision", "")
    assert not tower.can_be_loaded
    assert blind is not None
    assert sees.sizes == vision_of(copy).sizes(blind)
    folder.rename(copy.parent / "trash")
    assert (cards()["copy"].blind, folder.name in cards()) == (NO_VISION, False)


def test_what_rdchat_could_not_use_is_not_fetched(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has vision in its own files"):
        planned(seeing_folder(tmp_path / "whole", "qwen3_vl"))
    change_config(copy, vision_config=None, image_token_id=None)
    with pytest.raises(ModelError, match="is a model for text alone"):
        planned(copy)


@pytest.mark.parametrize(
    ("dropped", "words"), [("pos_embed", "does not know how this model sees"), ("visual", "has no vision")]
)
def test_an_original_without_a_tower_that_rdchat_can_use_is_refused(
    hub: HubServer, copy: Path, dropped: str, words: str
) -> None:
    ((_, files),) = hub.repositories[ORIGINAL].commits.items()
    name = "model.safetensors.index.json"
    index = {each: file for each, file in json.loads(files[name])["weight_map"].items() if dropped not in each}
    hub.add(ORIGINAL, files | {name: json.dumps({"weight_map": index}).encode()})
    with pytest.raises(HubError, match=words):
        planned(copy)
    assert not any(request.path.endswith(".safetensors") for request in hub.requests)


def test_what_a_model_sees_with_counts_in_its_need_of_memory(copy: Path, tmp_path: Path) -> None:
    whole = seeing_folder(tmp_path / "whole", "qwen3_vl")
    tower = sum(array.size for name, array in load_file(whole / "model.safetensors").items() if is_tower(name))
    alone = check_model_folder(copy).sizes
    fetched(copy)
    needs = {}
    dtypes = (Dtype.AUTO, Dtype.FLOAT16, Dtype.FOUR_BIT)
    for folder in (copy, whole):
        sizes = vision_of(folder).sizes(check_model_folder(folder).sizes)
        assert (sizes.tower_parameters, sizes.image_bytes) == (tower, CACHED_ROWS_BYTES)
        assert read_facts(folder).sizes == sizes
        needs[folder] = [MemoryNeed.for_sizes(sizes, dtype, on_gpu=False) for dtype in dtypes]
    assert needs[copy] == needs[whole]
    for need, dtype, width in zip(needs[copy], dtypes, (4, 2, 4), strict=True):
        text = MemoryNeed.for_sizes(alone, dtype, on_gpu=False)
        assert need.weights_bytes - text.weights_bytes == tower * width
        assert need.total_bytes - text.total_bytes == tower * width + CACHED_ROWS_BYTES


def test_a_model_that_fits_only_without_its_images_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "memory_room", lambda: MemoryRoom(CACHED_ROWS_BYTES, 2**40))
    assert "for images" not in load_model(copy, "float32").info.warning
    fetched(copy)
    with pytest.raises(DoesNotFitError, match="and 268 MB for images, but only"):
        load_model(copy, "float32")


def test_another_tower_does_not_get_what_the_first_one_saw(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a tower was deleted and another one fetched, an old chat once went on with the rows of the first."""
    monkeypatch.setattr(disk_caches, "_MIN_TOKENS", 8)
    keep = CacheFolder(tmp_path / "chat", 2**30)
    keep.path.mkdir()
    message = ChatMessage(Role.USER, "one " * 30, images=(picture(tmp_path / "images"),))
    request = GenerationRequest((message,), SamplingParams(temperature=0, max_tokens=8), 7, draft=PLAIN, keep=keep)

    def reply(request: GenerationRequest) -> ReplyEnd:
        session = ChatSession(load_model(copy, "float32"))
        *_, end = session.generate(request)
        session.disk.finish_writing(10.0)
        assert isinstance(end, ReplyEnd)
        return end

    tower = fetched(copy) / "model.safetensors"
    first = reply(request)
    assert reply(request).statistics.disk_prompt_tokens > 0
    tensors = load_file(tower)
    save_file({name: array[::-1].copy() for name, array in tensors.items()}, tower, {"format": "mlx"})
    fresh = reply(replace(request, keep=None))
    assert fresh.token_ids != first.token_ids
    assert reply(request).token_ids == fresh.token_ids


def test_of_two_towers_the_choice_is_always_the_same(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tower = fetched(copy)
    shutil.copytree(tower, tower.with_name(f"a-{tower.name}"))
    listed = [*paths.towers_dir().glob("*/config.json")]
    chosen = set[Path]()
    for order in (listed, listed[::-1]):
        monkeypatch.setattr(Path, "glob", lambda *_, order=order: iter(order))
        chosen.add(vision_of(copy).folder)
    assert len(chosen) == 1
