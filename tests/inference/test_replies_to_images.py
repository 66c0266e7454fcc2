"""Prompts with ids of images: replies are the same in every mode, and what looks at prompts leaves those ids out."""

from dataclasses import replace

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rdchat.inference.api import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.decoding.reply import reply_start, thought_end
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.drafting.reply_index import ReplyIndex
from tests.inference.fakes import ALPHABET, shared_llama
from tests.inference.image_prompts import Image

pytestmark = pytest.mark.across_rows


def chat(*turns: str, **sampling: object) -> GenerationRequest:
    """Return the request of a chat; a person and the model speak in turn."""
    messages = tuple(ChatMessage((Role.USER, Role.ASSISTANT)[number % 2], turn) for number, turn in enumerate(turns))
    return GenerationRequest(messages, SamplingParams(max_tokens=8, **sampling), seed=4)  # type: ignore[arg-type]


# What looks at prompts

MIXED = some.lists(some.sampled_from([1, 1, 2, 2, 3, -2, -3, -9]), max_size=60)


@settings(max_examples=300)
@given(tokens=MIXED, more=MIXED, chain=some.booleans())
def test_lookup_never_offers_an_image_and_matches_end_there(tokens: list[int], more: list[int], chain: bool) -> None:
    earlier = ReplyIndex({1: [1, 2, 3, 1, 2], 2: [2, 2, 1]})
    index = LookupIndex(tokens, earlier=earlier)
    for part in (more[:5], more[5:]):
        assert min(index.draft_tree(12, chain=chain).tokens, default=0) >= 0
        text = [*reversed(index._text.tokens)]
        behind = next((place for place, token in enumerate(text) if token < 0), len(text))
        assert all(match.length <= behind and match.following[0] >= 0 for match in index._find_matches())
        index.extend(part)


def test_lookup_goes_on_behind_an_image() -> None:
    index = LookupIndex([1, 2, 3, 4, *Image(1, 5).ids, 1, 2])
    assert index.draft_tree(8, chain=True).tokens == [3, 4]


@settings(max_examples=100)
@given(prompt=some.lists(some.integers(-40, 35), min_size=1, max_size=30))
def test_penalties_and_texts_know_nothing_of_images(prompt: list[int]) -> None:
    model = shared_llama()
    text = [token for token in prompt if 0 <= token < len(ALPHABET)]
    chooser = TokenChooser(SamplingParams(repetition_penalty=1.2), 0, len(ALPHABET))
    assert mx.array_equal(chooser.seen(prompt), chooser.seen(text))
    images = [token for token in prompt if token < len(ALPHABET)]
    assert model.decode(images) == model.decode(text)
    assert thought_end(model, images) == thought_end(model, text[-16:]) == ""


def test_a_continued_text_begins_behind_an_image() -> None:
    request = replace(chat("hi", "ab"), continue_last=True)
    assert reply_start(shared_llama(), [3, *Image(1, 4).ids, 1, 2], request) == 5


def test_a_draft_model_counts_as_the_target_does() -> None:
    draft = DraftModel(shared_llama(), shared_llama(seed=3), len(ALPHABET))
    tokens = [3, *Image(1, 4).ids, 2, 500]
    assert draft.known(tokens) == [3, 0, 0, 0, 0, 2, 0]
    draft.image_token = 7
    assert draft.known(tokens) == [3, 7, 7, 7, 7, 2, 0]
    draft.image_token = 500
    assert draft.known(tokens) == [3, 0, 0, 0, 0, 2, 0], "it has no row for that one"
