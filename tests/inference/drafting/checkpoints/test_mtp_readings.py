"""Which hidden states MTP layers read is decided by acceptance, once, and kept; tested with a stored, trained layer."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from rdchat import machine, paths
from rdchat.inference.api import DraftSettings, HeadKind, Mode, ReplyEnd, Statistics
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter, write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, Reading
from rdchat.inference.models.model_files import BINDING, TargetBinding
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.drafter_folders import with_files
from tests.inference.drafting.heads.mtp_targets import GOLDEN
from tests.inference.fakes import ask
from tests.inference.plain_replies import plain
from tests.inference.training.small_language import small_model, small_network

pytestmark = pytest.mark.across_rows

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
    session.load_for_mode(DraftSettings(mode), lambda _: None)
    session.drafters.auto.look_up_costs()
    head = session.drafters.auto.available.head
    assert head is not None
    assert isinstance(head.head, BoundMtpHead)
    return head.head


def drafted(session: ChatSession) -> Statistics:
    """Return the counts of a reply, whose text must be that of plain decoding."""
    request = ask("say fox", temperature=0, max_tokens=TOKENS)
    settings = DraftSettings(Mode.DRAFTER, beam_width=1, beam_length=4, lookup_branch=False)
    *_, end = session.generate(replace(request, draft=settings))
    assert isinstance(end, ReplyEnd)
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
    told = {option.mode: option.reason for option in again.possible_modes(DraftSettings(Mode.DRAFTER)).modes}
    assert head.facts in told[Mode.DRAFTER]
    assert head.facts in told[Mode.AUTO]
