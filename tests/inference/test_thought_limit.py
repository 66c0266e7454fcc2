"""What a reply may say: the limit of its thought, suppressed tokens, and a thought that was begun; in every mode."""

import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import (
    THINK,
    AnswerShape,
    ChatMessage,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Mode,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
    ShapeKind,
    openings,
    own_markers,
    split_thoughts,
)
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.decoding.thought_limit import ThoughtLimit
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, END, ask, reply_end, shared_family, shared_llama, token_events
from tests.inference.prompts.folders import changed, with_template
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.shape_models import JsonPrompts, ThinkingTokenizer, json_model, thinking_model

UNDRAFTED = settings_of(Mode.OFF)
DRAFTED = [mode for mode in Mode if mode is not Mode.OFF]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


class SmallTokenizer(ThinkingTokenizer):
    """Spells its marker with the letters that are left, or has a token for it."""

    def __init__(self, spelled: dict[str, str]) -> None:
        self.alphabet = [spelled.get(letter, letter) for letter in ALPHABET]


@cache
def thinker(control: int) -> LoadedModel:
    """Return a small model of the drafters' vocabulary that always thinks; see `thinking_model`."""
    tokenizer = SmallTokenizer(
        {"j": "<", "q": "</", "z": "think", "x": ">"} | ({"v": "</think>"} if control == 1 else {})
    )
    prompts = JsonPrompts(tokenizer)
    prompts.control = {tokenizer.alphabet.index(mark): mark for mark in [[], ["</think>"], ["</", ">"]][control]}
    return replace(shared_llama(), tokenizer=tokenizer, prompts=prompts)  # type: ignore[arg-type]


def limited(limit: int | None, **sampling: object) -> GenerationRequest:
    return replace(ask(**{"max_tokens": 24, "temperature": 0.9, "top_p": 1.0, **sampling}), thinking_tokens=limit)


def reply(model: LoadedModel, request: GenerationRequest, mode: Mode = Mode.OFF) -> ReplyEnd:
    session = ready_session(model) if mode in {Mode.SPECULATIVE, Mode.DRAFTER, Mode.AUTO} else ChatSession(model)
    return reply_end(session.generate(replace(request, draft=settings_of(mode))))


@pytest.mark.parametrize(("control", "limit", "temperature"), [(0, 9, 0.9), (1, 0, 0), (2, 14, 0.9)])
def test_a_thought_is_closed_at_its_limit_in_every_mode(control: int, limit: int, temperature: float) -> None:
    model = thinker(control)
    free = reply(model, limited(None, seed=control + 3, temperature=temperature))
    request = limited(limit, seed=control + 3, temperature=temperature)
    plain = reply(model, request)
    thought, marker, _ = plain.text.partition("</think>")
    assert "</think>" not in free.text[: len(thought)]
    assert marker
    assert plain.token_ids[:limit] == free.token_ids[:limit]
    assert "".join(map(model.token_text, plain.token_ids[:limit])) == thought
    for mode in DRAFTED:
        assert reply(model, request, mode).token_ids == plain.token_ids


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    free = reply(thinker(1), limited(None, seed=2))
    for mode in (Mode.OFF, Mode.AUTO):
        assert reply(thinker(1), limited(61, seed=2), mode).token_ids == free.token_ids


@pytest.mark.parametrize("control", [0, 2])
def test_the_format_begins_behind_the_limited_thought(control: int) -> None:
    model = thinking_model(control)
    shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(SCHEMA))
    request = replace(limited(5, seed=4, max_tokens=70), shape=shape)
    plain = reply(model, request)
    thought, _, answer = plain.text.partition("</think>")
    assert len(thought) <= 10
    if plain.finish_reason is FinishReason.EOS:
        jsonschema.validate(json.loads(answer), SCHEMA)
    for mode in (Mode.LOOKUP,):
        assert reply(model, request, mode).token_ids == plain.token_ids


def test_a_reply_that_goes_on_counts_the_thought_that_it_has() -> None:
    model = thinker(1)
    request = limited(12, seed=5)
    whole = reply(model, request)
    begun = "".join(map(model.token_text, whole.token_ids[:7]))
    messages = (*request.messages, ChatMessage(Role.ASSISTANT, begun))
    rest = reply(model, replace(request, messages=messages, continue_last=True))
    assert (begun + rest.text).index("</think>") == whole.text.index("</think>")


def test_a_stop_string_ends_no_reply_in_the_marker() -> None:
    end = reply(thinker(0), limited(6, seed=3, stop=("</thi",)))
    assert end.finish_reason is not FinishReason.STOP_STRING
    assert "</think>" in end.text


@pytest.mark.parametrize(
    ("marker", "close"), [(each.marker, each.close) for each in openings() if "<|" not in each.marker][:3]
)
def test_a_thought_that_the_model_opens_is_closed(marker: str, close: str) -> None:
    """Ordinary words before a marker, or a marker in the answer, begin no thought."""
    model = json_model()
    rules = ThoughtLimit(model, 3)
    for token in model.prompts.encode_text(f"\n{marker}xy"):
        assert rules.allowed() is None
        rules.take(token)
    assert rules.is_free(0)
    assert not rules.is_free(1)
    rules.take(model.prompts.encode_text("z")[0])
    forced = "".join(map(model.token_text, rules.forced()))
    assert forced == close
    for token in rules.forced():
        rules.take(token)
    assert rules.is_free(1000)
    rules.back(len(close))
    assert "".join(map(model.token_text, rules.forced())) == close
    parts = split_thoughts(f"\n{marker}xyz{close}d")
    assert (parts.thought, parts.answer) == ("xyz", "d")
    words = ThoughtLimit(model, 3)
    words.take(model.prompts.encode_text("w")[0])
    assert words.is_free(1000)


def test_a_marker_that_the_model_has_begun_is_only_completed() -> None:
    model = thinker(0)
    rules = ThoughtLimit(model, 3, "</think>")
    for token in (1, 2, ALPHABET.index("q")):
        rules.take(token)
    assert "".join(map(model.token_text, rules.forced())) == "think>"


def test_a_marker_after_a_backtick_would_be_quoted() -> None:
    model = json_model()
    rules = ThoughtLimit(model, 2, "</think>")
    for token in model.prompts.encode_text("x`"):
        rules.take(token)
    assert "".join(map(model.token_text, rules.forced())) == "\n</think>"


def test_a_limit_below_0_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="thinking-tokens"):
        limited(-1)


PROMPT = "abcabcabc"
FILTERS = {"temperature": 0.9, "top_p": 0.9, "top_k": 6, "min_p": 0.01, "repetition_penalty": 1.2}


def without(model: LoadedModel, request: GenerationRequest, suppressed: set[int]) -> list[int]:
    """Return what the network writes most likely, of all but some tokens: mlx-lm's own cache, no code of ours."""
    cache = make_prompt_cache(model.network)
    tokens = model.encode_chat(request.messages)
    written = list[int]()
    while len(written) < request.sampling.max_tokens and END not in written:
        logits = model.network(mx.array([tokens]), cache=cache)[0, -1].tolist()
        allowed = [-float("inf") if token in suppressed else each for token, each in enumerate(logits)]
        tokens = [max(range(len(allowed)), key=allowed.__getitem__)]
        written += tokens
    return written


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "gpt_oss"])
def test_every_mode_writes_what_the_network_does_without_them(name: str) -> None:
    model = shared_family(name)
    request = ask(PROMPT, temperature=0, max_tokens=10)
    usual = reply(model, request).token_ids
    suppressed = {*usual[:3], usual[-1]} | {-1, len(ALPHABET), 10**30}
    kept = replace(model, suppressed=frozenset(suppressed))
    expected = tuple(without(model, request, suppressed))
    assert expected != usual
    for mode in Mode:
        end = reply(kept, request, mode)
        assert end.token_ids == expected, mode


@pytest.mark.parametrize(("name", "sampling"), [("llama", FILTERS), ("qwen3_next", {"temperature": 0.9, "top_p": 1.0})])
def test_a_sampled_reply_has_none_of_them_in_any_mode(name: str, sampling: dict[str, float]) -> None:
    model = shared_family(name)
    request = ask(PROMPT, max_tokens=12, **sampling)
    suppressed = frozenset(reply(model, request).token_ids)
    kept = replace(model, suppressed=suppressed)
    replies = {mode: reply(kept, request, mode).token_ids for mode in Mode}
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
    assert reply(model, request).text.strip() == '"aa"'


@pytest.mark.parametrize("mode", Mode)
def test_a_models_own_stop_string_ends_a_reply_as_its_end_token_does(mode: Mode) -> None:
    model = shared_llama()
    request = replace(ask(PROMPT, temperature=0.9, max_tokens=20), draft=settings_of(mode))
    whole = reply(model, request, mode).text
    stop = whole[5:8]
    kept = replace(model, stop=(stop, "never there"))
    events: list[GenerationEvent] = list(ready_session(kept).generate(request))
    end = reply_end(events)
    assert (end.text, end.finish_reason, end.stop) == (whole[: whole.index(stop)], FinishReason.EOS, "")
    assert "".join(each.text for each in token_events(events)) + end.trailing_text == end.text
    own = reply(kept, replace(request, sampling=replace(request.sampling, stop=(stop,))), mode)
    assert (own.token_ids, own.finish_reason, own.stop) == (end.token_ids, FinishReason.STOP_STRING, stop)


TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}ENDING"
ENDINGS = ("<think>\n", "<think>", "<think>\n\n</think>\n\n", "")


def thinks_with_tokens(tokenizer: dict[str, Any]) -> None:
    """Make the markers of thoughts tokens in place of two words."""
    vocabulary = tokenizer["model"]["vocab"]
    merges = tokenizer["model"]["merges"]
    for word, marker, parts in (("hello", "<think>", ["hell", "o"]), ("12", "</think>", ["1", "2"])):
        merges.remove(parts)
        number = vocabulary[marker] = vocabulary.pop(word)
        usual = tokenizer["added_tokens"][0]
        tokenizer["added_tokens"].append(usual | {"id": number, "content": marker})


@pytest.fixture(scope="module")
def thinkers(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    """Models that think, by what their chat template writes before a reply."""
    models = {}
    for ending in ENDINGS:
        place = tmp_path_factory.mktemp("thinker") / "model"
        folder = with_template(small_model, place, TEMPLATE.replace("ENDING", f"|{ending}"))
        models[ending] = load_model(changed(small_model, folder, "tokenizer.json", thinks_with_tokens), "float32")
    return models


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_first_event_tells_that_the_reply_begins_in_a_thought(
    thinkers: dict[str, LoadedModel], ending: str
) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=1)
    asked = GenerationRequest((ChatMessage(Role.USER, "Hi"),), sampling, draft=UNDRAFTED)
    first, *_ = ChatSession(thinkers[ending]).generate(asked)
    assert isinstance(first, PrefillProgress)
    assert first.in_thought is (ending in ENDINGS[:2])


HM = "<think>\nhm\n</think>\n\nThe dog"
DOG = "The dog"
# The beginning of a reply, its thought and answer, and whether that is known.
BEGUN = (
    (DOG, "", DOG, None),
    ("The <think> dog", "", "The <think> dog", None),
    (HM, "hm", DOG, None),
    (f" \n{HM}", "hm", DOG, None),
    ("<think></think>The dog", "", DOG, None),
    ("<think>\nhm", "hm", "", None),
    ("<think>\nhm", "hm", "", ()),
    (HM, "hm", DOG, ((22, 29),)),
)
# As a template wrote the beginning.
BEGUN_BY_TEMPLATE = (
    ("hm", "hm", "", ()),
    ("hm\n</think>\n\nThe dog", "hm", DOG, None),
    ("hm</think>The dog", "hm", DOG, ((10, 17),)),
)
SWITCHED_OFF = [(ENDINGS[2], BEGUN_BY_TEMPLATE[0]), (ENDINGS[2], BEGUN_BY_TEMPLATE[2])]


@pytest.mark.parametrize(
    ("ending", "begun"), [*product(ENDINGS, BEGUN), *product(ENDINGS[:2], BEGUN_BY_TEMPLATE), *SWITCHED_OFF]
)
def test_a_reply_goes_on_in_its_own_thought_or_in_none(
    thinkers: dict[str, LoadedModel], ending: str, begun: tuple[str, str, str, Any]
) -> None:
    text, thought, answer, spans = begun
    model = thinkers[ending]
    # Markers that the model wrote are known; a client's are not.
    own = () if spans is None else own_markers(text, begun="<think>" not in text)
    message = ChatMessage(Role.ASSISTANT, text, own, spans)
    params = SamplingParams(temperature=1.0, max_tokens=2)
    messages = (ChatMessage(Role.USER, "Hi"), message)
    asked = GenerationRequest(messages, params, seed=2, draft=UNDRAFTED, continue_last=True)
    ids, _ = model.encode_request(asked)
    written = model.decode(ids).partition("|")[2]
    assert written.endswith(text)
    assert written.removesuffix(text).count("<think>") + text.lstrip().startswith("<think>") <= 1
    told = split_thoughts(written)
    assert (told.thought, told.answer, told.open) == (thought, answer, not answer)
    markers = [token for token in ids if token in model.prompts.control and "think" in model.prompts.control[token]]
    typed = text.count("The <think>")
    assert len(markers) == written.count("<think>") + written.count("</think>") - typed
    events = token_events(ChatSession(model).generate(asked))
    assert {piece.is_thought for event in events for piece in event.pieces} == {not answer}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_thought_that_is_sent_beside_the_answer_stands_before_it(
    thinkers: dict[str, LoadedModel], ending: str
) -> None:
    message = ChatMessage(Role.ASSISTANT, "The dog", thought="hm </think>")
    messages = (ChatMessage(Role.USER, "Hi"), message)
    asked = GenerationRequest(messages, SamplingParams(max_tokens=2), draft=UNDRAFTED, continue_last=True)
    model = thinkers[ending]
    ids, _ = model.encode_request(asked)
    assert model.decode(ids).partition("|")[2] == "<think>\nhm </think>\n</think>\n\nThe dog"
    assert [model.prompts.control[each] for each in ids if each in model.prompts.control] == list(THINK)
    events = token_events(ChatSession(model).generate(asked))
    assert not any(piece.is_thought for event in events for piece in event.pieces)
