"""The limit of a thought: the reply as without it up to there, the model's own marker, and an answer; in every mode."""

import json
from dataclasses import replace
from functools import cache

import jsonschema
import pytest

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import (
    AnswerShape,
    ChatMessage,
    FinishReason,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    ShapeKind,
    openings,
    split_thoughts,
)
from rdchat.inference.decoding.reply_matcher import ThoughtLimit
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, ask, shared_llama
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.shape_models import JsonPrompts, ThinkingTokenizer, json_model, thinking_model

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
    prompts = JsonPrompts(tokenizer)  # type: ignore[arg-type]
    prompts.control = {tokenizer.alphabet.index(mark): mark for mark in [[], ["</think>"], ["</", ">"]][control]}
    return replace(shared_llama(), tokenizer=tokenizer, prompts=prompts)  # type: ignore[arg-type]


def limited(limit: int | None, **sampling: object) -> GenerationRequest:
    return replace(ask(**{"max_tokens": 60, "temperature": 0.9, "top_p": 1.0, **sampling}), thinking_tokens=limit)


def reply(model: LoadedModel, request: GenerationRequest, mode: Mode = Mode.OFF) -> ReplyEnd:
    session = ready_session(model) if mode in {Mode.SPECULATIVE, Mode.DRAFTER, Mode.AUTO} else ChatSession(model)
    *_, end = session.generate(replace(request, draft=settings_of(mode)))
    assert isinstance(end, ReplyEnd)
    return end


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
    request = replace(limited(5, seed=4, max_tokens=150), shape=shape)
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


@pytest.mark.parametrize("opening", [each for each in openings() if "<|" not in each.marker][:3])
def test_a_thought_that_the_model_opens_is_closed(opening: object) -> None:
    """Ordinary words before a marker, or a marker in the answer, begin no thought."""
    model = json_model()
    marker = getattr(opening, "marker")  # noqa: B009
    close = opening.close
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
