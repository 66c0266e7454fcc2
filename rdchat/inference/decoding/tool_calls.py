"""Finds the tool calls in a complete reply, and separates them from its text.

A block is a text between a model's opening and closing marks, and holds one or more calls; `marked_forms` reads it. A
block counts only if all of it is calls of offered tools. If none counts, all are read again leniently, with slips of
the model mended. Otherwise they stay text.
"""

import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from rdchat.inference.api import ToolCall
from rdchat.inference.calls import marked_forms as tagged
from rdchat.inference.calls.marked_forms import (
    CHANNELS,
    READERS,
    Reader,
    after_blanks,
    json_calls,
    mistral_calls,
    mistral_end,
    objects_end,
)
from rdchat.inference.calls.offered import OfferedTools, repaired

_LOG = logging.getLogger(__name__)

Parse = Callable[[str, list[dict[str, Any]]], Any]
"""mlx-lm's parser: makes a call or a list of calls of the text between two markers, or raises anything."""

Spans = tuple[tuple[int, int], ...]
"""Ranges of a text, in order; ends excluded."""

# A value may spell the end mark of calls, so that several ends are tried for each block, at most so many.
_MAX_ENDS = 32
# Limit of the text that is read in vain, as a multiple of the reply's length.
_MAX_WASTE = 16
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_ONLY_FENCE = re.compile(r"\s*(`{3,}+|~{3,}+)[^\n`]*\n(.*\n)\1\s*", re.DOTALL)


def find_tool_calls(
    text: str, markers: tuple[str, str], parse: Parse | None, tools: str, *, answers: Spans, ended: bool
) -> tuple[tuple[ToolCall, ...], Spans]:
    """Return the calls in a reply, and the ranges of its text without them.

    With the markers `<c>` and `</c>`, `So:<c>{"name": "f", "arguments": {}}</c>` is the call `f` and the range of
    `So:`. A call counts only if its tool is offered, and each character between the markers belongs to it. Otherwise it
    stays text, and so does one that was cut off or stands in code, unless the answer is nothing but code with calls. A
    call in a thought counts only if the reply has neither an answer nor another call; its text stays in the thought.
    Blanks between calls are left out. Of a call of another tool, gpt-oss' and Mistral's marks are left out.

    Args:
        text: The complete reply.
        markers: See `ModelInfo.tool_markers`.
        parse: mlx-lm's parser of the model's form; None for gpt-oss's channels, of which it has none.
        tools: JSON list of the request's tools; empty for none.
        answers: Ranges outside thoughts.
        ended: Whether the model ended the reply itself. Then a call without an end marker is read too.
    """
    read = _reader(parse)
    if not tools and read not in tagged.HEADS:
        return (), ((0, len(text)),)
    known = json.loads(tools or "[]")
    offered = OfferedTools(known)
    # Where calls without an opening mark may begin: strictly only whole JSON counts, leniently the form's own calls.
    json_heads = _json_heads(text, markers[1], offered) if _reads_json(read) else []
    # Both ways of reading are lazy: `_find` reads.
    strict = _Blocks(text, markers, read, offered, ended, json_heads)
    heads = list[int]()
    if isinstance(read, tagged.TaggedForm) and read.call_end:
        heads = [result.start() for result in read.call.finditer(text)]
    lenient = _Blocks(text, markers, partial(_read_leniently, read), OfferedTools(known, lenient=True), ended, heads)
    calls, spans = _find(strict, answers)
    if not calls and (mended := _find(lenient, answers))[0]:
        calls, spans = mended
    if not calls and markers[0] in text:
        # The text does not belong in the log.
        _LOG.info("What looks like a tool call stays text")
    return calls, spans


def call_marks(parse: Parse | None, markers: tuple[str, str], tools: str) -> tuple[str, ...]:
    """Return the texts with which a call may begin; arguments are those of `find_tool_calls`.

    Those that begin with a brace have no blanks, but may be written with some.
    """
    read = _reader(parse)
    if not tools and read not in tagged.HEADS:
        return ()
    marks = [markers[0]]
    if isinstance(read, tagged.TaggedForm) and read.call_end:
        # What the pattern of a call begins with, up to its first class or group.
        marks.append(re.split(r"[\\(\[]", read.call.pattern)[0])
    if _reads_json(read) and markers[1]:
        marks += [f'{{"name":"{"".join(name.split())}"' for name in OfferedTools(json.loads(tools)).schemas]
    return tuple(marks)


def _reads_json(read: Reader) -> bool:
    return read is json_calls or isinstance(read, tagged.TaggedForm)


def _json_heads(text: str, closing: str, tools: OfferedTools) -> list[int]:
    """Return where JSON begins that names an offered tool and ends directly before the mark that ends calls."""
    names = "|".join(map(re.escape, tools.schemas))
    head = re.compile(rf'\{{\s*"name"\s*:\s*"(?:{names})"')
    results = list[int]()
    at = 0
    while closing and names and (begun := head.search(text, at)):
        at, ends_well = objects_end(text, begun.start())
        if ends_well and text.startswith(closing, at):
            results.append(begun.start())
    return results


def _find(blocks: "_Blocks", answers: Spans) -> tuple[tuple[ToolCall, ...], Spans]:
    """Return what `find_tool_calls` does, by one way of reading. It looks in three places, in this order:

    - in the answers, where blocks in code or directly behind a backtick do not count;
    - if nothing was found, and the only answer is one block of code: in the code, which must be calls alone;
    - if there is no answer: in the thoughts, whose text stays.
    """
    text = blocks.text
    written = [(first, last) for first, last in answers if text[first:last].strip()]
    results = list[ToolCall]()
    cuts = list[tuple[int, int]]()
    for first, last in written:
        borders = _code_borders(text, first, last)
        for block, calls in blocks.between(first, last):
            start = block[0][0]
            # Behind an odd number of borders it is in code, and so quoted, as it is directly behind a backtick.
            if bisect_left(borders, start) % 2 == 0 and text[start - 1 : start] != "`":
                results += calls
                cuts += block
    if not results and len(written) == 1 and (fence := _ONLY_FENCE.fullmatch(text, *written[0])) is not None:
        # In code, a call must have its opening mark.
        inside = list(blocks._replace(heads=()).between(*fence.span(2)))
        if inside and not _without(text, [cut for block, _ in inside for cut in block], *fence.span(2)):
            results = [call for *_, calls in inside for call in calls]
            cuts = written
    if not written:
        results = [call for *_, calls in blocks.between(0, len(text)) for call in calls]
    return tuple(results), _without(text, cuts, 0, len(text)) if cuts else ((0, len(text)),)


def _without(text: str, cuts: Sequence[tuple[int, int]], first: int, last: int) -> Spans:
    """Return the ranges between cuts that are not blank."""
    starts = [first, *(end for _, end in cuts)]
    ends = [*(start for start, _ in cuts), last]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if text[start:end].strip())


class _Blocks(NamedTuple):
    """Reads the text between the marks of calls.

    Attributes:
        text: See `find_tool_calls`.
        markers: See there.
        read: Reads the calls between two marks.
        offered: The tools that may be called.
        ended: See there.
        heads: Where calls begin, in order, whose block may lack its opening mark, if it has the closing one.
    """

    text: str
    markers: tuple[str, str]
    read: Reader
    offered: OfferedTools
    ended: bool
    heads: Sequence[int]

    def between(self, first: int, last: int) -> Iterator[tuple[list[tuple[int, int]], list[ToolCall]]]:
        """Yield the range of each block of calls in a range of the text, with its calls.

        For each place where a block may begin, its possible ends are tried in turn, until the text between is calls. Of
        a call of a tool that is not offered come the ranges of its marks, without calls.
        """
        opened = _positions(self.text, self.markers[0], first, last)
        closed = _positions(self.text, self.markers[1], first, last)
        head = tagged.HEADS.get(self.read)
        begins = [(start, start + len(self.markers[0])) for start in opened]
        begins += [(head, head) for head in self.heads if first <= head < last]
        # Characters that may still be read in vain.
        left = _MAX_WASTE * (last - first)
        # Where the next block may begin.
        after = first
        # `start` is where a block begins, `inside` what is behind its opening mark: equal where that mark is missing.
        # At one place, a block with its mark comes first.
        for start, inside in sorted(begins, key=lambda each: (each[0], -each[1])):
            if start < after:
                continue
            # Where this is no block, the next one may begin right behind the mark.
            after = max(inside, start + 1)
            # A block that is read in vain counts by the longest text that was tried, not by all of them.
            furthest = inside
            other = head.match(self.text, inside, last) if head else None
            # A list has no name here; it is read.
            is_other = other is not None and other["name"] not in {"", *self.offered.schemas}
            for end in () if is_other else self._ends(start, inside, last, closed):
                furthest = max(furthest, end)
                if furthest - inside > left:
                    return
                if calls := _calls_in(self.text[inside:end], self.read, self.offered):
                    closes = self.text.startswith(self.markers[1], end, last)
                    after = end + len(self.markers[1]) if closes else end
                    yield [(start, after)], calls
                    break
            else:
                left -= furthest - inside
                if other and other["name"] not in self.offered.schemas:
                    name_start, name_end = other.span("name")
                    marks = [(start, name_start), (name_end, other.end())]
                    after, _ = objects_end(self.text, other.end())
                    if self.markers[1] and self.text.startswith(self.markers[1], after, last):
                        marks.append((after, after + len(self.markers[1])))
                    yield marks, []

    def _ends(self, start: int, inside: int, last: int, closed: list[int]) -> Iterator[int]:
        """Yield where a block may end.

        Whole JSON with a mark behind it ends there, and nowhere else; an empty end mark is behind any. Other blocks may
        end at each of the next end marks, the last one of these first; a block without an opening mark ends at none but
        these. Then come, if the model ended the reply itself, the end of Mistral's calls and the end of the text; and
        then the next opening mark. `closed` is where the range has end marks, in order.
        """
        begin = after_blanks(self.text, inside)
        behind, is_complete = objects_end(self.text, begin)
        if is_complete and behind > begin and self.text.startswith(self.markers, behind, last):
            yield behind
            return
        nearest = bisect_left(closed, inside)
        yield from reversed(closed[nearest : nearest + _MAX_ENDS])
        if start == inside:
            return
        if self.ended and self.read is mistral_calls:
            yield inside + mistral_end(self.text[inside:last], self.offered)
        if self.ended and last == len(self.text):
            yield last
        if (following := self.text.find(self.markers[0], inside, last)) >= 0:
            yield following


def _positions(text: str, mark: str, first: int, last: int) -> list[int]:
    """Return where a mark stands in a range; none for an empty mark."""
    return [result.start() for result in re.compile(re.escape(mark)).finditer(text, first, last)] if mark else []


def _code_borders(text: str, first: int, last: int) -> list[int]:
    """Return where blocks of code in a range begin and end, in turn."""
    fence = ""
    borders = list[int]()
    for match in _FENCE.finditer(text, first, last):
        if not fence or match[1].startswith(fence):
            fence = "" if fence else match[1]
            borders.append(match.start())
    return borders


def _reader(parse: Parse | None) -> Reader:
    """Return our reader of a form of calls, by the name of the module of mlx-lm's parser.

    Without a parser it is the reader of channels; for a module that we do not know, one that trusts the parser.
    """
    if parse is None:
        return READERS[CHANNELS]

    def trusting(text: str, offered: OfferedTools) -> list[ToolCall]:
        data = parse(text, offered.tools)
        calls = data if isinstance(data, list) else [data]
        return [
            offered.make_call(each["name"], json.dumps(each["arguments"]), str(each.get("id") or "")) for each in calls
        ]

    return READERS.get(parse.__module__.rpartition(".")[2], trusting)


def _read_leniently(read: Reader, text: str, offered: OfferedTools) -> list[ToolCall]:
    """Read the first of several repaired texts that are calls."""
    result = (_calls_in(each, read, offered) for each in (text, *repaired(text)))
    calls = next(filter(None, result), [])
    if calls:
        _LOG.info("A tool call was read with its slips mended")
    return calls


def _calls_in(text: str, read: Reader, offered: OfferedTools) -> list[ToolCall]:
    """Return the calls in a text between two markers; empty where it is more or less than calls."""
    try:
        return read(text, offered)
    except Exception:
        # A model may write anything.
        return []
