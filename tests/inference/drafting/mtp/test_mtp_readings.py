"""Which hidden states MTP layers read is decided by acceptance, once, and kept; a layer trained here tests it."""

import json
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from rdchat import machine, paths
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.api.training import TrainedKind
from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter
from rdchat.inference.drafting.checkpoints.mtp_layout import READING
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, Reading
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel
from tests.inference.drafting.drafter_folders import with_files
from tests.inference.fakes import ALPHABET, ask
from tests.inference.plain_replies import plain
from tests.inference.training.small_language import fitted_model, training

pytestmark = [pytest.mark.across_rows, pytest.mark.slow]

TRAINED = Reading(before_norm=True, recycles_before_norm=False)  # as rdchat trains it
TOKENS = 80


def signed_model(folder: Path) -> LoadedModel:
    """Return a model that has learnt a small language, and whose final norm changes the signs of half the dimensions.

    So hidden states before and after the norm differ as much as they can.
    """
    model = fitted_model()
    network, args = model.network, model.network.args
    mx.random.seed(3)
    signs = mx.where(mx.random.bernoulli(0.5, (args.hidden_size,)), 1.0, -1.0)
    network.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)
    network.lm_head.weight = network.model.embed_tokens.weight / signs
    args.tie_word_embeddings = False
    network.model.norm.weight = network.model.norm.weight * signs
    model = with_files(model, folder, "{}")
    sizes = {"hidden_size": args.hidden_size, "num_hidden_layers": args.num_hidden_layers, "vocab_size": len(ALPHABET)}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **sizes}))
    return model


def head_of(session: ChatSession, mode: Mode) -> BoundMtpHead:
    """Load what a mode drafts with; return its layer."""
    session.load_drafters(DraftSettings(mode), lambda _: None)
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


def test_a_layer_is_trained_and_the_reading_that_drafts_best_is_found_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both modes, and after a restart without measuring again."""
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(machine, "on_battery", lambda: False)
    model = signed_model(tmp_path / "model")
    out = paths.drafters_dir() / "layer"
    for _ in training(model, out, False, TrainedKind.MTP).run():
        pass
    assert inspect_drafter(out) is HeadKind.MTP
    assert head_of(ChatSession(model), Mode.DRAFTER).reading == TRAINED, "what was trained here says so"
    config = json.loads((out / "config.json").read_text())
    del config[READING]  # as a published layer, which does not say
    (out / "config.json").write_text(json.dumps(config))
    session = ChatSession(model)
    head = head_of(session, Mode.DRAFTER)
    assert (head.reading, head.facts) == (READINGS[0], "")
    before = drafted(session)
    while head.facts == "":
        assert session.idle()
    assert head.reading == TRAINED
    assert head.facts.startswith(f"It {TRAINED.words}: ")
    after = drafted(session)
    assert after.accepted > before.accepted
    again = ChatSession(model)
    found = head_of(again, Mode.AUTO)
    assert (found.reading, found.facts) == (TRAINED, head.facts)
    told = {option.mode: option.reason for option in again.draft_options(DraftSettings(Mode.DRAFTER)).modes}
    assert head.facts in told[Mode.DRAFTER]
    assert head.facts in told[Mode.AUTO]
