"""Drafting on the real default model: the same tokens as plain decoding, by every drafter."""

from itertools import cycle
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from rdchat.inference.api import ChatMessage, DraftKind, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verifier
from tests.e2e.model_replies import CODE, PROSE, SUMS, check_same, reply, request
from tests.inference.fakes import tree_of_beams
from tests.inference.plain_replies import plain

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

# What else there is of samplings, caches and sizes is tried on small models.
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.2, "top_p": 1}]
MODES: list[dict[str, Any]] = [
    {"mode": Mode.LOOKUP, "draft_tokens": 4},
    {"mode": Mode.DRAFTER, "beam_width": 4, "beam_length": 5},
    {"mode": Mode.SPECULATIVE, "draft_tokens": 4},
]


@pytest.mark.parametrize(("draft", "sampling"), [*zip(MODES, cycle(SAMPLINGS), strict=False)], ids=str)
def test_drafts_do_not_change_the_reply(model: LoadedModel, sampling: dict[str, Any], draft: dict[str, Any]) -> None:
    named = {"draft_model": str(model.info.path)} if draft["mode"] is Mode.SPECULATIVE else {}
    expected = plain(model, request(CODE, sampling))
    drafted = reply(ChatSession(model), request(CODE, sampling, **draft, **named))
    assert (drafted.mode, drafted.mode_reason) == (draft["mode"], None)
    assert drafted.drafter is not None
    check_same(model, request(CODE, sampling), expected.token_ids, drafted.token_ids)
    assert drafted.statistics.host_syncs <= 2 * drafted.statistics.rounds
    if draft["mode"] is Mode.SPECULATIVE:  # the draft model is the target: it knows every token
        assert drafted.statistics.acceptance_rate == 1


def test_a_chat_can_change_its_mode_from_turn_to_turn(model: LoadedModel) -> None:
    session = ChatSession(model)
    said = "Name a fruit."
    first = reply(session, request(said, {"temperature": 0}, mode=Mode.LOOKUP))
    turns = (
        ChatMessage(Role.USER, said),
        ChatMessage(Role.ASSISTANT, first.text),
        ChatMessage(Role.USER, "Name another one and say why."),
    )
    for mode in (Mode.DRAFTER, Mode.OFF, Mode.LOOKUP):
        params = SamplingParams(max_tokens=10)
        again = reply(session, GenerationRequest(turns, params, seed=3, draft=DraftSettings(mode=mode)))
        undrafted = GenerationRequest(turns, params, seed=3, draft=DraftSettings(mode=Mode.OFF))
        assert again.statistics.cached_prompt_tokens > 20
        check_same(model, undrafted, plain(model, undrafted).token_ids, again.token_ids)


def test_a_packed_trees_logits_are_each_branchs_own(model: LoadedModel) -> None:
    assert model.capability.kind is DraftKind.TREE
    prompt = model.encode_chat((ChatMessage(Role.USER, f"{PROSE} {CODE} {SUMS} " * 5),), False)
    assert len(prompt) > 2 * model.pace.chunk
    cache = KVCache(model.network)
    for start in range(0, len(prompt), model.pace.chunk):
        chunk = prompt[start : start + model.pace.chunk]
        model.network(mx.array([chunk]), cache=cache.layers)
        cache.tokens += chunk
    tree = tree_of_beams([[504, 6376, 314, 4461], [504, 6376, 282, 260], [504, 980, 314, 253]])
    packed = np.array(Verifier(model, cache).verify(PackedTree.pack(tree)).logits)
    stock = make_prompt_cache(model.network)
    model.network(mx.array([prompt]), cache=stock)
    for leaf in set(range(len(tree))) - set(tree.parents.tolist()):
        nodes = np.flatnonzero(tree.ancestors()[leaf])
        alone = np.array(model.network(mx.array([tree.tokens[nodes].tolist()]), cache=stock)[0])
        assert trim_prompt_cache(stock, len(nodes)) == len(nodes)
        assert np.abs(packed[nodes] - alone).max() < 1e-4
