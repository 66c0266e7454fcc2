"""What of a tool's result becomes text, and what does not."""

import base64
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat.tools.streams import parse_messages
from rdchat.tools.tool_results import result_fields

_PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40).decode()
_LEAVES = some.text(min_size=1) | some.integers() | some.booleans() | some.none()
_JSON = some.recursive(
    _LEAVES, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3)
)


def _text(*content: dict[str, Any], structured: Any = None) -> str:
    text: str = result_fields({"content": list(content), "structuredContent": structured})["text"]
    return text


def _leaves(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for each in inner for leaf in _leaves(each)]


@given(some.lists(some.text(), max_size=2), some.dictionaries(some.text(), _JSON, max_size=3))
def test_each_text_and_each_value_of_a_result_reaches_the_model(texts: list[str], structured: dict[str, Any]) -> None:
    text = _text(*({"type": "text", "text": each} for each in texts), structured=structured)
    assert all(each in text for each in texts)
    for leaf in _leaves(structured):
        assert json.dumps(leaf, ensure_ascii=False) in text or (isinstance(leaf, str) and leaf in text)


def test_what_a_text_has_already_is_not_added_again() -> None:
    assert _text({"type": "text", "text": "A file."}, structured={"content": "A file."}) == "A file."
    assert _text({"type": "text", "text": '{"rows": [1]}'}, structured={"rows": [1]}) == '{"rows": [1]}'
    assert _text({"type": "text", "text": "1 row"}, structured={"rows": 1}) == '1 row\n{"rows": 1}'
    block = {"type": "image", "data": _PNG, "mimeType": "image/png"}
    assert _text(block, structured={"content": [block]}) == "[image 1]"


@pytest.mark.parametrize(
    "written",
    [
        _PNG,
        f"data:image/png;base64,{_PNG}",
        _PNG.replace("/", "\\/"),
        base64.encodebytes(base64.b64decode(_PNG)).decode(),
    ],
    ids=["bare", "address", "escaped", "lines"],
)
def test_no_picture_becomes_text(written: str) -> None:
    text = _text(
        {"type": "text", "text": f"Before {written} behind"}, structured={"picture": {"data": written}, "n": 1}
    )
    assert text.startswith("Before [image]")
    assert "behind" in text
    assert '"n": 1' in text
    assert len(text) < 250


def test_a_word_that_looks_like_the_beginning_of_a_picture_stays() -> None:
    assert _text({"type": "text", "text": "/9j/ and iVBORw0KGgo begin pictures"}).startswith("/9j/ and iVBORw0KGgo")


def test_the_longest_answers_take_little_memory() -> None:
    lists = "[" + "[]," * 2_000_000 + "[]]"
    picture = "iVBORw0KGgo" + "A" * 4_000_000
    tracemalloc.start()
    try:
        assert not parse_messages(f'{{"id": 1, "result": {lists}}}'.encode())
        assert _text({"type": "text", "text": picture}) == "[image]"
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
