"""Answers in a shape on the real default model: they have it, and are the same with every drafter."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from rdchat.inference.api import AnswerShape, DraftSettings, FinishReason, Mode, ShapeKind
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.e2e.model_replies import reply, request

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 10},
        "coast": {"type": "boolean"},
    },
    "required": ["city", "coast"],
    "additionalProperties": False,
}
COLOURS: dict[str, Any] = {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 4}


@pytest.mark.parametrize(
    ("schema", "temperature", "modes"),
    [(CITY, 0.9, (Mode.LOOKUP, Mode.DRAFTER)), (COLOURS, 0, (Mode.SPECULATIVE, Mode.AUTO))],
    ids=["object", "list"],
)
def test_answers_have_their_shape_in_every_mode(
    model: LoadedModel, schema: dict[str, Any], temperature: float, modes: tuple[Mode, ...]
) -> None:
    shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
    asked = replace(request("Describe Lisbon.", {"temperature": temperature}), shape=shape)
    asked = replace(asked, sampling=replace(asked.sampling, max_tokens=64))
    session = ChatSession(model)
    plain = reply(session, asked)
    assert plain.finish_reason is FinishReason.EOS
    jsonschema.validate(json.loads(plain.text), schema)
    for mode in modes:
        settings = DraftSettings(mode, draft_model=str(model.info.path) if mode is Mode.SPECULATIVE else None)
        drafted = reply(session, replace(asked, draft=settings))
        assert (drafted.mode, drafted.mode_reason) == (mode, None)
        assert drafted.token_ids == plain.token_ids
