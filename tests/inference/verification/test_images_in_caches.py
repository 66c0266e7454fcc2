"""Caches that hold images: positions shift behind them, and whatever is trimmed or put back, a fresh one agrees."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import ModelError
from rdchat.inference.api import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.decoding.reply import reply_start, thought_end
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.verification import prefix_caches
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_caches import PrefixCaches
from rdchat.inference.verification.round_cache import RoundKVCache
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verifier
from tests.grids import share
from tests.inference.fakes import ALPHABET, shared_family, shared_llama, tree_of_beams
from tests.inference.image_prompts import SEEING, Image, ImagePrompt, alone, fresh, prompts, read

pytestmark = pytest.mark.across_rows

PLENTY = 2**30
few_examples = settings(max_examples=15)  # of what calls a network
some_examples = settings(max_examples=40)


def read_in_parts(model: LoadedModel, cache: KVCache, prompt: ImagePrompt, cuts: Sequence[int]) -> None:
    """Read a prompt to its end in calls that end at these places; check each row's logits."""
    expected = alone(model, prompt)
    for end in (*sorted(cuts), len(prompt)):
        if (start := len(cache.tokens)) < end:
            logits = read(model, cache, prompt, end)
            assert mx.allclose(logits, expected[start:end], atol=2e-4), (start, end)


@pytest.mark.parametrize("name", share(SEEING))
@few_examples
@given(prompt=prompts(), data=some.data())
def test_a_trimmed_cache_reads_on_like_a_fresh_one(name: str, prompt: ImagePrompt, data: some.DataObject) -> None:
    model = SEEING[name]()
    places = some.lists(some.integers(1, len(prompt)), max_size=3)
    cache = fresh(model, prompt)
    read_in_parts(model, cache, prompt, data.draw(places))
    for _ in range(2):
        cache.trim_to(data.draw(some.integers(0, len(prompt) - 1)))
        read_in_parts(model, cache, prompt, data.draw(places))


@few_examples
@given(prompt=prompts(whole=True), data=some.data())
def test_an_image_whose_rows_see_each_other_is_never_cut(prompt: ImagePrompt, data: some.DataObject) -> None:
    model = shared_llama()
    cache = fresh(model, prompt)
    read(model, cache, prompt, len(prompt))
    length = data.draw(some.integers(0, len(prompt)))
    inside = any(image.start < length < image.end for image in prompt.images)
    assert cache.can_trim_to(length) is not inside
    cache.trim_to(length)
    assert cache.tokens == ([] if inside else prompt.tokens[:length])
    read_in_parts(model, cache, prompt, [])


@pytest.mark.parametrize("name", share(SEEING))
@few_examples
@given(
    prompts=some.lists(prompts(), min_size=2, max_size=2),
    shared=prompts(),
    turns=some.lists(some.booleans(), max_size=6),
)
def test_two_chats_in_turn_with_what_was_put_aside(
    name: str, prompts: list[ImagePrompt], shared: ImagePrompt, turns: list[bool]
) -> None:
    model = SEEING[name]()
    caches = PrefixCaches(model.network, PLENTY)
    chats = [ImagePrompt(*shared.pieces, *prompt.pieces) for prompt in prompts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_caches, "_MIN_TAIL", 1)
        for turn in (False, True, *turns):
            chat = chats[turn] = ImagePrompt(*chats[turn].pieces, [turn + 1, 3])
            cache = caches.take_cache(chat.tokens, "", chat.images)
            assert cache.tokens == chat.tokens[: len(cache.tokens)] != chat.tokens
            read_in_parts(model, cache, chat, [])
            caches.give_back(cache, "")


@pytest.mark.parametrize("name", share(SEEING))
@few_examples
@given(prompt=prompts(), seed=some.integers(0, 99), keep=some.booleans())
def test_rounds_and_steps_behind_images_equal_reading(name: str, prompt: ImagePrompt, seed: int, keep: bool) -> None:
    model = SEEING[name]()
    rng = np.random.default_rng(seed)
    cache = fresh(model, prompt)
    read(model, cache, prompt, len(prompt))
    verifier = Verifier(model, cache)
    assert verifier.position == len(prompt), "noise and drafters count tokens"
    tree = tree_of_beams([[3, *rng.integers(1, 30, 3).tolist()] for _ in range(3)])
    logits = verifier.verify(PackedTree.pack(tree)).logits
    for node, ancestors in enumerate(tree.ancestors()):
        path = np.flatnonzero(ancestors).tolist()
        longer = ImagePrompt(*prompt.pieces, tree.tokens[path].tolist())
        assert mx.allclose(logits[node], alone(model, longer)[-1], atol=2e-4)
    if keep:
        verifier.commit(longer.tokens[len(prompt) :], path)
    else:
        verifier.rollback()
        longer = prompt
    verifier.catch_up()
    cache.remember()
    model.network(mx.array([[9]]), cache=cache.layers)
    cache.step_back()
    read_in_parts(model, cache, ImagePrompt(*longer.pieces, [7, 8]), [])


def test_an_emptied_cache_reads_its_prompt_again() -> None:
    """As where a file of a stored cache turns out to be damaged."""
    model = shared_llama()
    prompt = ImagePrompt([1, 2], Image(1, 6, -4), [3, 4])
    cache = fresh(model, prompt)
    read_in_parts(model, cache, prompt, [])
    cache.drop_tokens()
    assert cache.layers[0].offset == 0
    read_in_parts(model, cache, prompt, [4, 8])


# Masks


def masked_after(cache: RoundKVCache, held: int, blocks: mx.array | None, rows: int, window: int | None) -> mx.array:
    if held:
        cache.update_and_fetch(mx.zeros((1, 1, held, 2)), mx.zeros((1, 1, held, 2)))
    cache.blocks = blocks
    mask = cache.make_mask(rows, window, True)
    assert isinstance(mask, mx.array)
    return mask


@some_examples
@given(prompt=prompts(), window=some.none() | some.integers(1, 12), held=some.integers(0, 9), given_by=some.booleans())
def test_rows_of_an_image_see_each_other(prompt: ImagePrompt, window: int | None, held: int, given_by: bool) -> None:
    """The rule that was found equal to transformers': causal or the same image, and within the window."""
    n = len(prompt)
    blocks = prompt.blocks(0, len(prompt))
    own, asked = (None, window) if given_by else (window, None)
    causal = masked_after(RoundKVCache(own), held, None, n, asked)
    number = mx.arange(n)
    same = (blocks[:, None] == blocks) & (blocks[:, None] >= 0) & (number[:, None] - number < (window or n))
    expected = mx.concatenate([causal[:, :-n], causal[:, -n:] | same], axis=1)
    assert mx.array_equal(masked_after(RoundKVCache(own), held, blocks, n, asked), expected)


def test_blocks_concern_one_call_and_perhaps_only_windows() -> None:
    model = shared_llama(sliding_window=5)
    cache = KVCache(model.network)
    full, sliding = (layer for layer in cache.layers)
    blocks = mx.array([-1, 0, 0])
    with cache.seeing(blocks, windows_only=True):
        assert full.blocks is None
        assert sliding.blocks is blocks
    assert sliding.blocks is None
    with cache.seeing(blocks):
        assert full.blocks is sliding.blocks is blocks


@few_examples
@given(prompt=prompts(whole=True), cut=some.integers(0, 3))
def test_a_block_in_one_call_is_that_of_a_whole_call(prompt: ImagePrompt, cut: int) -> None:
    model = shared_family("gemma3")
    results = []
    for ends in ([len(prompt)], sorted({*[image.start for image in prompt.images][cut:], len(prompt)})):
        cache = fresh(model, prompt)
        logits = []
        for end in ends:
            with cache.seeing(prompt.blocks(len(cache.tokens), end)) if prompt.images else nullcontext():
                logits.append(read(model, cache, prompt, end))
        results.append(mx.concatenate(logits))
    assert mx.allclose(*results, atol=2e-4)


# Ranks


def test_several_macs_are_given_no_images() -> None:
    class Spread:
        mirror: Any = staticmethod(lambda *_: None)
        layers: Sequence[Any] = ()

    caches = PrefixCaches(Spread(), PLENTY)  # type: ignore[arg-type]
    prompt = ImagePrompt([1], Image(1, 4), [2])
    with pytest.raises(ModelError, match="several Macs run cannot see images"):
        caches.take_cache(prompt.tokens, "", prompt.images)
    assert caches.take_cache([1, 2], "").tokens == []


# What looks at prompts

MIXED = some.lists(some.sampled_from([1, 1, 2, 2, 3, -2, -3, -9]), max_size=40)


@settings(max_examples=100)
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


@some_examples
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
    messages = ChatMessage(Role.USER, "hi"), ChatMessage(Role.ASSISTANT, "ab")
    request = GenerationRequest(messages, continue_last=True)
    assert reply_start(shared_llama(), [3, *Image(1, 4).ids, 1, 2], request) == 5


def test_a_draft_model_counts_as_the_target_does() -> None:
    draft = DraftModel(shared_llama(), shared_llama(seed=3), len(ALPHABET))
    tokens = [3, *Image(1, 4).ids, 2, 500]
    assert draft.known(tokens) == [3, 0, 0, 0, 0, 2, 0]
    draft.image_token = 7
    assert draft.known(tokens) == [3, 7, 7, 7, 7, 2, 0]
    draft.image_token = 500
    assert draft.known(tokens) == [3, 0, 0, 0, 0, 2, 0], "it has no row for that one"
