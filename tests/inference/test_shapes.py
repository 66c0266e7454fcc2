"""An answer with a shape has it, and is the same with drafts as without."""

import json
import random
import re
from dataclasses import replace
from itertools import product
from typing import Any

import jsonschema
import pytest

from rdchat.errors import InvalidSettingError, ModelError, ShapeRefusedError
from rdchat.inference.api import (
    MAX_SOURCE_BYTES,
    SHAPE,
    AnswerShape,
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    ShapeKind,
)
from rdchat.inference.auto.auto_drafter import AutoDrafter, AvailableDrafters
from rdchat.inference.decoding.reply import ReplyJob, thought_end
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.auto.automatic_replies import RandomPlanner, state_of
from tests.inference.fakes import ScriptedDrafter, ask, reply_end, token_events
from tests.inference.plain_replies import SAMPLINGS
from tests.inference.shape_models import ALPHABET, json_model, matcher_of, schema, thinking_model

pytestmark = pytest.mark.across_rows


def shaped(source: dict[str, Any], **sampling: object) -> GenerationRequest:
    return replace(ask(max_tokens=160, **sampling), shape=AnswerShape(ShapeKind.SCHEMA, json.dumps(source)))


def reply(model: LoadedModel, request: GenerationRequest, mode: Mode) -> ReplyEnd:
    end = reply_end(ChatSession(model).generate(replace(request, draft=DraftSettings(mode))))
    assert end.mode_reason is None
    return end


def scripted(model: LoadedModel, request: GenerationRequest, tokens: list[int], width: int = 3) -> list[Any]:
    """Return the events of a reply that is drafted by beams, some of which leave the shape."""
    job = ReplyJob.fresh(model, model.encode_request(request)[0], request)
    assert request.shape is not None
    begun = request.messages[-1].content if request.continue_last else ""
    matcher = matcher_of(model, request.shape, thought_end(model, job.prompt), begun)
    job = replace(job, matcher=matcher)
    return list(ReplyIterator(job, ScriptedDrafter([*tokens, *[5] * 200], width, 5)))


def in_every_mode(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    """Return the reply without drafts, and check that drafts change nothing."""
    plain = reply(model, request, Mode.OFF)
    found = [reply(model, request, mode) for mode in (Mode.LOOKUP, Mode.AUTO)]
    found += [scripted(model, request, list(plain.token_ids), width)[-1] for width in (1, 3)]
    assert [end.token_ids for end in found] == [plain.token_ids] * 4
    return plain


@pytest.mark.slow
@pytest.mark.parametrize("number", range(15))
def test_answers_fit_their_schema_in_every_mode(number: int) -> None:
    model = json_model()
    source = schema(random.Random(number))
    jsonschema.Draft202012Validator.check_schema(source)
    for temperature in (0, 0.9):
        request = shaped(source, seed=number, temperature=temperature, top_p=1)
        plain = in_every_mode(model, request)
        assert plain.finish_reason is FinishReason.EOS
        jsonschema.validate(json.loads(plain.text), source)


@pytest.mark.parametrize("sampling", share(SAMPLINGS, 4))
def test_samplings_look_at_what_the_shape_allows(sampling: dict[str, float]) -> None:
    """A filter may keep only tokens that the shape forbids, unless it looks at the others alone."""
    model = json_model()
    request = shaped(schema(random.Random(3)), seed=3, **sampling)
    plain = in_every_mode(model, request)
    jsonschema.validate(json.loads(plain.text), json.loads(request.shape.source if request.shape else ""))


@pytest.mark.parametrize("family", share(["gemma3", "qwen3_next"], 2))
def test_other_families_have_shapes_too(family: str) -> None:
    """Sliding windows, and recurrent state."""
    in_every_mode(json_model(family), shaped(schema(random.Random(5)), seed=5, temperature=0.9))


def test_what_the_shape_forces_is_drafted() -> None:
    source = {
        "type": "object",
        "properties": {"a very long name": {"type": "boolean"}},
        "required": ["a very long name"],
    }
    request = shaped({**source, "additionalProperties": False})
    plain = reply(json_model(), request, Mode.OFF)
    drafted = reply(json_model(), request, Mode.LOOKUP)
    assert drafted.token_ids == plain.token_ids
    assert drafted.statistics.target_calls < plain.statistics.target_calls / 2
    events = scripted(json_model(), request, list(plain.token_ids))
    assert SHAPE in {event.drafter for event in token_events(events)}


def test_auto_does_not_say_that_what_the_shape_forces_was_copied_from_the_chat() -> None:
    model = json_model()
    request = replace(ask(max_tokens=80), shape=AnswerShape(ShapeKind.REGEX, "one way to say it"))
    assert request.shape is not None
    prompt = model.encode_chat(request.messages)
    state = state_of(model, AvailableDrafters())
    state.planner = RandomPlanner(state.costs, (Mode.LOOKUP,), seed=0)
    matcher = matcher_of(model, request.shape)
    job = replace(ReplyJob.fresh(model, prompt, request), mode=Mode.AUTO, matcher=matcher)
    *events, end = ReplyIterator(job, AutoDrafter(state, job))
    assert {event.drafter for event in token_events(events)} == {"", SHAPE}
    assert isinstance(end, ReplyEnd)
    assert end.statistics.from_chat == 0


@pytest.mark.parametrize(
    "source",
    [
        '{"type": "no type"}',
        '{"$ref": "#/missing"}',
        '{"$ref": "https://example.org/schema.json"}',
        json.dumps({"enum": list(range(60_000))}),
        json.dumps({"not": {"type": "string"}}),
        json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json.dumps({"type": "object", "properties": {"a": False}, "required": ["a"]}),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_in_a_line(source: str) -> None:
    with pytest.raises((ShapeRefusedError, InvalidSettingError)) as refusal:
        reply(json_model(), replace(ask(), shape=AnswerShape(ShapeKind.SCHEMA, source)), Mode.OFF)
    assert "\n" not in refusal.value.message


def test_a_wrong_regular_expression_is_explained_without_the_compilers_drawing() -> None:
    with pytest.raises(ShapeRefusedError) as refusal:
        reply(json_model(), replace(ask(), shape=AnswerShape(ShapeKind.REGEX, "a[")), Mode.OFF)
    assert refusal.value.message == "The regular expression cannot be used: unclosed character class."
    assert refusal.value.hint == "Correct it, or make it simpler."


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (ShapeKind.SCHEMA, "[1]"),
        (ShapeKind.SCHEMA, "{"),
        (ShapeKind.SCHEMA, '{"items":' * 100 + "{}" + "}" * 100),
        (ShapeKind.SCHEMA, '{"items":' * 100_000 + "{}" + "}" * 100_000),
        (ShapeKind.REGEX, ""),
        (ShapeKind.GRAMMAR, "a" * (MAX_SOURCE_BYTES + 1)),
    ],
)
def test_sources_are_limited(kind: ShapeKind, source: str) -> None:
    with pytest.raises(InvalidSettingError):
        AnswerShape(kind, source)


def begun(request: GenerationRequest, text: str) -> GenerationRequest:
    """Return a request to continue an answer."""
    return replace(request, messages=(*request.messages, ChatMessage(Role.ASSISTANT, text)), continue_last=True)


@pytest.mark.parametrize(("number", "temperature"), share(product(range(6), [0, 0.9]), 12))
def test_an_answer_that_is_continued_has_the_shape_in_every_mode(number: int, temperature: float) -> None:
    """Wherever it was cut, also inside what is one token for the model."""
    model = json_model()
    source = schema(random.Random(number))
    request = shaped(source, seed=number, temperature=temperature, top_p=1)
    whole = reply(model, request, Mode.OFF).text
    for length in {1, 2, len(whole) // 2, len(whole) - 1} & {*range(1, len(whole))}:
        continued = begun(request, whole[:length])
        plain = in_every_mode(model, continued)
        jsonschema.validate(json.loads(whole[:length] + plain.text), source)


@pytest.mark.parametrize("text", ["hello", '{"b', "{ ", "{\x07"])
def test_a_beginning_that_does_not_fit_is_refused(text: str) -> None:
    """The last one has a character without a token: what came before it was taken for the whole beginning."""
    source = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    with pytest.raises(ShapeRefusedError, match="The beginning of the answer does not fit the JSON schema"):
        reply(json_model(), begun(shaped(source), text), Mode.OFF)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "control"), [(4, 0), (4, 1), (1, 2)])
def test_the_shape_begins_after_the_thought_of_a_model_that_always_thinks(number: int, control: int) -> None:
    """Whether the marker that ends it is a text, a control token, or a text and a control token."""
    model = thinking_model(control)
    source = schema(random.Random(number))
    request = shaped(source, seed=number, temperature=0.9, top_p=1)
    plain = in_every_mode(model, request)
    _check_thinking(plain.text, source)
    end = plain.text.index("</think>")
    for length in (4, end, end + 8, len(plain.text) - 1):  # inside the thought, and behind it
        continued = begun(request, plain.text[:length])
        again = reply(model, continued, Mode.OFF)
        _check_thinking(plain.text[:length] + again.text, source)
        assert reply(model, continued, Mode.LOOKUP).token_ids == again.token_ids


def _check_thinking(text: str, source: dict[str, Any]) -> None:
    thought, _, answer = text.partition("</think>")
    assert thought
    jsonschema.validate(json.loads(answer), source)


def test_a_thought_does_not_spell_the_control_token_that_ends_it() -> None:
    """What follows it would be taken for the answer, and it would have no shape."""
    model = thinking_model(1)
    matcher = matcher_of(model, AnswerShape(ShapeKind.JSON), "</think>")
    for token in [ALPHABET.index(character) for character in "so < / think, </think"]:
        matcher.take(token)
    mask = matcher.mask()
    assert mask is not None
    allowed = mask[0]
    assert not allowed[ALPHABET.index(">")]
    assert allowed[ALPHABET.index(",")]


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree = {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
        "more": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}}}  # fmt: skip
    end = reply(json_model(), shaped(tree, temperature=0.9), Mode.LOOKUP)
    assert end.finish_reason in {FinishReason.EOS, FinishReason.LENGTH}


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.LOOKUP, Mode.AUTO])
def test_a_shape_that_fails_in_the_middle_ends_the_reply_with_an_error_and_spoils_nothing(mode: Mode) -> None:
    """An expression may compile fast and need too many states while it is followed."""
    session = ChatSession(json_model())
    fine = shaped(schema(random.Random(3)), seed=3)
    hostile = replace(ask(), shape=AnswerShape(ShapeKind.REGEX, "(?:a?){5000}a{5000}"), draft=DraftSettings(mode))
    for _ in range(2):
        with pytest.raises(ShapeRefusedError) as refusal:
            list(session.generate(hostile))
        assert "cannot be followed any further" in refusal.value.message
        assert not re.search("[\n<]", refusal.value.message)
    end = reply_end(session.generate(replace(fine, draft=DraftSettings(mode))))
    assert end.token_ids == reply(json_model(), fine, Mode.OFF).token_ids


@pytest.mark.slow
def test_every_kind_of_end_of_an_expression_is_drafted_over() -> None:
    """Drafts go beyond the end of the expression, and the matcher comes back from there."""
    for number in range(12):
        source = random.Random(number).choice(["(yes|no)!", "a{1,3}", "[a-c]{2}(x|yz)?", "true|null|ab"])
        request = replace(ask(max_tokens=40, seed=number, temperature=0.9), shape=AnswerShape(ShapeKind.REGEX, source))
        plain = in_every_mode(json_model(), request)
        assert plain.finish_reason is FinishReason.EOS
        assert re.fullmatch(source, plain.text)


@pytest.mark.parametrize(("fits", "thinks"), share(product([True, False], [False, True]), 2))
def test_a_finished_answer_is_checked_for_what_the_grammar_does_not_enforce(thinks: bool, fits: bool) -> None:
    model = thinking_model(1) if thinks else json_model()
    source = {"type": "object", "properties": {}, "additionalProperties": False}
    shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(source), json.dumps({"": {"not": {} if not fits else False}}))
    request = replace(ask(max_tokens=400, temperature=0.9, top_p=1), shape=shape)
    if thinks:  # the seed of a thought that ends
        seeds = (replace(request, seed=n, shape=replace(shape, unenforced="")) for n in range(20))
        request = replace(request, seed=next(r.seed for r in seeds if "</think>" in reply(model, r, Mode.OFF).text))
    if fits:
        assert reply(model, request, Mode.LOOKUP).text.endswith("{}")
        return
    with pytest.raises(ModelError, match="The model's answer does not fit the JSON schema"):
        reply(model, request, Mode.LOOKUP)


def test_an_answer_with_a_number_that_no_message_may_have_is_checked_too() -> None:
    request = replace(ask(max_tokens=20), shape=AnswerShape(ShapeKind.REGEX, "1e999", json.dumps({"": False})))
    with pytest.raises(ModelError, match="The model's answer does not fit the JSON schema"):
        reply(json_model(), request, Mode.OFF)


def test_an_answer_that_was_cut_off_is_not_checked() -> None:
    source = {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]}
    shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(source), json.dumps({"": False}))
    request = replace(ask(max_tokens=2), shape=shape)
    assert reply(json_model(), request, Mode.OFF).finish_reason is FinishReason.LENGTH
