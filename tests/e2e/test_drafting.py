"""Drafting on the real default model: the same tokens as plain decoding, by every drafter, on every kind of cache."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference import ChatSession, GenerationRequest, SamplingParams
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import ChatMessage, DraftSettings, Mode, Role
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.drafter_folder import load_drafter
from rdchat.inference.drafting.drafter_search import find_drafter
from rdchat.inference.drafting.recurrent_beam import BeamShape
from rdchat.inference.drafting.recurrent_drafter import RecurrentModel, RecurrentSettings
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verifier
from tests.e2e.model_replies import CODE, PROSE, SUMS, check_same, reply, request
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.slow

# prompt, sampling, drafting, bits of the KV cache: each mode at temperature 0 and above. What else there is of
# samplings, caches and sizes is tried on small models.
COVER: list[tuple[str, dict[str, Any], dict[str, Any], int | None]] = [
    (CODE, {"temperature": 0}, {"mode": Mode.LOOKUP, "draft_tokens": 4}, None),
    (SUMS, {"temperature": 1.3, "top_k": 40, "min_p": 0.02}, {"mode": Mode.LOOKUP, "draft_tokens": 16}, 4),
    (CODE, {"temperature": 0}, {"mode": Mode.RECURRENT, "beam_width": 4, "beam_length": 5}, 8),
    (SUMS, {"temperature": 0.7}, {"mode": Mode.RECURRENT, "beam_width": 8, "beam_length": 9}, None),
    (SUMS, {"temperature": 0}, {"mode": Mode.SPECULATIVE, "draft_tokens": 4}, None),
    (CODE, {"temperature": 1.2, "top_p": 1}, {"mode": Mode.SPECULATIVE, "draft_tokens": 2}, 8),
]


@pytest.mark.parametrize(("prompt", "sampling", "draft", "bits"), COVER, ids=str)
def test_drafts_do_not_change_the_reply(
    model: LoadedModel, prompt: str, sampling: dict[str, Any], draft: dict[str, Any], bits: int | None
) -> None:
    named = {"draft_model": str(model.info.path)} if draft["mode"] is Mode.SPECULATIVE else {}
    expected = plain(model, request(prompt, sampling), bits)
    drafted = reply(ChatSession(model, bits), request(prompt, sampling, **draft, **named))
    assert (drafted.mode, drafted.mode_reason) == (draft["mode"], None)
    assert drafted.drafter is not None
    check_same(model, request(prompt, sampling), expected.token_ids, drafted.token_ids, bits)
    assert drafted.statistics.host_syncs <= 2 * drafted.statistics.rounds
    if draft["mode"] is Mode.SPECULATIVE and bits is None:  # the draft model is the target: it knows every token
        assert drafted.statistics.acceptance_rate == 1


def test_a_chat_can_change_its_mode_from_turn_to_turn(model: LoadedModel) -> None:
    session, said = ChatSession(model), "Name a fruit."
    first = reply(session, request(said, {"temperature": 0}, mode=Mode.LOOKUP))
    turns = (
        ChatMessage(Role.USER, said),
        ChatMessage(Role.ASSISTANT, first.text),
        ChatMessage(Role.USER, "Name another one and say why."),
    )
    for mode in (Mode.RECURRENT, Mode.OFF, Mode.LOOKUP):
        params = SamplingParams(max_tokens=24)
        again = reply(session, GenerationRequest(turns, params, seed=3, draft=DraftSettings(mode=mode)))
        undrafted = GenerationRequest(turns, params, seed=3, draft=DraftSettings(mode=Mode.OFF))
        assert again.statistics.cached_prompt_tokens > 20
        check_same(model, undrafted, plain(model, undrafted).token_ids, again.token_ids)


def test_drafts_reckon_with_the_repetition_penalty(model: LoadedModel) -> None:
    """The trained drafter once offered again and again what the penalty had ruled out."""
    folder = find_drafter(model)
    assert folder is not None
    recurrent = RecurrentModel(model, load_drafter(folder, model))

    def target_calls(asked: GenerationRequest, believed: SamplingParams) -> int:
        """Count them where the drafter believes that tokens are chosen so, rightly or not."""
        prompt = model.encode_chat(asked.messages, False)
        settings = RecurrentSettings(BeamShape(4, 5), lookup_branch=False)
        drafter = recurrent.drafter(prompt, replace(asked, sampling=believed), settings)
        job = ReplyJob(model, KVCache(model.network), prompt, asked, Ledger(), Clock())
        *_, end = RoundIterator(job, drafter)
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == plain(model, asked).token_ids
        return end.statistics.target_calls

    knowing = blind = 0
    for prompt in (CODE, SUMS):
        asked = request(prompt, {"temperature": 0, "repetition_penalty": 1.3})
        knowing += target_calls(asked, asked.sampling)
        blind += target_calls(asked, replace(asked.sampling, repetition_penalty=1))
    assert knowing < blind


def test_a_packed_trees_logits_are_each_branchs_own(model: LoadedModel) -> None:
    assert model.capability.kind is DraftKind.TREE
    prompt = model.encode_chat((ChatMessage(Role.USER, f"{PROSE} {CODE} {SUMS} " * 5),), False)
    assert len(prompt) > 2 * model.prefill_chunk
    cache = KVCache(model.network)
    for start in range(0, len(prompt), model.prefill_chunk):
        chunk = prompt[start : start + model.prefill_chunk]
        model.network(mx.array([chunk]), cache=cache.layers)
        cache.tokens += chunk
    tree = PrefixTree.from_beams([[504, 6376, 314, 4461], [504, 6376, 282, 260], [504, 980, 314, 253]])
    packed = np.array(Verifier(model, cache).verify(PackedTree.of(tree)).logits)
    for nodes in tree.beam_nodes:
        stock = make_prompt_cache(model.network)
        model.network(mx.array([prompt]), cache=stock)
        alone = np.array(model.network(mx.array([tree.tokens[nodes].tolist()]), cache=stock)[0])
        assert np.abs(packed[nodes] - alone).max() < 1e-4
