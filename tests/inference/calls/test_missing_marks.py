"""Laws: a whole call is one where a mark of it is missing, no call is lost or doubled, and a stream says the same."""

import json
from dataclasses import dataclass
from importlib import import_module

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from rdchat.inference.api import PartsReader
from rdchat.inference.decoding.tool_calls import call_marks, find_tool_calls
from tests.inference.calls.tools import TOOLS

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


@dataclass(frozen=True)
class Block:
    """A call in a reply, and the words before it."""

    words: str
    opened: bool
    closed: bool
    blank: str
    tool: str = "look"

    def text(self, number: int) -> str:
        blank = self.blank
        name = f'"name"{blank}: {blank}"{self.tool}"'
        call = f'{{{blank}{name}, "arguments": {{"path": "p{number} {OPEN} {CLOSE}"}}{blank}}}'
        return f"{self.words}{OPEN * self.opened}{call}{blank}{CLOSE * self.closed}{blank}"


_BLOCKS = some.lists(
    some.builds(
        Block,
        some.sampled_from(("", "", "\n", "So. ", "{ ", '{"name": "', "``` ")),
        some.booleans(),
        some.booleans(),
        some.sampled_from(("", " ", "\n  ")),
        some.sampled_from(("look", "look", "erase")),
    ),
    min_size=1,
    max_size=4,
)


def read(text: str, form: str, step: int) -> tuple[list[str], str, str]:
    """Return the paths of the calls, the answer without them, and what a client has of it before the end."""
    module = import_module(f"mlx_lm.tool_parsers.{form}")
    marks = (OPEN, CLOSE)
    tools = json.dumps(TOOLS)
    reader = PartsReader(call_marks=call_marks(module.parse_tool_call, marks, tools))
    pieces = [piece for at in range(0, len(text), step) for piece in reader.add_text(text[at : at + step])]
    told = reader.finish_reply(ended=True)
    calls, left = find_tool_calls(text, marks, module.parse_tool_call, tools, answers=told.spans, ended=True)
    sent = "".join(piece.text for piece in pieces)
    assert text.startswith(sent)
    return [json.loads(call.arguments).get("path", "") for call in calls], "".join(text[a:b] for a, b in left), sent


@pytest.mark.parametrize("form", ["json_tools", "qwen3_coder", "glm47"])
@settings(max_examples=100)
@given(blocks=_BLOCKS, step=some.sampled_from((1, 7, 10_000)))
@example(blocks=[Block("", True, False, "\n"), Block("", True, True, "\n")], step=1)
@example(blocks=[Block("", False, True, "")], step=10_000)
@example(blocks=[Block("", False, True, " "), Block("", True, True, "")], step=10_000)
def test_a_whole_call_is_read_once_whatever_mark_is_missing(form: str, blocks: list[Block], step: int) -> None:
    text = "".join(block.text(number) for number, block in enumerate(blocks))
    paths, left, sent = read(text, form, step)
    order = [int(path.split()[0][1:]) for path in paths]
    assert order == sorted(set(order))
    for number in range(len(blocks)):
        assert (f'"p{number} ' in left) is (number not in order), "it is a call, or it is text"
    # In code it is text, and so is what may belong to other JSON.
    if not any("```" in block.words or "{" in block.words for block in blocks):
        for number, (block, following) in enumerate(zip(blocks, [*blocks[1:], None], strict=True)):
            is_next = following is not None and following.opened and not following.words.strip()
            marked = block.closed if not block.opened else block.closed or is_next or following is None
            assert (number in order) >= (marked and block.tool == "look"), text
    # What a client has is never taken back.
    assert "".join(left.split()).startswith("".join(sent.split()))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "look", "arguments": {"path": "a"}}',
        f'{{"name": "erase", "arguments": {{"path": "a"}}}}{CLOSE}',
        f'{{"name": "look", "arguments": {{"path": "a"}}{CLOSE}',
        f'{{"name": "look", "arguments": {{"path": "a"}}}} and so on{CLOSE}',
        f'The call `{{"name": "look", "arguments": {{"path": "a"}}}}{CLOSE}` is an example.',
        f'```json\n{{"name": "look", "arguments": {{"path": "a"}}}}\n{CLOSE}\n```',
        f'{OPEN}{{"name": "look", "arguments": {{"path": "a {OPEN}',
        f'{OPEN}{{"name": "look", "arguments": {{"path": "a"}}}} or not {OPEN}x',
    ],
)  # fmt: skip
def test_what_is_less_than_a_call_is_text(text: str) -> None:
    assert read(text, "json_tools", 1)[:2] == ([], text)
