"""Auto drafts with the drafter that is suggested for a model, without being told, if the hub's cache has both."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.inference.api import DraftSettings, HeadKind, Mode
from rdchat.inference.library.model_library import fitting_drafters
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import folder_label
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import hub_snapshot, with_files
from tests.inference.drafting.heads.assistant_targets import assistant_folder, shared_gemma
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.drafting.heads.mtp_targets import golden_config, golden_folder, golden_target, option, reply
from tests.inference.drafting.suggested_pairs import DRAFTER, MODEL, suggest
from tests.inference.fakes import ask, shared_llama
from tests.inference.plain_replies import plain

DFLASH2 = {"taps": 2, "channels": 4, "selected": 16, "selector_rank": 8, "windows": (6, 6), "rolling": True}


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache and rdchat's folders, of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "hub"


def mtp_folder(folder: Path, _model: LoadedModel) -> Path:
    """Write a repository that holds only MTP layers."""
    folder.mkdir()
    tensors = mx.load(str(golden_folder("qwen3_5") / "model.safetensors"))
    assert isinstance(tensors, dict)
    plain_names = {name.removeprefix("mtp."): tensor for name, tensor in tensors.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), plain_names)
    (folder / "config.json").write_text(json.dumps(golden_config("qwen3_5") | {"model_type": "qwen3_5_mtp"}))
    return folder


Make = Callable[[Path, LoadedModel], object]
HEADS: dict[str, tuple[Callable[[], LoadedModel], Make, HeadKind]] = {
    "Assistant": (shared_gemma, lambda folder, _model: assistant_folder(folder), HeadKind.ASSISTANT),
    "DFlash 2": (shared_llama, lambda folder, model: written_block(folder, model, **DFLASH2), HeadKind.BLOCK),
    "EAGLE-3": (shared_llama, eagle3_folder, HeadKind.EAGLE3),
    "MTP": (lambda: golden_target("qwen3_5"), mtp_folder, HeadKind.MTP),
}


@pytest.mark.across_rows
@pytest.mark.parametrize("kind", HEADS)
def test_auto_uses_the_head_of_the_pair(kind: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model, make, head = HEADS[kind]
    suggest(monkeypatch, kind)
    folder = hub_snapshot(hub_cache, MODEL)
    model = with_files(make_model(), folder, "{}")
    (folder / "config.json").write_text(json.dumps({"model_type": model.info.architecture}))
    session = ChatSession(model)
    request = ask(temperature=0.9, max_tokens=6)
    assert not option(session, Mode.DRAFTER).available
    make(hub_snapshot(hub_cache, DRAFTER), model)
    told = option(session, Mode.DRAFTER)
    assert (told.available, told.kind) == (True, head)
    assert told.match is not None
    assert told.match.sure
    assert folder_label(Path(told.source)) == DRAFTER
    for mode in (Mode.AUTO, Mode.DRAFTER):
        end = reply(session, DraftSettings(mode), request)
        assert (end.mode, end.mode_reason, end.kind) == (mode, None, head)
        assert told.source in str(end.drafter)
        assert end.token_ids == plain(model, request).token_ids


def test_another_model_does_not_use_it(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suggest(monkeypatch, "EAGLE-3")
    model = with_files(shared_llama(), hub_snapshot(hub_cache, "org/other"), "{}")
    eagle3_folder(hub_snapshot(hub_cache, DRAFTER), model)
    assert not option(ChatSession(model), Mode.DRAFTER).available


def test_a_damaged_one_is_left_out_and_named(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suggest(monkeypatch, "EAGLE-3")
    model = with_files(shared_llama(), hub_snapshot(hub_cache, MODEL), "{}")
    folder = eagle3_folder(hub_snapshot(hub_cache, DRAFTER), model)
    (folder / "model.safetensors").write_bytes(b"damaged")
    told = option(ChatSession(model), Mode.AUTO)
    assert told.available
    assert f"The drafter {DRAFTER} is not used" in told.reason
    request = ask(max_tokens=8)
    end = reply(ChatSession(model), DraftSettings(Mode.AUTO), request)
    assert (end.mode, end.kind) == (Mode.AUTO, None)
    assert end.token_ids == plain(model, request).token_ids


def test_the_models_window_lists_it_as_made_for_the_model(
    small_model: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suggest(monkeypatch, "EAGLE-3")
    folder = hub_snapshot(hub_cache, MODEL)
    shutil.copytree(small_model, folder)
    model = load_model(MODEL)
    eagle3_folder(hub_snapshot(hub_cache, DRAFTER), model)
    eagle3_folder(hub_snapshot(hub_cache, "maker/other"), model)
    sure = {each.name: each.fits_surely for each in fitting_drafters(folder)}
    assert sure[DRAFTER]
    assert not sure["maker/other"]
