"""Law: numbers that are not finite end a reply with the same words, at the same token, in every mode."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mlx.utils import tree_map
from mlx_lm.models import llama

from rdchat.errors import ModelError
from rdchat.inference.api import DraftSettings, GenerationEvent, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.auto.automatic_replies import RandomPlanner, iterator_of, state_of
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, chains_only, loaded
from tests.inference.plain_replies import plain, unended
from tests.inference.prefix_trees import tree_of_beams

pytestmark = pytest.mark.across_rows
WORDS = "tiny computed numbers that are not finite"


@cache
def untied(spoilt: int | None = None, value: float = float("inf")) -> LoadedModel:
    """Return a small llama; whoever feeds it the spoilt token gets no numbers from there on."""
    args = llama.ModelArgs(
        model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=len(ALPHABET), head_dim=8, tie_word_embeddings=False,
    )  # fmt: skip
    mx.random.seed(2)
    with mx.stream(mx.cpu):
        network = llama.Model(args)
        network.update(tree_map(lambda array: array + 0.3 * mx.random.normal(array.shape), network.parameters()))
        if spoilt is not None:
            network.model.embed_tokens.weight[spoilt] = mx.full((32,), value)
    network.eval()
    return loaded(network)


def until_refused(events: Iterator[GenerationEvent]) -> tuple[int, ...]:
    """Return the tokens before the refusal."""
    tokens = list[int]()
    with pytest.raises(ModelError, match=WORDS) as caught:
        tokens.extend(event.token_id for event in events if isinstance(event, TokenEvent))
    assert "float32" in caught.value.hint
    return tuple(tokens)


class _Spoiling(Drafter):
    """Offers the same beams in each round."""

    name = "drafter"

    def __init__(self, beams: list[list[int]]) -> None:
        self._beams = beams

    def propose(self, root: int, limit: int) -> Draft:
        beams = [[root, *beam][: 1 + limit] for beam in self._beams]
        return Draft(PackedTree.pack(tree_of_beams(beams)))


def ways(model: LoadedModel, request: GenerationRequest, script: list[int]) -> dict[str, Iterator[GenerationEvent]]:
    """Return the reply in every way to decode it; a drafter with a script offers the spoilt token too."""
    prompt = model.encode_chat(request.messages, False)
    automatic = state_of(model, AvailableDrafters())
    automatic.planner = RandomPlanner(automatic.costs, (Mode.LOOKUP,), 1)
    chains = chains_only(model)
    return {
        "plain": ReplyIterator(ReplyJob.fresh(model, prompt, request)),
        "tree": ReplyIterator(ReplyJob.fresh(model, prompt, request), ScriptedDrafter(script, 3, 4)),
        "chain": ReplyIterator(ReplyJob.fresh(chains, prompt, request), ScriptedDrafter(script, 1, 5)),
        "lookup": ChatSession(model).generate(replace(request, draft=DraftSettings(Mode.LOOKUP))),
        "auto": iterator_of(automatic, request),
    }  # fmt: skip


@settings(max_examples=10)
@given(
    place=some.integers(1, 20),
    value=some.sampled_from([float("inf"), float("nan")]),
    sampling=some.sampled_from([
        {"temperature": 0.0}, {"temperature": 0.9, "top_p": 1.0}, {"temperature": 0.9, "top_k": 4},
        {"temperature": 0.9, "repetition_penalty": 1.3}]),
)  # fmt: skip
def test_every_mode_ends_with_the_words_of_the_first(place: int, value: float, sampling: dict[str, float]) -> None:
    """The rest of the reply was token 0 up to the limit."""
    request = unended(ask("abcabc", seed=4, **sampling))
    said = plain(untied(), request).token_ids
    prompt = untied().encode_chat(request.messages, False)
    unseen = [at for at, token in enumerate(said) if token not in (*prompt, *said[:at]) and at < len(said) - 1]
    if not unseen:
        return
    spoilt = unseen[place % len(unseen)]
    model = untied(said[spoilt], value)
    for way, events in ways(model, request, list(said)).items():
        assert until_refused(events) == said[: spoilt + 1], way


def test_a_spoilt_token_that_is_only_drafted_harms_nothing() -> None:
    """Zero times infinity is no number, so a drafted token spoilt the rows before it."""
    request = unended(ask("abcabc", seed=4, temperature=0.0))
    said = plain(untied(), request).token_ids
    prompt = untied().encode_chat(request.messages, False)
    spoilt = next(token for token in range(len(ALPHABET)) if token not in {*said, *prompt})
    for beams in ([[spoilt, 1]], [[1, spoilt], [spoilt, 2]]):
        job = ReplyJob.fresh(untied(spoilt), prompt, request)
        *_, end = ReplyIterator(job, _Spoiling(beams))
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == said
