"""Hostile shapes end in the watched child process: each is refused in one line, or harms nothing, in bounded time."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter

import pytest

from rdchat.errors import ModelError, ShapeRefusedError
from rdchat.inference.api import AnswerShape, ShapeKind
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess

pytestmark = pytest.mark.slow
_LONGEST_S = 60  # far above the limit of a check, since other programs may hold the machine up
_DOUBLING = {f"d{n}": {"allOf": [{"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}] * 2} for n in range(30)}
_CHAIN = {f"d{n}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(2000)}
REFUSED = {
    "a loop of references": (
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ),
    "references that double": (
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/d0", "$defs": {**_DOUBLING, "d30": {"type": "string"}}}),
    ),
    "a chain of references": (  # deeper than the child's stack
        ShapeKind.SCHEMA,
        json.dumps({"$ref": "#/$defs/d0", "$defs": {**_CHAIN, "d2000": {"type": "string"}}}),
    ),
    "digits without end": (ShapeKind.SCHEMA, json.dumps({"type": "number", "multipleOf": 1e-300})),
    "deep brackets": (ShapeKind.REGEX, "(" * 100_000 + "a" + ")" * 100_000),
    "an unclosed bracket": (ShapeKind.REGEX, "("),
    "a deep grammar": (ShapeKind.GRAMMAR, "start: " + "(" * 50_000 + '"a"' + ")" * 50_000),
    "a grammar without text": (ShapeKind.GRAMMAR, "start: x\nx: x"),
}
BOUNDED = {
    "a huge list": (ShapeKind.SCHEMA, json.dumps({"enum": [f"xxx{n}" for n in range(15_000)]})),
    "many items": (ShapeKind.SCHEMA, json.dumps({"type": "array", "items": {}, "minItems": 10**9})),
    "a late letter": (ShapeKind.REGEX, "(a|b)*a(a|b){60}"),
    "nested counts": (ShapeKind.REGEX, "((a{1,100}){1,100}){1,100}"),
    "all signs": (ShapeKind.REGEX, "".join(random.Random(0).choices("()[]{}|*+?ab.\\", k=5000))),
}


@pytest.fixture(scope="module")
def process() -> Iterator[TokenizerProcess]:
    process = TokenizerProcess()
    yield process
    process.child.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_shape_is_refused_in_a_line(process: TokenizerProcess, name: str) -> None:
    began = perf_counter()
    with pytest.raises(ModelError) as refusal:
        process.check_shape(AnswerShape(*REFUSED[name]))
    assert perf_counter() - began < _LONGEST_S
    assert "\n" not in refusal.value.message
    assert len(refusal.value.message) < 400
    assert refusal.value.hint not in ("", "Try again.")
    process.check_shape(AnswerShape(ShapeKind.REGEX, "yes|no"))  # the child goes on


@pytest.mark.parametrize("name", BOUNDED)
def test_a_large_shape_is_checked_in_bounded_time(process: TokenizerProcess, name: str) -> None:
    began = perf_counter()
    with suppress(ModelError):
        process.check_shape(AnswerShape(*BOUNDED[name]))
    assert perf_counter() - began < _LONGEST_S


def test_a_pattern_without_end_is_stopped(process: TokenizerProcess) -> None:
    shape = AnswerShape(ShapeKind.SCHEMA, "{}", json.dumps({"": {"pattern": "^(a+)+$"}}))
    with pytest.raises(ShapeRefusedError, match="The JSON schema"):
        process.check_answer(shape, json.dumps("a" * 60 + "b"))
    process.check_answer(shape, json.dumps("aaa"))  # the child goes on
    with pytest.raises(ModelError, match="does not fit the JSON schema"):
        process.check_answer(shape, json.dumps("b"))
