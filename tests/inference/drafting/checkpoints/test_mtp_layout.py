"""Where MTP layers come from: the model's own weights, beside them, or a folder of their own; and why not."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat import machine, paths
from rdchat.errors import ModelError
from rdchat.hub import Tokens, find_endpoint
from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.hub_api import HubApi
from rdchat.inference.api import DraftSettings, HeadKind, MemoryRoom, Mode, ModelCard, Origin, Statistics
from rdchat.inference.drafting.checkpoints import mtp_layout
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter, write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter, load_drafter
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, Reading
from rdchat.inference.library.model_library import fitting_drafters
from rdchat.inference.library.original_source import IncompleteModel, plan_part
from rdchat.inference.models.model_files import BINDING, TargetBinding
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import ORIGINAL, run
from tests.inference.drafting.checkpoints.drafter_folders import refused, saved_random_drafter, with_files
from tests.inference.drafting.heads.mtp_targets import (
    CASES,
    GOLDEN,
    bound_mtp,
    golden_config,
    golden_folder,
    option,
    reply,
    target_in,
)
from tests.inference.fakes import ask, reply_end
from tests.inference.plain_replies import plain
from tests.inference.training.small_language import small_model, small_network

pytestmark = pytest.mark.across_rows

Tensors = Mapping[str, mx.array]
PLACES = ("in its weights", "in a file beside them", "in a folder beside them", "in a folder of their own")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def published(case: str) -> dict[str, mx.array]:
    tensors = mx.load(str(golden_folder(case) / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


def put_layers(model: LoadedModel, case: str, place: str) -> Path:
    """Write the layers of a case to a place; return the drafter's folder."""
    folder = model.info.path
    tensors = published(case)
    if place == PLACES[0]:
        held = mx.load(str(folder / "model.safetensors"))
        assert isinstance(held, dict)
        mx.save_safetensors(str(folder / "model.safetensors"), {**held, **tensors})
    elif place == PLACES[1]:
        mx.save_safetensors(str(folder / "mtp.safetensors"), tensors)
    elif place == PLACES[2]:
        (folder / "mtp").mkdir()
        mx.save_safetensors(str(folder / "mtp" / "weights.safetensors"), tensors)
    else:
        return folder_of_layers(model, case, tensors)
    return folder


def folder_of_layers(model: LoadedModel, case: str, tensors: Tensors, **changes: Any) -> Path:
    """Write what `rdchat models mtp` fetches: the original's configuration and its MTP tensors, bound to the model."""
    folder = paths.drafters_dir() / f"{case} layers"
    folder.mkdir(parents=True)
    bound = {BINDING: {"target": asdict(TargetBinding.for_model(model.info))}}
    (folder / "config.json").write_text(json.dumps(golden_config(case) | bound | changes))
    mx.save_safetensors(str(folder / "model-00001.safetensors"), dict(tensors))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("place", "case"), share(product(PLACES, ["mimo", "glm4_moe", "qwen3_5"]), 14))
def test_a_model_drafts_with_its_own_layers(place: str, case: str, tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", case)
    folder = put_layers(model, case, place)
    session = ChatSession(model)
    request = ask(temperature=0.9, max_tokens=6)
    for mode, named in ((Mode.DRAFTER, None), (Mode.DRAFTER, "mtp"), (Mode.AUTO, None)):
        end = reply(session, DraftSettings(mode, drafter=named), request)
        assert (end.mode, end.mode_reason, end.kind) == (mode, None, HeadKind.MTP)
        assert str(folder) in str(end.drafter)
        assert end.token_ids == plain(model, request).token_ids
        told = option(session, mode, named)
        assert told.kind is HeadKind.MTP
        assert told.match is not None
        assert told.match.sure


def test_the_models_window_lists_the_layers_of_a_model_that_is_not_loaded(tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", "mimo")
    assert fitting_drafters(model.info.path) == ()
    put_layers(model, "mimo", PLACES[1])
    (told,) = fitting_drafters(model.info.path)
    size = sum(tensor.nbytes for tensor in published("mimo").values())
    assert (told.name, told.origin, told.kind, told.weights_bytes) == (
        "MTP layers",
        Origin.OWN_LAYERS,
        HeadKind.MTP,
        size,
    )
    assert told.fits_surely
    assert inspect_drafter(Path(told.model)) is HeadKind.MTP


def test_a_trained_drafter_comes_first_and_the_panel_says_so(tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", "mimo")
    put_layers(model, "mimo", PLACES[1])
    session = ChatSession(model)
    assert option(session, Mode.DRAFTER).reason == ""
    saved_random_drafter(model, paths.drafters_dir() / "mine", 32)
    assert option(session, Mode.DRAFTER).reason == "The model's MTP layers are not used: the drafter mine is."
    assert option(session, Mode.DRAFTER, "mtp").kind is HeadKind.MTP


def test_a_copy_without_its_layers_says_how_to_get_them(tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", "glm4_moe")
    session = ChatSession(model)
    words = "published with MTP layers, which draft for it, but this copy lacks them"
    for mode in (Mode.DRAFTER, Mode.AUTO):
        assert words in option(session, mode).reason
        assert "rdchat models mtp" in option(session, mode).reason
    with pytest.raises(ModelError, match=words):
        session.drafters.drafter_folder("mtp")
    assert words in str(reply(session, DraftSettings(Mode.DRAFTER), ask(max_tokens=2)).mode_reason)


def test_a_model_that_never_had_layers_says_nothing_of_them(tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", "qwen3_5")
    session = ChatSession(model)
    assert "MTP" not in option(session, Mode.DRAFTER).reason
    with pytest.raises(ModelError, match="tiny has no MTP layers"):
        session.drafters.drafter_folder("mtp")


@pytest.mark.parametrize(
    ("family", "words"),
    [("nemotron_h", "a list of blocks"), ("step3p5", "of their own kind"), ("hunyuan", "does not know their layout")],
)
def test_families_whose_layout_is_not_certain_are_refused_by_name(family: str, words: str, tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", "glm4_moe", model_type=family)
    put_layers(model, "glm4_moe", PLACES[0])
    model = replace(model, info=replace(model.info, architecture=family))
    told = option(ChatSession(model), Mode.DRAFTER)
    assert not told.available
    assert "rdchat cannot use" in told.reason
    assert words in told.reason
    refused(golden_folder("glm4_moe"), model, f"not for a model of the type {family}: .*{words}")


def test_folders_without_prefix_are_read(tmp_path: Path) -> None:
    """As MLX conversions that hold only the layers write them, with norms to which the 1 was added."""
    model = target_in(tmp_path / "model", "qwen3_5")
    raw = {name.removeprefix("mtp."): tensor.astype(mx.float32) for name, tensor in published("qwen3_5").items()}
    tensors = {name: tensor + 1 if tensor.ndim == 1 else tensor for name, tensor in raw.items()}
    folder = folder_of_layers(model, "qwen3_5", tensors, model_type="qwen3_5_mtp")
    assert inspect_drafter(folder) is HeadKind.MTP
    bound, same = (load_drafter(place, model) for place in (folder, golden_folder("qwen3_5")))
    assert isinstance(bound, BoundMtpHead)
    assert isinstance(same, BoundMtpHead)
    for name in ("enorm", "hnorm", "norm"):
        np.testing.assert_allclose(
            np.array(bound.networks[0][name].weight), np.array(same.networks[0][name].weight), atol=1e-6
        )


@pytest.mark.parametrize("added", [set(), {"norm"}, {"norm", "layers"}], ids=["to none", "to one", "to most"])
def test_norms_get_their_1_key_by_key(added: set[str], tmp_path: Path) -> None:
    """Converters add it to all norms, to some or to none: beside converted weights each one is looked at."""
    model = target_in(tmp_path / "model", "qwen3_5")
    raw = {name: tensor.astype(mx.float32) for name, tensor in published("qwen3_5").items()}
    low = {name: -mx.abs(at) - 0.2 if "pre_fc" in name else at for name, at in raw.items()}
    stored = {name: at + 1 if at.ndim == 1 and name.split(".")[1] in added else at for name, at in low.items()}
    mx.save_safetensors(str(model.info.path / "mtp.safetensors"), stored)
    head = bound_mtp(model.info.path, model)
    found = {
        "mtp.pre_fc_norm_embedding": head.networks[0].enorm, "mtp.pre_fc_norm_hidden": head.networks[0].hnorm,
        "mtp.norm": head.networks[0].norm, "mtp.layers.0.input_layernorm": head.networks[0].block.input_layernorm,
        "mtp.layers.0.self_attn.q_norm": head.networks[0].block.self_attn.q_norm,
    }  # fmt: skip
    for name, module in found.items():
        np.testing.assert_allclose(np.array(module.weight), np.array(low[f"{name}.weight"] + 1), atol=1e-6)


PROJECTION = "model.mtp_layers.0.input_proj.weight"


def without(tensors: Tensors, part: str) -> dict[str, mx.array]:
    return {name: tensor for name, tensor in tensors.items() if part not in name}


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (lambda at: at | {PROJECTION: at[PROJECTION][:, :-1]}, "has the shape"),
        (lambda at: at | {PROJECTION: at[PROJECTION] * mx.inf}, "not finite"),
        (lambda at: at | {PROJECTION: at[PROJECTION].astype(mx.int32)}, "stored as I32"),
        (lambda at: at | {"model.mtp_layers.0.self_attn.gate.weight": mx.zeros((4, 4))}, "not those of tiny"),
        (lambda at: without(at, "final_layernorm"), "has no norm"),
        (lambda at: without(at, "q_proj"), "not those of tiny"),
    ],
)
def test_damaged_layers_are_refused(
    damaged: Callable[[dict[str, mx.array]], dict[str, mx.array]], words: str, tmp_path: Path
) -> None:
    model = target_in(tmp_path / "model", "mimo")
    mx.save_safetensors(str(model.info.path / "mtp.safetensors"), damaged(published("mimo")))
    assert refused(model.info.path, model, words).hint


def test_a_layer_without_one_of_its_experts_is_left_out_and_the_model_answers(tmp_path: Path) -> None:
    """The family's own code expects them all, and fails in its own way."""
    model = target_in(tmp_path / "model", "glm4_moe")
    whole = published("glm4_moe")
    lacking = {name: tensor for name, tensor in whole.items() if ".experts.3." not in name}
    assert len(lacking) < len(whole)
    mx.save_safetensors(str(model.info.path / "mtp.safetensors"), lacking)
    session = ChatSession(model)
    request = ask(max_tokens=4)
    assert "not those of" in str(reply(session, DraftSettings(Mode.DRAFTER), request).mode_reason)
    end = reply(session, DraftSettings(Mode.AUTO), request)
    assert (end.mode, end.kind) == (Mode.AUTO, None)


def test_layers_that_do_not_fit_into_memory_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = target_in(tmp_path / "model", "mimo")
    put_layers(model, "mimo", PLACES[0])
    monkeypatch.setattr(mtp_layout, "memory_room", lambda: MemoryRoom(10_000, 10_000))
    session = ChatSession(model)
    request = ask(max_tokens=4)
    assert "need" in str(reply(session, DraftSettings(Mode.DRAFTER), request).mode_reason)
    end = reply(session, DraftSettings(Mode.AUTO), request)
    assert (end.mode, end.kind) == (Mode.AUTO, None)


FOLDER = GOLDEN / "trained_mtp"
TRAINED = Reading(before_norm=True, recycles_before_norm=False)
TOKENS = 80


def signed_model(folder: Path) -> LoadedModel:
    """Return a model whose final norm changes the signs of half the dimensions, as loaded from a new folder.

    So hidden states before and after the norm differ as much as they can. It was fitted as `fitted_model` is; then the
    norm's weights were multiplied by random signs, and the output rows divided by these.
    """
    network = small_network()
    args = network.args
    network.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)
    args.tie_word_embeddings = False
    weights = mx.load(str(FOLDER / "target.safetensors"))
    assert isinstance(weights, dict)
    network.load_weights([(name, array.astype(mx.float32)) for name, array in weights.items()])
    network.eval()
    model = with_files(small_model(network), folder, "{}")
    shutil.copy(FOLDER / "config.json", folder)
    return model


def write_layer(model: LoadedModel, folder: Path) -> None:
    """Write the trained layer as one for this model.

    It was trained on 3,000 tokens of the model's answers, on hidden states before the final norm, by a trainer that
    rdchat no longer has (`MtpObjective`, at commit b4d7a29c).
    """
    weights = mx.load(str(FOLDER / "model.safetensors"))
    assert isinstance(weights, dict)
    config = json.loads((FOLDER / "config.json").read_bytes())
    bound = config | {BINDING: {"target": asdict(TargetBinding.for_model(model.info))}}
    write_drafter(folder, PublishedDrafter(bound, weights), "")


def head_of(session: ChatSession, mode: Mode) -> BoundMtpHead:
    """Load what a mode drafts with; return its layer."""
    session.drafters.load_drafters(DraftSettings(mode))
    session.drafters.auto.look_up_costs()
    head = session.drafters.auto.available.head
    assert head is not None
    assert isinstance(head.head, BoundMtpHead)
    return head.head


def drafted(session: ChatSession) -> Statistics:
    """Return the counts of a reply, whose text must be that of plain decoding."""
    request = ask("say fox", temperature=0, max_tokens=TOKENS)
    settings = DraftSettings(Mode.DRAFTER, beam_width=1, beam_length=4, lookup_branch=False)
    end = reply_end(session.generate(replace(request, draft=settings)))
    assert end.token_ids == plain(session.model, request).token_ids
    return end.statistics


@pytest.mark.slow
def test_the_reading_that_drafts_best_is_found_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both modes, and after a restart without measuring again."""
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(machine, "on_battery", lambda: False)
    model = signed_model(tmp_path / "model")
    out = paths.drafters_dir() / "layer"
    write_layer(model, out)
    assert inspect_drafter(out) is HeadKind.MTP
    session = ChatSession(model)
    head = head_of(session, Mode.DRAFTER)
    assert (head.reading, head.facts) == (READINGS[0], "")
    before = drafted(session)
    while head.facts == "":
        assert session.work_while_idle()
    assert head.reading == TRAINED
    assert head.facts.startswith(f"It {TRAINED.description}: ")
    after = drafted(session)
    assert after.accepted > before.accepted
    again = ChatSession(model)
    found = head_of(again, Mode.AUTO)
    assert (found.reading, found.facts) == (TRAINED, head.facts)
    told = {option.mode: option.reason for option in again.draft_options(DraftSettings(Mode.DRAFTER)).modes}
    assert head.facts in told[Mode.DRAFTER]
    assert head.facts in told[Mode.AUTO]


@pytest.mark.parametrize("case", share(CASES, 9))
def test_fetched_layers_draft_for_their_model(case: str, hub: HubServer, tmp_path: Path) -> None:
    model = target_in(tmp_path / "model", case)
    layers = (golden_folder(case) / "model.safetensors").read_bytes()
    hub.add(ORIGINAL, {"config.json": json.dumps(golden_config(case)).encode(), "model.safetensors": layers})
    name = model.info.name
    target = IncompleteModel.read_model(ModelCard(name, name, "", model.info.path))
    folder = run(begin_drafter(plan_part(HubApi(Tokens().access(find_endpoint())), target, ORIGINAL)))
    assert inspect_drafter(folder) is HeadKind.MTP
    assert load_drafter(folder, model) is not None
    session = ChatSession(model)
    request = ask(temperature=0.9, max_tokens=6)
    end = reply(session, DraftSettings(Mode.DRAFTER, drafter="mtp"), request)
    assert (end.mode, end.mode_reason, end.kind) == (Mode.DRAFTER, None, HeadKind.MTP)
    assert end.token_ids == plain(model, request).token_ids
