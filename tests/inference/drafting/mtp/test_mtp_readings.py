"""Which hidden states MTP layers read is decided by acceptance, once, and kept; layers trained here test it."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten

from rdchat import machine
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.drafting.checkpoints.mtp_layout import _fresh_layer
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, LayerCache, MtpConfig, MtpNetwork, Reading
from rdchat.inference.session import ChatSession
from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.target import LoadedModel
from tests.inference.drafting.drafter_folders import with_files
from tests.inference.fakes import ALPHABET, LenientTokenizer, ask
from tests.inference.plain_replies import plain
from tests.inference.training.small_language import conversation, fitted_model

pytestmark = [pytest.mark.across_rows, pytest.mark.slow]

STEPS, DEPTHS = 250, 2  # training steps, and tokens drafted in each below every token


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model that has learnt a small language, and whose final norm changes the signs of half of all dimensions."""
    model = fitted_model()
    network = model.network
    mx.random.seed(3)
    scale = random_signs(network.args.hidden_size)
    network.lm_head = nn.Linear(*network.model.embed_tokens.weight.shape[::-1], bias=False)
    network.lm_head.weight = network.model.embed_tokens.weight / scale
    network.args.tie_word_embeddings = False
    network.model.norm.weight = network.model.norm.weight * scale
    return with_files(model, tmp_path_factory.mktemp("target") / "model", "{}")


def random_signs(count: int) -> mx.array:
    return mx.where(mx.random.bernoulli(0.5, (count,)), 1.0, -1.0)


def random_texts() -> Iterator[list[int]]:
    """Yield texts of the small language, 96 tokens each."""
    draw, tokenizer = random.Random(5), LenientTokenizer()
    while True:
        yield tokenizer.encode("".join(conversation(draw) for _ in range(4)))[:96]


def trained(model: LoadedModel, reading: Reading) -> MtpNetwork:
    """Return an MTP layer trained with a reading, in seconds, as DeepSeek trains it: each depth on the one before."""
    args = model.network.args
    config = MtpConfig(
        target_width=args.hidden_size, target_depth=args.num_hidden_layers, vocabulary_size=len(ALPHABET),
        norm_epsilon=1e-5, hidden_first=False, readings=READINGS,
    )  # fmt: skip
    mx.random.seed(4)
    network = MtpNetwork(config, _fresh_layer(model.network, 0), 1)
    network.norm.weight = random_signs(args.hidden_size)
    hooks, texts = ModelHooks(model.network), random_texts()
    hooks.read(reading.reads(model))
    mask = mx.tril(mx.ones((95, 95), mx.bool_))

    def loss(network: MtpNetwork, tokens: mx.array, hidden: mx.array) -> mx.array:
        embeddings, total = model.network.model.embed_tokens(tokens), mx.array(0.0)
        for depth in range(1, 1 + DEPTHS):
            count = tokens.shape[0] - depth
            cache = LayerCache(lambda rows: rows)
            hidden = network.rows(embeddings[depth:], hidden[:count], range(count), [cache], mask[:count, :count])
            logits = model.network.lm_head(network.norm(hidden))[:-1]
            total += nn.losses.cross_entropy(logits, tokens[1 + depth :], reduction="mean")
            hidden = hidden if reading.recycles_before_norm else network.norm(hidden)
        return total

    optimizer = optim.AdamW(3e-3)
    step = nn.value_and_grad(network, loss)
    for _ in range(STEPS):
        tokens = mx.array(next(texts))
        model.network(tokens[None])
        assert hooks.hidden is not None
        optimizer.update(network, step(network, tokens, mx.stop_gradient(hooks.hidden[0]))[1])
        mx.eval(network.parameters(), optimizer.state)
    return network


def written(model: LoadedModel, network: MtpNetwork) -> None:
    """Write a layer beside the model, in DeepSeek's names."""
    args = model.network.args
    tensors = {}
    for name, tensor in tree_flatten(network.parameters()):
        own = f"shared_head.{name}" if name.startswith("norm.") else name.removeprefix("block.")
        tensors[f"model.layers.{args.num_hidden_layers}.{own}"] = tensor
    mx.save_safetensors(str(model.info.path / "mtp.safetensors"), tensors)
    sizes = {"hidden_size": args.hidden_size, "num_hidden_layers": args.num_hidden_layers, "vocab_size": len(ALPHABET)}
    config = {"model_type": "qwen2", **sizes, "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1}
    (model.info.path / "config.json").write_text(json.dumps(config))


def head_of(session: ChatSession, mode: Mode) -> BoundMtpHead:
    """Load what a mode drafts with; return its layer."""
    session.load_drafters(DraftSettings(mode), lambda _: None)
    session.drafters.auto.look_up_costs()
    head = session.drafters.auto.available.head
    assert head is not None
    assert isinstance(head.head, BoundMtpHead)
    return head.head


@pytest.mark.parametrize("reading", [Reading(True, False), Reading(False, True)], ids=lambda reading: reading.words)
def test_the_reading_that_drafts_best_is_found_kept_and_shown(
    reading: Reading, target: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a layer that was trained with it; in both modes, and after a restart without measuring again."""
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(machine, "on_battery", lambda: False)
    written(target, trained(target, reading))
    session = ChatSession(target)
    head = head_of(session, Mode.DRAFTER)
    assert (head.reading, head.facts) == (READINGS[0], "")
    before = drafted(session)
    while head.facts == "":
        assert session.idle()
    assert head.reading == reading
    assert head.facts.startswith(f"It {reading.words}: ")
    after = drafted(session)
    assert after.accepted > before.accepted
    again = ChatSession(target)
    found = head_of(again, Mode.AUTO)
    assert (found.reading, found.facts) == (reading, head.facts)
    told = {option.mode: option.reason for option in again.draft_options(DraftSettings(Mode.DRAFTER)).modes}
    assert head.facts in told[Mode.DRAFTER]
    assert head.facts in told[Mode.AUTO]


def drafted(session: ChatSession) -> Statistics:
    """Return the counts of a reply, whose text must be that of plain decoding."""
    request = ask("say fox", temperature=0, max_tokens=80)
    settings = DraftSettings(Mode.DRAFTER, beam_width=1, beam_length=3, lookup_branch=False)
    *_, end = session.generate(replace(request, draft=settings))
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(session.model, request).token_ids
    return end.statistics
