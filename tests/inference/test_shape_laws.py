"""What holds of any shape: a reply that ends has it whole, its text is the shape's, and a way through it ends."""

import copy
import json
import random
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import AnswerShape, DraftSettings, FinishReason, GenerationRequest, Mode, ReplyEnd, ShapeKind
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.decoding.reply import ReplyJob, thought_end
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.shape_matcher import ShapeVocabulary
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree
from tests.grids import share
from tests.inference.fakes import ScriptedDrafter, ask, token_events, tree_of_beams
from tests.inference.shape_models import ALPHABET, END, json_model, matcher_of, schema, thinking_model

pytestmark = pytest.mark.across_rows
_TEXTS = some.text("ab \n", min_size=1, max_size=3)


def expressions() -> some.SearchStrategy[str]:
    """Draw expressions that force texts, leave choices, and have blanks anywhere."""
    forced = _TEXTS.map(re.escape)
    chosen = some.lists(forced, min_size=2, max_size=3).map(lambda texts: f"({'|'.join(texts)})")
    parts = forced | chosen | chosen.map(lambda part: f"{part}?") | some.just("[ab]{1,2}")
    # The sources of shapes may not be blank.
    return some.lists(parts, min_size=1, max_size=4).map("".join).filter(str.strip)


def ending_with(model: LoadedModel, ends: Collection[int]) -> LoadedModel:
    """Return a model whose replies end with any of some tokens."""
    tokenizer = copy.copy(model.tokenizer)
    tokenizer.eos_token_ids = frozenset(ends)
    return replace(model, tokenizer=tokenizer)


class Wanderer(ScriptedDrafter):
    """Offers beams of letters, also where the shape cannot go on."""

    def propose(self, root: int, limit: int) -> Draft:
        offered = [ALPHABET.index(text) for text in ("a", "b", " ", "\n", "ab")]
        length = min(self._length - 1, limit)
        beams = [[root, *self._rng.choice(offered, size=length)] for _ in range(self._width)]
        return Draft(PackedTree.pack(tree_of_beams(beams)))


def outcome(model: LoadedModel, request: GenerationRequest, mode: Mode | None = None) -> tuple[object, ...]:
    """Return tokens, text and end of a reply with a shape, or its refusal; without a mode it is drafted at random."""
    assert request.shape is not None
    try:
        if mode is None:
            job = ReplyJob.fresh(model, model.encode_request(request)[0], request)
            job = replace(job, matcher=matcher_of(model, request.shape, thought_end(model, job.prompt)))
            *events, end = ReplyIterator(job, Wanderer([], 3, 5))
        else:
            *events, end = ChatSession(model).generate(replace(request, draft=DraftSettings(mode)))
    except ShapeRefusedError as refusal:
        return (refusal.message,)
    assert isinstance(end, ReplyEnd)
    assert "".join(event.text for event in token_events(events)) + end.trailing_text == end.text
    return (end.token_ids, end.text, end.finish_reason, end.told.answer)


def asked(pattern: str, temperature: float, **sampling: Any) -> GenerationRequest:
    request = ask(temperature=temperature, top_p=1.0, **sampling)
    return replace(request, shape=AnswerShape(ShapeKind.REGEX, pattern))


@pytest.mark.parametrize(
    ("end", "pattern", "text"),
    [("ab", " abab", " abab"), ("\n", "a\nb", None), ("\n", "a( |\n)b", "a b")],
)
def test_an_end_with_a_text_neither_ends_a_shape_nor_breaks_drafts(end: str, pattern: str, text: str | None) -> None:
    """Where nothing else spells its text, the shape is refused."""
    model = ending_with(json_model(), {END, ALPHABET.index(end)})
    request = asked(pattern, 0.0)
    plain = outcome(model, request, Mode.OFF)
    refused = "The regular expression cannot be followed any further: no token of the model fits."
    assert plain == (refused,) if text is None else plain[1:3] == (text, FinishReason.EOS)
    assert outcome(model, request, Mode.LOOKUP) == outcome(model, request) == plain


@pytest.mark.slow
@settings(max_examples=60)
@given(
    pattern=expressions(),
    ends=some.sets(some.integers(0, len(ALPHABET) - 1) | some.sampled_from("ab \n").map(ALPHABET.index), max_size=3),
    temperature=some.sampled_from([0.0, 0.9]),
)
def test_any_token_may_end_replies_and_then_a_shape_is_whole_in_every_mode(
    pattern: str, ends: set[int], temperature: float
) -> None:
    """An end whose text the shape has ended the reply there, or broke the drafts; a first blank was lost."""
    model = ending_with(json_model(), {END, *ends})
    request = asked(pattern, temperature, max_tokens=30)
    plain = outcome(model, request, Mode.OFF)
    for mode in (Mode.LOOKUP, Mode.AUTO, None):
        assert outcome(model, request, mode) == plain
    if FinishReason.EOS in plain:
        assert re.fullmatch(pattern, str(plain[1]))
        assert plain[1] == plain[3]


@pytest.mark.parametrize("control", share(range(3)))
@settings(max_examples=15)
@given(pattern=expressions().map(str.lstrip), seed=some.integers(0, 99))
def test_an_answer_with_a_shape_is_whole_behind_a_thought(control: int, pattern: str, seed: int) -> None:
    model = thinking_model(control)
    request = replace(asked(f" {pattern}", 0.9, seed=seed, max_tokens=120), thinking_tokens=6)
    plain = outcome(model, request, Mode.OFF)
    assert outcome(model, request, Mode.LOOKUP) == plain
    assert FinishReason.EOS in plain
    assert re.fullmatch(f" {pattern}", str(plain[3]))


def test_a_models_own_stop_string_ends_no_shape() -> None:
    model = replace(json_model(), stop=("\n",))
    request = asked("a\nb", 0.0)
    assert outcome(model, request, Mode.OFF)[1:3] == ("a\nb", FinishReason.EOS)
    stopped = replace(request, sampling=replace(request.sampling, stop=("\n",)))
    assert outcome(model, stopped, Mode.OFF)[1:3] == ("a", FinishReason.STOP_STRING)


def walked(source: dict[str, Any], rng: random.Random) -> str:
    """Return the text of a random way through a shape's masks; after a while it takes what closes."""
    model = json_model()
    rules = ShapeVocabulary(model).rules(AnswerShape(ShapeKind.SCHEMA, json.dumps(source)))
    text = ""
    for step in range(400):
        bits = np.unpackbits(rules.allowed().view(np.uint8), bitorder="little")[: len(ALPHABET)]
        allowed = [int(token) for token in np.flatnonzero(bits)]
        closing = [token for token in allowed if token == END or set(ALPHABET[token]) <= set('"}]')]
        token = rng.choice(closing if step > 60 and closing else allowed)
        if token == END:
            return text
        text += ALPHABET[token]
        rules.take(token)
    raise AssertionError(f"no end of {source}: {text}")


@pytest.mark.parametrize("number", range(25))
def test_a_random_way_through_the_masks_of_a_schema_ends_and_fits(number: int) -> None:
    rng = random.Random(number)
    source = schema(rng)
    for _ in range(3):
        jsonschema.validate(json.loads(walked(source, rng)), source)
