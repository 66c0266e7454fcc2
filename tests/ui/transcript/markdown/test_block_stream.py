# ruff: noqa: RUF001  full-width punctuation is what these tests are about
import random
import re
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.ui.transcript.markdown import block_stream
from rdchat.ui.transcript.markdown.block_stream import BlockStream
from rdchat.ui.transcript.markdown.blocks import LINE_LIMIT, Block, Kind, Run
from rdchat.ui.transcript.markdown.parser import MarkdownParser, Parsed, Parser, PlainParser, merged
from tests.grids import share
from tests.ui.transcript.conftest import blocks_after, updates


def whole(parser: Parser, text: str) -> tuple[list[Block], set[int]]:
    return streamed(parser, text, max(1, len(text)))


def streamed(parser: Parser, text: str, chunk: int) -> tuple[list[Block], set[int]]:
    """Feed the text in chunks, as a reply grows; return the blocks and the completed code blocks."""
    stream = BlockStream(parser)
    blocks: list[Block] = []
    closed: set[int] = set()
    for end in range(chunk, max(1, len(text)) + chunk, chunk):
        for update in updates(stream, text[:end], final=end >= len(text)):
            blocks_after(blocks, [update])
            closed.update(update.closed)
    return blocks, closed


_LINES = (
    "$$\n", "\\[\n", "\\]\n", "\n", "\n\n", "x = 1\n", "- b\n", "  y\n", "Some words here.\n", "## So\n", "$$x$$\n",
    "\\text{if it is}\n", "所以\n", "```\n", "> ", "- ", "\\begin{align}\n", "\\end{align}\n", "a $$", "x = 2\n" * 70,
    "```py", "```md\n", "~~~\n", "|", "#", "| a | b |\n|---|---|\n", "| $|x|$ | 2 | more |\n", "[1]: https://a.b\n",
    "[x][1]\n", "| a | b |\n|---|---|\n" + "| 1 | 2 | more |\n| $|x|$ |\n" * 50,
)  # fmt: skip


@settings(max_examples=20)
@given(lines=some.lists(some.sampled_from(_LINES), max_size=12), chunk=some.integers(1, 9))
@example(["\\]\n", "$$\n", "- b\n", "$$\n"], 1)
@example(["```py\n```"], 1)
@example(["~~~\n\n"], 1)
def test_parts_of_any_kind_stream_alike(lines: list[str], chunk: int) -> None:
    text = "".join(lines)
    assert streamed(MarkdownParser(), text, chunk) == whole(MarkdownParser(), text)


def test_a_long_list_keeps_its_numbers_when_its_first_items_are_settled() -> None:
    source = "".join(f"1. item number {number} of a long list\n" for number in range(200))
    markers = [block.marker for block in streamed(MarkdownParser(), source, 100)[0]]
    assert markers == [f"{number}." for number in range(1, 201)]


NESTED = """\
Before

```markdown
# Title
```python
print(1)
```
between
~~~
```js
x
```
end
```
After

- ```md
  ```sh
  ls
  ```
  ```
- next

| f | v |
|---|---|
| $|x|$ | 2 |
| a<br>b | `c|d` | surplus |
**注意：**请看

~~~Markdown
~~~python
x
~~~
~~~

- - deep
[](x)
````md
```sh
````
"""


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 50, 1000])
def test_blocks_of_markdown_with_code_and_full_tables_stream_alike(chunk: int) -> None:
    blocks, closed = streamed(MarkdownParser(), NESTED, chunk)
    assert blocks == MarkdownParser().parse(NESTED, 0, {}, None).blocks
    assert closed == {0, 1, 2, 3}
    code = {block.code: "" for block in blocks if block.kind is Kind.CODE}
    assert list(code) == [0, 1, 2, 3]
    first = [block.runs[0].text for block in blocks if block.code == 0]
    assert first == ["# Title", "```python", "print(1)", "```", "between", "~~~", "```js", "x", "```", "end"]
    assert [block.runs[0].text for block in blocks if block.code == 3] == ["```sh"]
    assert streamed(PlainParser(), NESTED, chunk) == whole(PlainParser(), NESTED)


def test_blocks_of_markdown_may_be_nested_deeply() -> None:
    text = "```md\n" * 3000 + "```\n" * 3000 + "end"
    blocks, closed = streamed(MarkdownParser(), text, 500)
    assert (blocks[-1].runs, closed) == ((Run("end"),), {0})


@pytest.mark.parametrize("language", ["", "python", "text"])
def test_other_code_ends_at_its_first_bare_fence(language: str) -> None:
    blocks, _ = streamed(MarkdownParser(), f"```{language}\n```python\nx\n```\nend\n", 3)
    assert blocks[-1].runs == (Run("end"),)


@pytest.mark.parametrize(
    ("source", "chunk"),
    [
        ("A [link][1].\n\nMore text.\n\n[1]: https://example.org/a\n", 5),
        ("[1]: https://example.org/a\n\nA [link][1].", 1),
    ],
    ids=["after it", "half written"],
)
def test_a_link_finds_its_definition(source: str, chunk: int) -> None:
    first, *_ = streamed(MarkdownParser(), source, chunk)[0]
    assert [run.href for run in first.runs] == ["", "https://example.org/a", ""]


def test_an_open_code_block_only_gains_lines() -> None:
    # re-drawing all of a growing code block took half of the main thread
    stream = BlockStream(MarkdownParser())
    text = "```python\n" + "x = 1\n" * 50
    list(updates(stream, text, final=False))
    update = stream.advance(text + "y = 2\nz", final=False)
    assert [block.runs[0].text for block in update.blocks] == ["y = 2", "z"]
    assert update.first == 50


class CountingParser(MarkdownParser):
    """Counts the characters that it is given: the work of a step, whatever machine does it."""

    characters = 0
    lines = 0

    def parse(self, source: str, first_code: int, references: dict[str, Any], number: int | None) -> Parsed:
        self.characters += len(source)
        self.lines += source.count("\n")
        return super().parse(source, first_code, references, number)


@pytest.mark.parametrize(
    "text",
    share(
        [
            "x" * 40_000,
            "word " * 8_000,
            "<" * 10_000,
            "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|b" * 5_000,
            "> a\n" * 5_000,
            "```\n" + "x = 1\n" * 7_000,
            "para\n\n" * 7_000,
            "- item\n" * 6_000,
            "a\n|-|\n|$|$|\n" * 2_000,
            "```md\n```py\n" * 2_000,
            "- x\n\n  ```md\n" + "  ```md\n" * 2_000,
        ],
        4,
    ),
    ids=lambda text: repr(text[:6]),
)
def test_hostile_text_is_taken_in_short_steps(text: str) -> None:
    characters = 8192
    lines = 240
    assert len(text) > characters
    parser = CountingParser()
    stream = BlockStream(parser)
    steps = []
    more = True
    while more:
        parser.characters = 0
        parser.lines = 0
        more = stream.advance(text, final=True).more
        steps.append(parser.characters)
        assert parser.lines <= 3 * lines
    assert max(steps) <= 3 * characters
    assert sum(steps) <= 3 * len(text) + 2 * characters


@pytest.mark.slow
def test_plain_text_takes_a_short_way_to_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    texts = ["".join(chance.choices(["a", "b c", " ", "  ", "\n", "\t", "é", ".", "1)"], k=12)) for _ in range(500)]
    short = [MarkdownParser().parse(text, 0, {}, None).blocks for text in texts]
    monkeypatch.setattr("rdchat.ui.transcript.markdown.parser.PLAIN", re.compile("(?!)"))
    assert short == [MarkdownParser().parse(text, 0, {}, None).blocks for text in texts]


@pytest.mark.parametrize(("prefix", "kind"), [("", Kind.TEXT), ("```\n", Kind.CODE)])
def test_overlong_lines_are_cut_and_lose_nothing(prefix: str, kind: Kind) -> None:
    *cut, last = whole(MarkdownParser(), f"{prefix}{'y' * 100_000}\n\n\nz")[0]
    assert last.runs == (Run("z"),)
    texts = ["".join(run.text for run in block.runs) for block in cut]
    assert max(map(len, texts)) <= LINE_LIMIT
    assert sum(map(len, texts)) == 100_000
    if kind is Kind.CODE:
        joined = [block.joined for block in cut if block.runs]
        assert joined == [False, *[True] * (len(joined) - 1)], "they are one line"
    assert {block.kind for block in cut} == {kind}


def long_paragraph(chance: random.Random, length: int, opening: float = 1.0) -> str:
    """Return lines of Markdown, with as many signs that open something and close nothing as `opening` has it."""
    closed = ["*it*", "`code`", "$x_1$", "\\(y\\)", "a_b", "_e_", "[l](http://a.b)", "[^1]", "~~s~~", "\\*", "**b** c"]
    closed += ["https://a.b/cd", "&amp;", "<b>", "\U0001f35e", "  ", "$2 + y$", "]", "!", "(see)"]
    open_ = ["**bold", "b**", "`", "$5", "\\(", "_", "[", "\\", "~~", "![a](", "*"]
    weights = [*[2.0] * len(closed), *[opening] * len(open_), 60.0, 40.0]
    text = ""
    while len(text) < length:
        words = chance.choices([*closed, *open_, "word", "two words"], weights, k=chance.randrange(1, 12))
        text += " ".join(words) + "\n"
    return text


@pytest.mark.parametrize("seed", share(range(4), 4))
def test_a_long_paragraph_ends_as_the_whole_one_is_however_it_came(seed: int) -> None:
    chance = random.Random(seed)
    opening = seed * 0.02
    text = "\n".join(
        [long_paragraph(chance, 4000, opening), f"- {long_paragraph(chance, 1500)}", long_paragraph(chance, 800)]
    )
    stream = BlockStream(MarkdownParser())
    blocks = list[Block]()
    end = 0
    more = True
    while end < len(text) or more:
        end = end if more and end else min(len(text), end + chance.randrange(1, 400))
        update = stream.advance(text[:end], final=end == len(text))
        blocks[update.first :] = update.blocks
        more = update.more
    assert blocks == whole(MarkdownParser(), text)[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_paragraph_in_parts_says_what_it_says_in_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emphasis that spans the lines of such a long paragraph may be cut; nothing else changes."""
    text = long_paragraph(random.Random(seed), 600, 0.0).strip()
    whole_one, *more = MarkdownParser().parse(text, 0, {}, None).blocks
    if more:
        pytest.skip("a sign at the beginning of a line made it more than a paragraph")
    monkeypatch.setattr(block_stream, "_STEP", 500)
    parts = [block.runs for block in whole(MarkdownParser(), text)[0]]
    lines = [run for place, part in enumerate(parts) for run in ([Run("\n")] if place else []) + list(part)]
    assert merged(lines) == whole_one.runs
    assert len(parts) > 1


def test_a_long_paragraph_of_formulas_is_read_once_as_it_grows() -> None:
    text = "".join(f"line {n} with $x_{{{n}}}^2 + {n}$ in it\n" for n in range(200))
    parser = CountingParser()
    stream = BlockStream(parser)
    blocks: list[Block] = []
    for end in range(120, len(text) + 120, 120):
        parser.characters = 0
        blocks_after(blocks, updates(stream, text[:end], final=end >= len(text)))
        assert parser.characters <= 4 * 1600, "no more than the part that grows"
    assert len([run for block in blocks for run in block.runs if run.maths]) == 200
    assert blocks == whole(MarkdownParser(), text)[0]


def test_many_formulas_are_taken_in_steps_and_stay_one_paragraph() -> None:
    text = "".join(f"so $x_{{{number}}}$ and $y$ and $z$ are\n" for number in range(200))
    steps = list(updates(BlockStream(MarkdownParser()), text))
    formulas = [sum(1 for block in update.blocks for run in block.runs if run.maths) for update in steps]
    assert sum(formulas) == 600
    assert max(formulas) <= 2 * 80
    assert all(block.joined for block in blocks_after([], steps)[1:])
