"""A trace has the target's own log-probability of each token, whatever the sampling, and changes no token."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.decoding.autoregressive import token_log_probs
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, shared_llama, tiny_llama, token_events
from tests.inference.plain_replies import plain
from tests.inference.ready_drafters import ready_session, settings_of

pytestmark = pytest.mark.across_rows

SAMPLINGS: list[dict[str, float]] = [
    {"temperature": 0},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5},
    {"temperature": 0.7, "repetition_penalty": 1.5},
]


def tokens_of(model: LoadedModel, request: GenerationRequest) -> list[TokenEvent]:
    return token_events(ChatSession(model).generate(request))


def traced(request: GenerationRequest) -> GenerationRequest:
    return replace(request, draft=DraftSettings(mode=Mode.OFF, trace=True))


def expected_log_probs(model: LoadedModel, request: GenerationRequest, tokens: list[int]) -> np.ndarray:
    """Feed prompt and reply in one go and look up each token of the reply."""
    prompt = model.encode_chat(request.messages, False)
    logits = model.network(mx.array([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1]
    log_probs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return np.array(log_probs[mx.arange(len(tokens)), mx.array(tokens)])


@pytest.mark.parametrize("sampling", share(SAMPLINGS, 3), ids=str)
def test_every_token_of_plain_decoding_has_the_targets_own_log_probability(sampling: dict[str, float]) -> None:
    model = tiny_llama()
    request = ask(seed=5, max_tokens=30, **sampling)
    events = tokens_of(model, traced(request))
    tokens = [event.token_id for event in events]
    assert tokens == [event.token_id for event in tokens_of(model, replace(request, draft=DraftSettings(Mode.OFF)))]
    found = [event.log_prob for event in events]
    np.testing.assert_allclose(found, expected_log_probs(model, request, tokens), atol=2e-3)


@pytest.mark.parametrize("sampling", share(SAMPLINGS, 3), ids=str)
def test_so_has_every_token_and_every_node_of_drafting(sampling: dict[str, float]) -> None:
    model = tiny_llama()
    request = traced(ask(seed=5, max_tokens=30, **sampling))
    reply = [event.token_id for event in tokens_of(model, request)]
    prompt = model.encode_chat(request.messages, False)
    job = ReplyJob.fresh(model, prompt, request)
    events = token_events(ReplyIterator(job, ScriptedDrafter(reply, 3, 5)))
    np.testing.assert_allclose(
        [event.log_prob for event in events], expected_log_probs(model, request, reply), atol=2e-3
    )
    before = 0
    for event in events:
        if (tree := event.tree) is None:
            continue
        path = [tree.tokens[node] for node in tree.path]
        assert tree.texts == tuple(ALPHABET[token] for token in tree.tokens)
        assert tree.correction_text == ALPHABET[tree.correction]
        for node in range(1, len(tree.tokens)):
            way = _way(tree.parents, node)
            whole = [*reply[:before], *(tree.tokens[step] for step in way)]
            expected = expected_log_probs(model, request, whole)[-1]
            assert tree.log_probs[node] == pytest.approx(expected, abs=2e-3)
        continued = [*reply[:before], *path, tree.correction]
        assert tree.correction_log_prob == pytest.approx(expected_log_probs(model, request, continued)[-1], abs=2e-3)
        before = event.index
    assert before > 20


def _way(parents: tuple[int, ...], node: int) -> list[int]:
    """Return the nodes from the root to this one."""
    way = []
    while node >= 0:
        way.insert(0, node)
        node = parents[node]
    return way


def test_without_a_trace_nothing_is_added() -> None:
    events = tokens_of(tiny_llama(), replace(ask(temperature=0), draft=DraftSettings(Mode.OFF)))
    assert {(event.log_prob, event.tree) for event in events} == {(None, None)}


@pytest.mark.parametrize("mode", share(list(Mode), 5))
def test_the_most_likely_tokens_are_listed_beside_each_token_in_every_mode(mode: Mode) -> None:
    model = shared_llama()
    asked = ask("abcabcabcabc", seed=5, max_tokens=30, temperature=0.9, repetition_penalty=1.2)
    asked = replace(asked, draft=settings_of(mode), top_log_probs=4)
    *events, end = ready_session(model).generate(asked)
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(model, replace(asked, draft=DraftSettings(Mode.OFF), top_log_probs=None)).token_ids
    tokens = token_events(events)
    ids = [event.token_id for event in tokens]
    prompt = model.encode_chat(asked.messages, False)
    logits = model.network(mx.array([[*prompt, *ids]]))[0, len(prompt) - 1 : -1]
    expected = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    np.testing.assert_allclose([e.log_prob for e in tokens], expected[np.arange(len(ids)), ids], atol=2e-3)
    for event, row in zip(tokens, expected, strict=True):
        assert (event.data, event.tree) == (ALPHABET[event.token_id].encode(), None)
        listed = [each.log_prob for each in event.alternatives]
        np.testing.assert_allclose(listed, np.sort(row)[: -4 - 1 : -1], atol=2e-3)
        np.testing.assert_allclose(listed, row[[each.token_id for each in event.alternatives]], atol=2e-3)
        assert [each.data for each in event.alternatives] == [ALPHABET[e.token_id].encode() for e in event.alternatives]


def test_with_none_listed_each_token_has_its_own_log_probability() -> None:
    for mode in (Mode.OFF, Mode.LOOKUP):
        asked = replace(ask("abcabcabc", temperature=0), draft=DraftSettings(mode), top_log_probs=0)
        events = tokens_of(shared_llama(), asked)
        assert all(event.log_prob is not None and event.data and not event.alternatives for event in events)


def test_a_trace_can_be_switched_on_while_the_reply_is_written() -> None:
    iterator = ChatSession(tiny_llama()).generate(replace(ask(temperature=0), draft=DraftSettings(Mode.OFF)))
    found = []
    for event in iterator:
        if isinstance(event, TokenEvent):
            found.append(event.log_prob is not None)
            if event.index == 5:
                iterator.update(DraftSettings(Mode.OFF, trace=True))
    assert found[:6] == [False] * 6
    assert all(found[8:])


@pytest.mark.parametrize("dtype", share([mx.float32, mx.float16, mx.bfloat16], 2))
@pytest.mark.parametrize("columns", [49_152, 1_001])
def test_the_quick_sum_is_right_to_a_thousandth(dtype: mx.Dtype, columns: int) -> None:
    mx.random.seed(0)
    logits = (mx.random.normal((40, columns)) * mx.linspace(0.1, 6, 40)[:, None]).astype(dtype)
    tokens = mx.argmax(logits.astype(mx.float32) + mx.random.gumbel(logits.shape), axis=-1)
    exact = logits.astype(mx.float32)
    exact = exact - mx.logsumexp(exact, axis=-1, keepdims=True)
    expected = exact[mx.arange(40), tokens]
    assert mx.abs(token_log_probs(logits, tokens) - expected).max().item() < 2e-3


def test_a_tokens_text_has_its_leading_space() -> None:
    class Pieces:
        """Drops the space that a text begins with, as SentencePiece tokenizers do."""

        def encode(self, text: str, **_options: object) -> list[int]:
            assert text == "a"
            return [0]

        def decode(self, token_ids: list[int], **_options: object) -> str:
            return "".join([" a", " word", "s"][token] for token in token_ids).removeprefix(" ")

    model = replace(tiny_llama(), tokenizer=Pieces())
    assert [model.token_text(token) for token in (1, 2, 1)] == [" word", "s", " word"]


@pytest.mark.parametrize(
    ("spelled", "data"),
    [
        ("\u0120\u00e2\u013e", b" \xe2\x9c"),
        ("<0xE2>", b"\xe2"),
        ("<0xe2>", b"\xe2"),
        ("\u4e00\ufffd", "\ufffd".encode()),
    ],
    ids=["byte-level", "a byte", "a byte in small letters", "neither"],
)
def test_a_token_with_a_part_of_a_character_has_its_bytes(spelled: str, data: bytes) -> None:
    class Parts:
        """Knows a token that is no whole character."""

        def encode(self, _text: str, **_options: object) -> list[int]:
            return [0]

        def decode(self, token_ids: list[int], **_options: object) -> str:
            return "".join(["a", "\ufffd"][token] for token in token_ids)

        def convert_ids_to_tokens(self, _token_id: int) -> str:
            return spelled

    model = replace(tiny_llama(), tokenizer=Parts())
    assert (model.token_data(1), model.token_data(0)) == (data, b"a")
