"""Drafting in the loop: the same text as plain decoding, and drafts made from the right state, position and noise."""

from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

import tests.inference.fakes as fakes
from rdchat.errors import ModelError
from rdchat.inference.api import BeamShape, DraftKind, DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.drafting.heads.recurrent_head import Cell, Output
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import reply_end
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows

SIZE = len(fakes.ALPHABET)


def reply(
    model: LoadedModel, request: GenerationRequest, drafter: HeadModel, shape: BeamShape, branch: bool
) -> ReplyEnd:
    prompt = model.encode_chat(request.messages)
    job = ReplyJob.fresh(model, prompt, request)
    return reply_end(ReplyIterator(job, drafter.drafter(prompt, fakes.with_beams(request, shape, branch))))


@pytest.mark.slow
@pytest.mark.parametrize(("branch", "width", "length"), share(product([False, True], [1, 3, 8], [2, 5, 9]), 20))
def test_the_text_is_that_of_plain_decoding(width: int, length: int, branch: bool) -> None:
    """Each temperature meets each width, each length, and both kinds of branches."""
    model = fakes.shared_llama()
    temperature = (0, 0.7, 1.3)[(width // 3 + length // 4) % 3]
    request = fakes.ask(temperature=temperature, max_tokens=30, seed=width)
    expected = plain(model, request)
    drafted = reply(model, request, fakes.random_drafter(model), BeamShape(width, length), branch)
    assert drafted.token_ids == expected.token_ids
    assert drafted.finish_reason == expected.finish_reason
    statistics = drafted.statistics
    assert statistics.host_syncs == statistics.rounds, "one a round"
    nodes = max(2 * length - 1, width * (length - 1))
    assert statistics.drafted <= statistics.rounds * (4 * (nodes - 1) // 5 if branch else length - 1)
    assert statistics.verified_nodes <= statistics.rounds * nodes


LETTERS = some.text("abc ", min_size=1, max_size=4)


@settings(max_examples=8, deadline=None)
@given(
    repeated=LETTERS, times=some.integers(1, 8), width=some.sampled_from([1, 2, 4]), length=some.integers(2, 6),
    temperature=some.sampled_from([0.0, 0.9]), tokens=some.integers(2, 14), seed=some.integers(0, 9),
)  # fmt: skip
def test_branches_longer_than_the_beams_change_no_text(
    repeated: str, times: int, width: int, length: int, temperature: float, tokens: int, seed: int
) -> None:
    model = fakes.shared_llama(context_length=36)
    prompt = (repeated * times)[:15]
    request = fakes.ask(prompt, temperature=temperature, max_tokens=tokens, seed=seed)
    end = reply(model, request, fakes.random_drafter(model), BeamShape(width, length), True)
    assert end.token_ids == plain(model, request).token_ids
    statistics = end.statistics
    assert statistics.verified_nodes <= statistics.rounds * max(2 * length - 1, width * (length - 1))


def drafter_of(model: LoadedModel, prompt: str, shape: BeamShape) -> HeadDrafter:
    """Return the drafter of a reply to a prompt, which the target has read."""
    request = fakes.with_beams(fakes.ask(prompt, temperature=0), shape)
    tokens = model.encode_chat(request.messages)
    drafter = fakes.random_drafter(model).drafter(tokens, request)
    drafter.read_prompt(tokens, model.call(mx.array(tokens), KVCache(model.network))[1], 0)
    return drafter


@pytest.mark.parametrize("limit", [0, 1, 3, 6, 11, 12, 30])
def test_a_branch_is_longer_than_the_beams_within_the_limit(limit: int) -> None:
    model = fakes.shared_llama()
    root = model.tokenizer.encode("a")[0]
    tree = drafter_of(model, "abcdef" * 9, BeamShape(4, 5)).propose(root, limit).tree
    assert tree.fetch().depths.max() == tree.deepest == min(limit, 12), "four fifths of 15 nodes"
    assert len(tree) <= 16


@pytest.mark.parametrize("name", ["kimi_linear", "chains"])
def test_where_deeper_trees_cost_states_or_chains_are_verified_a_branch_is_as_long_as_the_beams(name: str) -> None:
    model = fakes.chains_only(fakes.shared_llama()) if name == "chains" else fakes.shared_family(name)
    root = model.tokenizer.encode("a")[0]
    tree = drafter_of(model, "abcdef" * 9, BeamShape(4, 5)).propose(root, 30).tree
    assert tree.deepest == 4
    assert (model.capability.kind is DraftKind.TREE) == (tree.ancestors is not None)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_of_a_search_as_many_nodes_are_offered_as_are_asked_for(width: int, nodes: int) -> None:
    model = fakes.shared_llama()
    request = fakes.ask()
    prompt = model.encode_chat(request.messages)
    drafter = fakes.random_drafter(model).drafter(prompt, fakes.with_beams(request, BeamShape(width, 5), False))
    drafter.read_prompt(prompt, model.call(mx.array(prompt), KVCache(model.network))[1], 0)
    pool = drafter.search_draft(7, BeamShape(width, 5))
    tree = drafter.offer_best(pool, nodes).tree.fetch()
    assert len(tree.tokens) == len(tree.parents) == nodes
    assert (tree.tokens[0], tree.parents[0]) == (7, -1)
    assert set(tree.tokens.tolist()) <= set(np.array(pool.tokens).tolist())
    assert len(pool.tokens) == 1 + 4 * 2 * width, "beside each beam a runner-up may be kept"


@pytest.mark.parametrize(("name", "width"), [("llama", 1), ("llama", 4), ("kimi_linear", 1)])
def test_a_draft_is_a_chain_where_chains_are_verified_or_a_runner_up_costs_more_than_a_row(
    name: str, width: int
) -> None:
    model = fakes.chains_only(fakes.shared_llama()) if name == "llama" else fakes.shared_family(name)
    drafter = drafter_of(model, "fedcba", BeamShape(width, 5))
    drafter.take_settings(DraftSettings(Mode.DRAFTER, beam_width=width, lookup_branch=False))
    assert drafter.propose(7, 20).tree.ancestors is None


def test_new_settings_hold_from_the_next_round_and_change_no_text() -> None:
    model = fakes.shared_llama()
    request = fakes.ask(temperature=0, max_tokens=20)
    prompt = model.encode_chat(request.messages)
    drafter = fakes.random_drafter(model).drafter(prompt, fakes.with_beams(request, BeamShape(3, 4), False))
    iterator = ReplyIterator(ReplyJob.fresh(model, prompt, request), drafter)
    nodes = []
    ids = []
    for event in iterator:
        if isinstance(event, TokenEvent):
            ids.append(event.token_id)
            if event.round is not None:
                nodes.append(event.round.verified_nodes)
                iterator.update(DraftSettings(Mode.DRAFTER, beam_width=1, beam_length=2, lookup_branch=True))
    assert nodes[0] == 9
    assert max(nodes[1:]) == 3
    assert tuple(ids) == plain(model, request).token_ids


def test_several_layers_are_read_side_by_side() -> None:
    model = fakes.tiny_llama()
    network = model.network
    tokens = mx.array([[3, 4, 5]])
    model.hooks.record_states(HiddenReads((0, 1)))
    logits = network(tokens)
    hidden = model.hooks.hidden
    assert hidden.shape == (1, 3, 96)
    assert mx.allclose(hidden[..., :32] @ network.model.embed_tokens.weight.T, logits, atol=1e-4)
    x = network.model.embed_tokens(tokens)
    first = network.model.layers[0](x, "causal", None)
    first = first / mx.sqrt((first**2).mean(axis=-1, keepdims=True))
    assert mx.allclose(hidden[..., 32:64], first, atol=1e-4)
    assert mx.allclose(network.model.norm(hidden[..., 64:]), hidden[..., :32], atol=1e-4)
    model.hooks.record_states(HiddenReads())
    network(tokens)
    assert model.hooks.hidden.shape == (1, 3, 32)


@pytest.mark.parametrize(
    "changes",
    share(
        [
            {"target_layers": (0, 1)},
            {"state_size": 10},
            {"cell": Cell.SUM, "output": Output.OWN, "project_input": False, "exit_size": 64, "activate_input": False},
        ],
        3,
    ),
    ids=str,
)
def test_heads_of_every_kind_draft(changes: dict) -> None:
    model = fakes.shared_llama()
    request = fakes.ask(temperature=0.7)
    shape = BeamShape(3, 5)
    end = reply(model, request, fakes.random_drafter(model, **changes), shape, True)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.drafted > 0


@pytest.mark.parametrize(
    ("changes", "words"), [({"target_layers": (7,)}, "layer 7"), ({"hidden_size": 16}, "width 16")]
)
def test_a_head_of_another_target_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        fakes.random_drafter(fakes.shared_llama(), **changes)
