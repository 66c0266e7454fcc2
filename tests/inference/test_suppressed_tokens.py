"""Law: a reply never has a token that its model suppresses, and is that of the model without it, in every mode."""

from dataclasses import replace

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.api import (
    AnswerShape,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Mode,
    ReplyEnd,
    ShapeKind,
    TokenEvent,
)
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, END, ask, shared_family, shared_llama
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.shape_models import json_model

PROMPT = "abcabcabc"
FILTERS = {"temperature": 0.9, "top_p": 0.9, "top_k": 6, "min_p": 0.01, "repetition_penalty": 1.2}


def model_of(name: str) -> LoadedModel:
    return shared_llama() if name == "llama" else shared_family(name)


def end_of(session: ChatSession, request: GenerationRequest) -> ReplyEnd:
    *_, end = session.generate(request)
    assert isinstance(end, ReplyEnd)
    return end


def without(model: LoadedModel, request: GenerationRequest, suppressed: set[int]) -> list[int]:
    """Return what the network writes most likely, of all but some tokens: mlx-lm's own cache, no code of ours."""
    cache = make_prompt_cache(model.network)
    tokens = model.encode_chat(request.messages, False)
    written = list[int]()
    while len(written) < request.sampling.max_tokens and END not in written:
        logits = model.network(mx.array([tokens]), cache=cache)[0, -1].tolist()
        allowed = [-float("inf") if token in suppressed else each for token, each in enumerate(logits)]
        tokens = [max(range(len(allowed)), key=allowed.__getitem__)]
        written += tokens
    return written


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "gpt_oss"])
def test_every_mode_writes_what_the_network_does_without_them(name: str) -> None:
    model = model_of(name)
    request = ask(PROMPT, temperature=0, max_tokens=16)
    usual = end_of(ChatSession(model), request).token_ids
    suppressed = {*usual[:3], usual[-1]} | {-1, len(ALPHABET), 10**30}
    kept = replace(model, suppressed=frozenset(suppressed))
    expected = tuple(without(model, request, suppressed))
    assert expected != usual
    for mode in Mode:
        end = end_of(ready_session(kept), replace(request, draft=settings_of(mode)))
        assert end.token_ids == expected, mode


@pytest.mark.parametrize("name", ["llama", "qwen3_next"])
@pytest.mark.parametrize("sampling", [{"temperature": 0.9, "top_p": 1.0}, FILTERS])
def test_a_sampled_reply_has_none_of_them_in_any_mode(name: str, sampling: dict[str, float]) -> None:
    model = model_of(name)
    request = ask(PROMPT, max_tokens=20, **sampling)
    suppressed = frozenset(end_of(ChatSession(model), request).token_ids)
    kept = replace(model, suppressed=suppressed)
    replies = {mode: end_of(ready_session(kept), replace(request, draft=settings_of(mode))).token_ids for mode in Mode}
    assert len({*replies.values()}) == 1, replies
    assert not suppressed & {*replies[Mode.OFF]}


def test_all_tokens_suppressed_is_as_none_and_a_format_may_need_one() -> None:
    logits = mx.array([[0.0, 3.0, 1.0], [0.0, 3.0, -mx.inf], [-mx.inf, 1.0, -mx.inf]])
    request = ask(temperature=0)
    for suppressed, expected in (({0, 1, 2}, [0, 0, 1]), ({1}, [2, 0, 1]), (set[int](), [1, 1, 1])):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            chooser = TokenChooser(request.sampling, 1, 3, masked=True, suppressed=suppressed)
            rows = logits.astype(dtype)
            assert chooser.choose(rows, [1, 2, 3]).tolist() == expected
            assert chooser.choose_quickly(rows, 1, mx.array([0, 1, 2]), 2)[0].tolist() == expected


def test_a_format_is_kept_with_its_tokens_suppressed() -> None:
    model = json_model()
    request = replace(ask("list", max_tokens=60), shape=AnswerShape(ShapeKind.REGEX, '"aa"'))
    model = replace(model, suppressed=frozenset(model.tokenizer.encode('"a')))
    assert end_of(ChatSession(model), request).text.strip() == '"aa"'


@pytest.mark.parametrize("mode", Mode)
def test_a_models_own_stop_string_ends_a_reply_as_its_end_token_does(mode: Mode) -> None:
    model = shared_llama()
    request = replace(ask(PROMPT, temperature=0.9, max_tokens=20), draft=settings_of(mode))
    whole = end_of(ready_session(model), request).text
    stop = whole[5:8]
    kept = replace(model, stop=(stop, "never there"))
    events: list[GenerationEvent] = list(ready_session(kept).generate(request))
    end = events[-1]
    assert isinstance(end, ReplyEnd)
    assert (end.text, end.finish_reason, end.stop) == (whole[: whole.index(stop)], FinishReason.EOS, "")
    assert "".join(each.text for each in events if isinstance(each, TokenEvent)) + end.trailing_text == end.text
    own = end_of(ready_session(kept), replace(request, sampling=replace(request.sampling, stop=(stop,))))
    assert (own.token_ids, own.finish_reason, own.stop) == (end.token_ids, FinishReason.STOP_STRING, stop)
