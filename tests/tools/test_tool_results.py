"""A part's damage is the part's: of tools and of parts of results, the good ones count, and the others are named."""

import asyncio
import base64
import itertools
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import RdchatError
from rdchat.tools.connection import Connection
from rdchat.tools.definitions import MAX_TEXT, ServerLimits, listed_tools
from rdchat.tools.streams import parse_messages
from rdchat.tools.tool_results import result_fields
from rdchat.work.child_process import ChildProcess
from tests.tools.conftest import Start
from tests.tools.damage import ODD
from tests.tools.running import Run, hostile

READ = ("name", "description", "inputSchema", "annotations")
NEVER_READ = ("title", "icons", "outputSchema", "execution", "_meta", "x-new")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
BMP = b"BM\x8e\0\0\0\0\0\0\0\x36\0\0\0" + bytes(88)
EMPTY = {"type": "object", "properties": {}, "required": []}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "odd words"},
    {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "a:b", "text": "odd words", "blob": "AAAA"}},
    {"type": "resource_link", "uri": "a:b", "name": "odd"},
]


def _tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


def _damaged(whole: dict[str, Any], names: Iterator[str] | tuple[str, ...]) -> some.SearchStrategy[Any]:
    """Return a part that is none, or that has a field with another value, or lacks one."""
    fields = some.sampled_from([*names])
    return some.one_of(
        some.sampled_from(ODD),
        some.builds(lambda name, value: {**whole, name: value}, fields, some.sampled_from(ODD)),
        some.builds(lambda name: {key: value for key, value in whole.items() if key != name}, fields),
    )


def _with(good: list[Any], odd: Any, place: int) -> list[Any]:
    return [*good[: place % (len(good) + 1)], odd, *good[place % (len(good) + 1) :]]


@given(some.integers(0, 4), _damaged(_tool("odd"), (*READ, *NEVER_READ)), some.integers(0, 9))
def test_a_damaged_tool_takes_no_other_away_and_is_named(count: int, odd: Any, place: int) -> None:
    good = [_tool(f"good{number}") for number in range(count)]
    tools, problems = listed_tools(_with(good, odd, place))
    assert [tool for tool in tools if tool["name"].startswith("good")] == listed_tools(good)[0]
    assert len(tools) + len(problems) == count + 1
    assert all("cannot be used: " in problem for problem in problems)


@given(some.sampled_from(NEVER_READ), some.sampled_from(ODD))
def test_what_is_never_read_of_a_tool_is_not_judged(name: str, value: Any) -> None:
    assert listed_tools([_tool("a") | {name: value}]) == listed_tools([_tool("a")])


@pytest.mark.parametrize("schema", [None, [], {}, {"type": "object"}, {"type": "", "properties": [], "required": None}])
def test_an_empty_schema_is_one_without_parameters(schema: Any) -> None:
    """It always has `properties`: some servers of models refuse a request without it (osaurus-ai/osaurus#2847)."""
    (tool,), problems = listed_tools([{"name": "a", "inputSchema": schema}])
    assert ({"required": []} | tool["parameters"], problems) == (EMPTY, [])


@given(
    some.integers(0, 4),
    some.sampled_from(PARTS).flatmap(lambda part: _damaged(part, tuple(part))),
    some.integers(0, 9),
    some.sampled_from(["isError", "structuredContent", "_meta", "x-new"]),
    some.sampled_from(ODD),
)
def test_a_damaged_part_takes_no_other_away_and_is_named(
    count: int, odd: Any, place: int, name: str, value: Any
) -> None:
    words = [f"good{number}" for number in range(count)]
    good = [{"type": "text", "text": word} for word in words]
    result = result_fields({"content": _with(good, odd, place), name: value})
    lines = result["text"].split("\n")
    assert [line for line in lines if line in words] == words
    assert len(lines) > count
    assert result["is_error"] is (name == "isError" and value is True)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"structuredContent": {"rows": 4711}}, '{"rows": 4711}'),
        ({"content": None, "structuredContent": [{"id": 4711}]}, '[{"id": 4711}]'),
        ({"content": "4711"}, "4711"),
        ({"content": {"type": "text", "text": "4711"}}, "4711"),
        ({"content": ["4711", {"type": "text", "text": 4711}]}, "4711\n4711"),
        ({"toolResult": {"rows": 4711}}, '{"toolResult": {"rows": 4711}}'),
        ({"content": [], "_meta": {"a": 1}}, ""),
        ({"content": [{"type": "new", "text": "4711"}, {"id": "A7"}]}, '{"type": "new", "text": "4711"}\n{"id": "A7"}'),
        (
            {"content": [{"type": "text", "text": "4711", "id": "A7"}], "next": "B9"},
            '4711\n{"id": "A7"}\n{"next": "B9"}',
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "4711", "id": "A7"}}]},
            '[resource: a:b]\n4711\n{"id": "A7"}',
        ),
    ],
)
def test_a_result_of_another_shape_is_read(result: dict[str, Any], text: str) -> None:
    assert result_fields(result)["text"] == text


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("text/plain", b"class Boat {}", "[resource: file:///a, KIND]\nclass Boat {}"),
        ("application/x-new", "Größe\n".encode("utf-8-sig"), "[resource: file:///a, KIND]\nGröße\n"),
        ("application/pdf", b"%PDF-1.7\n%\xe2\xe3", "[resource, which cannot be shown: file:///a, KIND]"),
        ("text/plain", b"\xff\xfea\0", "[resource, which cannot be shown: file:///a, KIND]"),
        ("image/png", PNG, "[resource: file:///a, KIND]\n[image 1]"),
        ("image/bmp", BMP, "[resource: file:///a, KIND]\n[image 1]"),
    ],
)
@pytest.mark.parametrize("written", ["bare", "lines", "address"])
def test_an_embedded_file_is_its_text_or_its_image_or_is_named(kind: str, data: bytes, text: str, written: str) -> None:
    blob = base64.b64encode(data).decode()
    blobs = {"bare": blob, "lines": base64.encodebytes(data).decode(), "address": f"data:{kind};base64,{blob}"}
    resource = {"uri": "file:///a", "mimeType": kind, "blob": blobs[written]}
    result = result_fields({"content": [{"type": "resource", "resource": resource}]})
    assert result["text"] == text.replace("KIND", kind)
    assert [base64.b64decode(image) for image in result["images"]] == [data] * ("image" in kind)


def test_a_link_has_its_words() -> None:
    link = {"type": "resource_link", "uri": "file:///a.md", "name": "a.md", "title": "Notes", "description": "On boats"}
    text = result_fields({"content": [{**link, "mimeType": "text/markdown", "size": 9}]})["text"]
    assert text == "[a link, which was not followed: a.md, Notes, file:///a.md, On boats, text/markdown]"


def test_the_first_pages_of_a_list_stay_where_a_later_one_fails(start: Start) -> None:
    run = start("pages")
    assert [tool["name"] for tool in run.listed()] == ["do0", "do1"]
    assert run.problems == ["The server did not list the rest of its tools: The list is gone."]


class _Pages(Connection):
    """A connection whose server answers by hand, without a process; `reported` is what it reported last."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(hostile("pages"), {}, Mock(), ServerLimits(), Mock())
        self._answer = answer
        self.reported: dict[str, Any] = {}
        self._report = self.reported.update
        asyncio.run(self._read_tools())

    @property
    def names(self) -> list[str]:
        return [each["name"] for each in self.reported["tools"]]

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = self._answer(params)
        return given


def _pages(pages: list[list[Any]], cursors: list[str], params: dict[str, Any]) -> dict[str, Any]:
    at = cursors.index(params["cursor"]) + 1 if params else 0
    return {"tools": pages[at], **({"nextCursor": cursors[at]} if at < len(cursors) else {})}


@given(some.lists(some.integers(0, 3), min_size=1, max_size=5), some.data())
def test_all_pages_of_a_list_are_read(sizes: list[int], data: some.DataObject) -> None:
    numbers = itertools.count()
    pages = [[_tool(f"good{next(numbers)}") for _ in range(size)] for size in sizes]
    count = len(pages) - 1
    texts = some.sampled_from(["", "0", "false", "null", " ", "a", "b"])
    cursors = data.draw(some.lists(texts, unique=True, min_size=count, max_size=count))
    run = _Pages(partial(_pages, pages, cursors))
    assert run.names == [tool["name"] for page in pages for tool in page]
    assert not run.reported["problems"]


def test_a_list_ends_whatever_cursors_a_server_sends() -> None:
    cursors = itertools.count()
    # It takes an empty cursor for none; it never advances; it always has another page, the same or none.
    assert _Pages(lambda _: {"tools": [_tool("a")], "nextCursor": ""}).reported["problems"] == []
    assert _Pages(lambda _: {"tools": [_tool("a")], "nextCursor": "1"}).names == ["a"]
    for page in ([_tool("a")], []):
        run = _Pages(lambda _, page=page: {"tools": page, "nextCursor": str(next(cursors))})
        assert run.names == ["a"] * len(page)
        assert run.reported["problems"] == [
            "The server lists more than 1,000 tools or pages; the others were not read."
        ]


def test_a_later_page_that_is_damaged_takes_no_other_away() -> None:
    run = _Pages(lambda params: {"tools": 7} if params else {"tools": [_tool("a")], "nextCursor": "1"})
    assert run.names == ["a"]
    assert run.reported["problems"] == ["The server did not list the rest of its tools: its answer is not valid."]


@pytest.fixture(scope="module")
def saying(child: ChildProcess) -> Run:
    return Run(child, hostile("says"))


ANSWER = '{"jsonrpc": "2.0", "id": $ID, "result": {"content": [{"type": "text", "text": "done"}]}}'
NOTE = '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}'


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (f"[{NOTE}, {ANSWER}]", "done"),
        (f"[null, 7, {{}}, {ANSWER}]", "done"),
        (f"\ufeff{ANSWER}", "done"),
        (f"\ufeff[{ANSWER}]", "done"),
        (f"no JSON at all\n\ufeff{ANSWER}\r", "done"),
        ('{"id": $ID, "result": {"content": ["done"]}, "error": null}', "done"),
        ('{"jsonrpc": "2.0", "id": "$ID", "result": ["done"]}', '["done"]'),
        ('{"jsonrpc": "2.0", "id": $ID, "result": null}', ""),
        ('{"jsonrpc": "2.0", "id": $ID, "result": {"content": ["done \\ud83d"]}}', "done \ufffd"),
    ],
)
def test_an_answer_of_another_shape_is_read(saying: Run, line: str, text: str) -> None:
    assert saying.call(arguments=json.dumps({"line": line}))["text"] == text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('"error": {"code": -32000, "message": "The city is unknown."}', "was refused: The city is unknown"),
        ('"error": {"code": -32700, "message": ""}, "x": 1', "gave an answer that is not valid"),
        ('"error": {"code": -32700, "message": "Failed to parse the city"}', "was refused: Failed to parse the city"),
        ('"error": {"code": "E7", "message": "No", "data": {"field": "city"}}', 'was refused: No: {"field": "city"}'),
        ('"error": {"data": "Only Paris\\nand Rome"}', "was refused: Only Paris and Rome"),
        ('"error": "No"', "was refused: No"),
        ('"error": null', "gave an answer that is not valid"),
        ('"result": {"content": [{"text": "\\x"}]}', "gave an answer that is not valid"),
    ],
)
def test_a_servers_own_error_is_its_reason_and_the_server_goes_on(saying: Run, answer: str, reason: str) -> None:
    for line in (f'{{"jsonrpc": "2.0", "id": $ID, {answer}}}', f'[{{"jsonrpc": "2.0", "id": $ID, {answer}}}]'):
        with pytest.raises(RdchatError) as refused:
            saying.call(arguments=json.dumps({"line": line}))
        assert str(refused.value) == f"The tool do {reason}."
    assert saying.call(arguments=json.dumps({"line": ANSWER}))["text"] == "done"


@pytest.mark.parametrize(
    "line",
    [
        '{"result": {"content": [{"a": "\\x"}]}, "jsonrpc": "2.0", "id": $ID }',
        '{"jsonrpc": "2.0", "id": $ID, "result": {"_meta": ' + '{"a":' * 5_000 + "1" + "}" * 5_002,
    ],
)
def test_an_answer_that_cannot_be_parsed_ends_its_call(saying: Run, line: str) -> None:
    for _ in range(2):
        with pytest.raises(RdchatError, match=r"^The tool do gave an answer that is not valid\.$"):
            saying.call(arguments=json.dumps({"line": line}))


_PNG = base64.b64encode(PNG * 40).decode()
_LEAVES = some.text(min_size=1) | some.integers() | some.booleans() | some.none()
_JSON = some.recursive(
    _LEAVES, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3)
)


def _text(*content: dict[str, Any], structured: Any = None) -> str:
    text: str = result_fields({"content": list(content), "structuredContent": structured})["text"]
    return text


def _own_words(value: Any, words: list[str]) -> Any:
    """Return a value with a word of its own in each key and leaf, the shortest that there are; `words` gets them."""

    def word() -> str:
        words.append(f"{len(words):x}q")
        return words[-1]

    if isinstance(value, dict):
        return {word(): _own_words(each, words) for each in value.values()}
    return [_own_words(each, words) for each in value] if isinstance(value, list) else word()


@settings(max_examples=60)
@given(some.lists(_JSON, max_size=3), some.dictionaries(some.text(), _JSON, max_size=3), some.data())
def test_each_key_and_leaf_of_a_result_reaches_the_model(parts: list[Any], found: Any, data: some.DataObject) -> None:
    words: list[str] = []
    own = [_own_words(part, words) for part in parts]
    structured = _own_words(found, words)
    kinds = some.sampled_from([None, "text", "image", "audio", "resource_link", "bug"])
    content = [
        part | ({"type": kind} if (kind := data.draw(kinds)) else {}) if isinstance(part, dict) else part
        for part in own
    ]
    # Words that contain those of the structured content, and say nothing of its fields.
    content.append({"type": "text", "text": " ".join(f"x{word}x" for word in words)})
    text = result_fields({"content": content, "structuredContent": structured, "own": _own_words("", words)})["text"]
    assert not [word for word in words if not re.search(rf"\b{word}\b", text)]


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("Request 17 is not urgent.", {"approved": "no"}),
        ("Flights today: LH1, BA2.", {"cheapest": "BA2"}),
        ("A transfer between Ada and Bob was made.", {"from": "Bob", "to": "Ada"}),
        ("Servers: a1, b2, c3.", {"down": ["b2"]}),
        ("no", {"approved": "no"}),
        ("no rows", {"result": None}),
        ("no rows", {}),
        ('{"open": 1}', {"open": True}),
        ("b2", {"result": "b2", "more": False}),
    ],
)
def test_structured_content_beside_a_text_is_whole(text: str, structured: Any) -> None:
    written = json.dumps(structured, ensure_ascii=False)
    assert _text({"type": "text", "text": text}, structured=structured) == f"{text}\n{written}"


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ('{"rows": [1], "of": "a"}', {"of": "a", "rows": [1]}),
        ("A file.", {"result": "A file."}),
        ("5", {"result": 5}),
        ("[]", {"result": []}),
        ("A file.", {"content": "A file."}),
    ],
)
def test_structured_content_that_is_a_text_again_is_left_out(text: str, structured: Any) -> None:
    assert _text({"type": "text", "text": text}, structured=structured) == text


def test_a_picture_is_not_there_again_as_structured_content() -> None:
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


def test_a_long_result_is_cut_with_a_note() -> None:
    text = _text({"type": "text", "text": "x" * 300_000})
    assert text.startswith("x" * MAX_TEXT + "\n[Cut by rdchat: the result has 300,000 characters")


def test_images_are_checked_and_nothing_is_fetched() -> None:
    images = [{"type": "image", "data": data} for data in (_PNG, "aGVsbG8=", "not base64!", *[_PNG] * 9)]
    link = {"type": "resource_link", "name": "etc", "uri": "file:///etc/passwd"}
    result = result_fields({"content": [*images, link]})
    assert len(result["images"]) == 8
    lines = result["text"].splitlines()
    assert lines.count("[image, which cannot be shown]") == 4
    assert lines[-1] == "[a link, which was not followed: etc, file:///etc/passwd]"


HALVES = some.text(some.sampled_from('a"\\u/\ud83d\ude00\udc00😀') | some.characters(exclude_categories=()), max_size=9)


@settings(max_examples=40)
@given(
    some.recursive(HALVES | some.integers(0, 9), lambda inner: some.lists(inner) | some.dictionaries(HALVES, inner)),
    some.booleans(),
)
def test_half_a_character_damages_itself_alone(value: Any, escaped: bool) -> None:
    """As an escape it is one U+FFFD; as bytes that are no UTF-8, each wrong byte is one."""

    def whole(part: Any) -> Any:
        if isinstance(part, str):
            units = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return units if escaped else part.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if isinstance(part, dict):
            return {whole(name): whole(each) for name, each in part.items()}
        return [whole(each) for each in part] if isinstance(part, list) else part

    line = json.dumps({"id": 1, "result": {"content": value}}, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    (message,) = parse_messages(line)
    assert message.model_dump()["result"] == {"content": whole(value)}


def test_a_byte_that_is_no_text_damages_itself_alone() -> None:
    (message,) = parse_messages(b'{"id": 1, "result": {"tools": [{"name": "a\xff"}, {"name": "\xc3\xa9\xe2\x82"}]}}')
    assert message.model_dump()["result"] == {"tools": [{"name": "a\ufffd"}, {"name": "é\ufffd"}]}
