"""An EAGLE-3 drafter's memory has rows of committed tokens only, however replies end."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice, product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, ChatMessage, GenerationRequest, ReplyEnd, Role
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.drafting.heads.eagle3_head import Eagle3Memory
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.verification.kv_cache import KVCache
from tests.grids import share
from tests.inference.drafting.heads.eagle3_heads import CHAIN, TREE, bound, features_of_a_text
from tests.inference.fakes import ask, shared_llama, with_beams
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows


class Chat:
    """A conversation with a drafter whose memory outlives replies, as the target's cache does."""

    def __init__(self, **changes: Any) -> None:
        self.model = shared_llama()
        self.head = bound(self.model, **changes)
        self.model.hooks.record_states(self.head.reads)
        self.memory = Eagle3Memory(self.head)
        self.cache = KVCache(self.model.network)

    def begin(self, request: GenerationRequest, shape: BeamShape = TREE) -> ReplyIterator:
        prompt = self.model.encode_chat(request.messages, continue_last=False)
        self.cache.keep_prefix_of(prompt)
        self.memory.begin_reply(prompt)
        asked = with_beams(request, shape, False)
        drafter = HeadDrafter(self.model, self.head, self.memory, prompt, request=asked, ledger=Ledger())
        return ReplyIterator(ReplyJob.fresh(self.model, prompt, request, self.cache), drafter)

    def assert_remembers(self, gap: int | None = None) -> None:
        """Go on with two tokens more: the memory is the same as one that saw this text alone, and so is its draft.

        Args:
            gap: Position of the one token that it knows nothing of; None for none.
        """
        held = len(self.cache.tokens)
        text = [*self.cache.tokens, 5, 6]
        self.model.hooks.record_states(self.head.reads)
        self.model.network(mx.array([text]))
        features = self.model.hooks.hidden[0]
        fresh = Eagle3Memory(self.head)
        fresh.begin_reply(text)
        fresh.take_committed(text, features, 0)
        if gap is not None:  # another token is behind it
            fresh.catch_up(Root(7, len(text), features[-1]))
            fresh.begin_reply([*text[: gap + 1], 1 + text[gap + 1]])
            fresh.begin_reply(text)
            fresh.take_committed(text[gap + 1 :], features[gap + 1 :], gap + 1)
        self.memory.begin_reply(text)
        self.memory.take_committed(text[held:], features[held:], held)
        root = Root(7, len(text), features[-1])
        states = [memory.root_state(root) for memory in (self.memory, fresh)]
        assert self.memory.positions == fresh.positions == [place for place in range(len(text)) if place != gap]
        for mine, wanted in zip(self.memory.buffers, fresh.buffers, strict=True):
            for rows, expected in zip(mine.view(0), wanted.view(0), strict=True):
                np.testing.assert_allclose(np.array(rows), np.array(expected), atol=2e-4)
        for tokens in ([3, 9], [4, 4]):
            np.testing.assert_allclose(*[np.array(state.logits()) for state in states], atol=2e-4)
            states = [state.after(mx.array([0, 0]), mx.array(tokens)) for state in states]


def cancelled(iterator: ReplyIterator, events: int) -> None:
    list(islice(iterator, events))
    iterator.cancel()
    list(iterator)


ENDS: dict[str, Callable[[ReplyIterator], object]] = {
    "finished": list,
    "cancelled before it began": lambda iterator: cancelled(iterator, 0),
    "cancelled while the prompt is read": lambda iterator: cancelled(iterator, 2),
    "cancelled while writing": lambda iterator: cancelled(iterator, 9),
    "closed while writing": lambda iterator: (list(islice(iterator, 9)), iterator.close()),
    "closed within a round": lambda iterator: (list(islice(iterator, 12)), iterator.close()),
}


@pytest.mark.parametrize(("end", "shape"), share(product(ENDS, [TREE, CHAIN]), 6))
def test_after_each_kind_of_end_the_memory_is_that_of_the_committed_tokens(end: str, shape: BeamShape) -> None:
    chat = Chat()
    ENDS[end](chat.begin(ask("hello there", max_tokens=20, temperature=1.3), shape))
    chat.assert_remembers()


@pytest.mark.slow
@pytest.mark.parametrize("layers", share([1, 2], 2))
def test_further_turns_leave_the_memory_of_the_text(layers: int) -> None:
    chat = Chat(windows=(None,) * layers, takes_embedding=(True, False)[:layers])
    turns = (ChatMessage(Role.USER, "hello"),)
    for _ in range(3):
        request = replace(ask(max_tokens=9, temperature=0.7), messages=turns)
        *_, end = chat.begin(request)
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == plain(chat.model, request).token_ids
        turns = (*turns, ChatMessage(Role.ASSISTANT, end.text), ChatMessage(Role.USER, "more"))
    chat.assert_remembers()


@pytest.mark.slow
@pytest.mark.parametrize("layers", share([1, 2], 2))
def test_an_edit_leaves_the_memory_of_the_text_but_for_the_token_before_it(layers: int) -> None:
    """Its row held the token that was edited, and the target does not read it again."""
    chat = Chat(windows=(None,) * layers, takes_embedding=(True, False)[:layers])
    for prompt in ("one two three four", "one two edited", "one two edited"):
        request = ask(prompt, max_tokens=8, temperature=0.7)
        *_, end = chat.begin(request)
        assert end.token_ids == plain(chat.model, request).token_ids
    chat.assert_remembers(gap=len("user: one two ") - 1)


def test_a_long_prompt_is_remembered() -> None:
    chat = Chat()
    list(chat.begin(ask("all of this is a long text. " * 8, max_tokens=8)))
    chat.assert_remembers()


def test_another_root_at_the_same_place_is_computed_anew() -> None:
    """The row before a root holds the root itself, so another root's would be a draft from the wrong token."""
    head = bound(shared_llama())
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin_reply(text[:-1])
    memory.take_committed(text[:-1], features, 0)
    found = [np.array(memory.root_state(Root(token, 12, features[-1])).logits()) for token in (4, 9, 4)]
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert memory.positions == list(range(12))


def test_a_draft_does_not_copy_the_committed_rows() -> None:
    """Each level copied all of them."""
    head = bound(shared_llama(), heads=4, head_size=64)
    rows = 4096
    memory = head.memory()
    memory.begin_reply([1] * rows)
    memory.take_committed([1] * rows, mx.random.normal((rows, 64), key=mx.random.key(0)), 0)

    def drafted(token: int) -> mx.array:
        state = memory.root_state(Root(token, rows, mx.zeros(64)))
        for _ in range(3):
            state = state.after(mx.array([0, 0]), mx.array([3, 4]))
        return state.logits()

    mx.eval(drafted(2), [buffer.arrays for buffer in memory.buffers])
    held = sum(array.nbytes for buffer in memory.buffers for array in buffer.arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(drafted(3))
    assert mx.get_peak_memory() - before < held / 2
