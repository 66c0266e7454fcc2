"""The markers of thoughts: they split a reply into thought and answer, and fit a prompt to the beginning of a reply.

`PAIRS` to `fit_opening` know the markers; `Parting` scans a reply for them, whole or while it is written.
The families are those in mlx-lm's tables (`tokenizer_utils._infer_thinking`, `chat_templates/muse_spark.py`) and in the
chat templates of gpt-oss, Magistral, Seed-OSS, Command A Reasoning, Apertus and Solar Open.
"""

import re
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass

THINK = ("<think>", "</think>")
PAIRS = (
    THINK,  # Qwen, DeepSeek, GLM, SmolLM3, MiniMax and most others
    ("<longcat_think>", "</longcat_think>"),
    ("<seed:think>", "</seed:think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi K3
    ("<|think|>", "<|end|>"),  # Solar Open
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi VL
)
"""Markers at the beginning and the end of a thought."""

# What begins a thought that stands in a message of its own, what ends it, and what begins the answer's message.
_MESSAGES = (
    ("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"),  # gpt-oss
    ("to=self<|message|>", "<|eom|>", "<|start|>assistant to=user<|message|>"),  # Muse Spark
)
# Only at the start: a later one belongs to the answer.
_FIRST_PAIRS = (("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
# These stand around an answer after a thought.
_WRAPPERS = (
    "<answer>", "</answer>", "<response>", "</response>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",
    "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>",
    "<|begin|>assistant<|content|>", "<|content|>",
)  # fmt: skip
# Messages of gpt-oss and Muse Spark end with these.
_MESSAGE_ENDS = ("<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
_HEADER_PARTS = ("<|start|>", "<|channel|>", "<|message|>")
_THINKING_HEADERS = {"analysis", "self"}
# Characters of a message's header, and of the text at its end in which an unfinished one is looked for.
_LONGEST_HEADER = 200
MOST_PARTS = 1000
"""A reply has no more parts: the rest of it is its answer. Who shows or stores a reply walks all parts each time."""

_CLOSINGS = dict((*PAIRS, *_FIRST_PAIRS))
_FIRST_ONLY = {marker for pair in _FIRST_PAIRS for marker in pair}
_LITERALS = {*_CLOSINGS, *_CLOSINGS.values(), *_WRAPPERS, *_MESSAGE_ENDS, *_HEADER_PARTS}
_LONGEST = max(map(len, _LITERALS))
_PREFIXES = {literal[:n] for literal in _LITERALS for n in range(1, len(literal))}
_FIRST_CHARACTERS = {literal[0] for literal in _LITERALS}

_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*(analysis|commentary|final)\b[^<]{0,99}(?:<\|constrain\|>[^<]{0,99})?"
    r"<\|message\|>"
)
# The header of a call, whose text is from its recipient on.
_TO_TOOL = re.compile(
    r"(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\w+\s*)?(?P<call>to=functions\.[^\s<]{1,200}+\s*+(?:<\|channel\|>\w++\s*+)?"
    r"(?:<\|constrain\|>)?\w*+\s*+<\|message\|>)"
)
_RECIPIENT = re.compile(r"(?:<\|start\|>assistant\s*)?\bto=(\w+)<\|message\|>\Z")
_BLANK = re.compile(r"\s*+")
_LINE_END = re.compile(r"[ \t]*\n?")
# Between a thought and an answer with a shape; see `after_thought`.
_SHAPED_START = re.compile(r"\n{0,2}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_IN_LINES = re.compile(rf"^{_FENCE.pattern}", re.MULTILINE)
_PAIR_CLOSINGS = {closing for _, closing in PAIRS}


@dataclass(frozen=True, slots=True)
class Opening:
    """A thought's beginning, as a model writes it.

    Attributes:
        marker: The text that begins it.
        end: The marker that ends it.
        close: The text that ends it so that the answer follows; it begins with `end`.
    """

    marker: str
    end: str
    close: str


def _any_of(literals: Collection[str]) -> str:
    """Return a pattern for any of some literals, the longest that fits."""
    return "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))


_MARKER = re.compile(_any_of(_LITERALS))
_LAST_WRAPPERS = re.compile(rf"(?:(?:{_any_of(_WRAPPERS)})\s*+)+\Z")
# A thought may repeat its opening, with nothing but blanks between.
_REPEATED = re.compile(rf"(?:\s*+(?:{_any_of(_CLOSINGS)})[ \t]*+\n?)++")
_OPENING = f"({_any_of([opening for opening, _ in PAIRS])})"
_OPENED = re.compile(rf"\s*+{_OPENING}")
_ENDED = re.compile(_any_of(_PAIR_CLOSINGS))
# What a chat template writes before a reply: a thought's beginning, or a thought without words.
_WRITTEN = re.compile(rf"{_OPENING}\s*(?:({_ENDED.pattern})\s*)?\Z")


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """A range of a reply's text, end excluded; its markers are in none."""

    start: int
    end: int
    is_thought: bool = False


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A reply split into thought and answer.

    Attributes:
        text: The reply, with markers.
        parts: Its parts in order. The last one is that in which the text ends; it may be empty.
        control: Offsets of control tokens in it, where they are known; see `ChatMessage.own_control`.
        unclosed: Whether the model ended inside a thought, so that the answer is a thought.
        shaped: Whether the answer has a shape, so that all its blanks count.
    """

    text: str
    parts: tuple[ReplyPart, ...]
    control: tuple[int, ...] = ()
    unclosed: bool = False
    shaped: bool = False

    @property
    def thought(self) -> str:
        """The thought, without blanks at its ends; several are apart by an empty line."""
        thoughts = (self.text[each.start : each.end].strip() for each in self.parts if each.is_thought)
        return "\n\n".join(filter(None, thoughts))

    @property
    def answer(self) -> str:
        """The rest without markers; blanks between a thought and the answer belong to the marker.

        An answer at the very beginning of the reply keeps its blanks.
        """
        text = "".join(self.text[start:end] for start, end in self.spans)
        first = next((begins for begins, end in self.spans if self.text[begins:end].strip()), 0)
        return text.lstrip() if first and not self.shaped else text

    @property
    def open(self) -> bool:
        """Whether the text ends inside a thought."""
        return bool(self.parts) and self.parts[-1].is_thought

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Ranges of the answer in the text."""
        return tuple((each.start, each.end) for each in self.parts if not each.is_thought and each.start < each.end)

    def within(self, ranges: Sequence[tuple[int, int]]) -> "Thoughts":
        """Return what is left of the reply in some ranges of its text."""
        text = ""
        parts = list[ReplyPart]()
        control = list[int]()
        for first, last in ranges:
            moved = len(text) - first
            clipped = ((max(each.start, first), min(each.end, last), each.is_thought) for each in self.parts)
            parts += [ReplyPart(start + moved, end + moved, inside) for start, end, inside in clipped if start <= end]
            control += [offset + moved for offset in self.control if first <= offset < last]
            text += self.text[first:last]
        return Thoughts(text, tuple(parts), tuple(control), self.unclosed, self.shaped)


NOTHING_TOLD = Thoughts("", ())


def openings() -> list[Opening]:
    """Return what can begin a thought at the start of a reply.

    What begins a message may also stand behind its header: `<|start|>assistant<|channel|>analysis<|message|>`.
    """
    results = [Opening(marker, end, end) for marker, end in _CLOSINGS.items()]
    for marker, end, answer in _MESSAGES:
        again = f"<|start|>assistant{' ' * marker.startswith('to=')}{marker}"
        results += [Opening(each, end, end + answer) for each in (marker, again)]
    return results


def markers_among(control: Collection[str]) -> frozenset[str]:
    """Return the markers that begin with one of a model's control tokens."""
    return frozenset(literal for literal in _LITERALS if literal.startswith(tuple(control)))


def end_of_begun(prompt: str) -> str:
    """Return the marker that ends the thought which a prompt, or the end of one, opens; empty if it opens none."""
    written = _WRITTEN.search(prompt[-64:])
    return _CLOSINGS[written[1]] if written and not written[2] else ""


def own_markers(text: str, *, begun: bool = False) -> tuple[int, ...]:
    """Return the offsets of the markers of the thought with which the beginning of a reply begins.

    Args:
        text: The beginning of the reply.
        begun: Whether the chat template opened the thought, so that the text may have only its end.
    """
    opened = _OPENED.match(text)
    ended = _ENDED.search(text) if opened or begun else None
    offsets = [opened.start(1)] if opened else []
    if ended:
        offsets.append(ended.start())
    return tuple(offsets)


def fit_opening(prompt: str, text: str, *, has_thought: bool) -> str:
    """Return a prompt so that the beginning of a reply can follow it, in no other thought than its own.

    A thought that the prompt opens is closed before an answer, and left out before a text that opens one itself. One
    that the prompt also closes is open again for a text that goes on with it.

    Args:
        prompt: What the chat template wrote.
        text: The beginning of the reply.
        has_thought: Whether the reply is known to begin with a thought, perhaps an open one.
    """
    written = _WRITTEN.search(prompt[-64:])
    if written is None or not text.strip():
        return prompt
    opening, closing = written.groups()
    before = prompt.removesuffix(written[0])
    if own_markers(text):
        return before
    if closing:
        return f"{before}{opening}\n" if has_thought else prompt
    if has_thought or own_markers(text, begun=True):
        return prompt
    return f"{prompt}\n{_CLOSINGS[opening]}\n\n"


def has_marker(text: str, added: int) -> bool:
    """Return whether a marker may stand at the end of a text that has gained some characters."""
    return _MARKER.search(text[-added - _LONGEST :]) is not None


def split_thoughts(text: str, *, begun: bool = False, ended: bool = False, old: bool = False) -> Thoughts:
    """Tell a complete reply apart by its markers.

    A marker that begins a thought counts only at the start of a line, and no marker counts in code. A closing marker
    that neither the text nor the chat template opened is text.

    Args:
        text: The reply as it was written.
        begun: Whether the chat template began a thought.
        ended: Whether the model ended the reply itself; then a thought that it did not close is its answer.
        old: Whether a closing marker alone ends a thought, as in replies of rdchat 0.1.0 and before.
    """
    parting = Parting(begun, old=old)
    parting.read_markers(text, len(text))
    return Thoughts(text, parting.parts(ended))


class Parting:
    """A scan of a reply for markers, which can continue when the text has grown.

    `read_markers` reads one marker after the other. A marker ends the part before it and begins another one, a thought
    or a piece of the answer; or it is text, because it stands in code, in the middle of a line, or as data. The state
    is where the last marker ended, whether a thought is open, and what would end it. `parts` returns the result so far.

    Args:
        begun: Whether the chat template began a thought.
        markers: Markers that begin with a control token. Their characters are a marker only where that token stands.
        offsets: Offsets of control tokens in the text; more may be added to it.
        shaped: Whether the answer has a shape: only the chat template begins a thought, and markers behind it are data.
        old: See `split_thoughts`.
    """

    def __init__(
        self,
        begun: bool,
        markers: frozenset[str] = frozenset(),
        offsets: Collection[int] = (),
        *,
        shaped: bool = False,
        old: bool = False,
    ) -> None:
        self._markers = markers
        self._offsets = offsets
        self._shaped = shaped
        self._old = old
        self._text = ""
        # The parts that have ended, and how many before them `fork` left out.
        self._parts: list[ReplyPart] = []
        self._left_out = 0
        # Where the last marker ended, and up to where markers are read.
        self._last_end = 0
        self._position = 0
        # Whether a thought is open, and whether a marker was seen.
        self._inside = begun
        self._seen = begun
        # The marker that ends the open thought or message: `</think>` after `<think>`. None where any end does, as
        # after a header of gpt-oss; empty, which is no marker, before the first thought. It stays when a thought has
        # ended: then the end of a message is text unless it is this one.
        self._closing = None if begun else ""
        # The code fence that is open in the answer, and up to where fences are read.
        self._fence = ""
        self._fences_read = 0
        # Where the last header of a call ends; 0 without one.
        self._call_header = 0
        # Where the blanks end that begin at an offset, so that long blanks are not read again.
        self._blank_ends: dict[int, int] = {}

    @property
    def closed(self) -> int:
        """How many parts have ended."""
        return self._left_out + len(self._parts)

    def fork(self, first: int = 0) -> "Parting":
        """Return a copy of this scan, to continue from here, without its parts before the given one."""
        scan = copy(self)
        scan._parts = self._parts[first:]
        scan._left_out = first
        return scan

    def read_markers(self, text: str, limit: int) -> None:
        """Read the markers that end before `limit`, in a text that continues the previous one.

        If the limit is not the text's end, a marker with only blanks after it waits: what follows may decide on it. A
        marker inside the last one's range, or that is text, is passed over.
        """
        self._text = text
        matches = _MARKER.finditer(text, self._position)
        while (match := next(matches, None)) and match.end() <= limit:
            if limit < len(text) and self._is_blank(match.end(), len(text)):
                return
            self._position = match.end()
            if match.start() < max(self._last_end, self._call_header) or self._is_text(match[0], match.start()):
                continue
            self._read_marker(match[0], match.start(), match.end())
            # The part begins far behind, as after a long repetition of openings: the markers before it are skipped.
            if self._last_end > match.end() + _LONGEST_HEADER:
                self._position = self._last_end
                matches = _MARKER.finditer(text, self._last_end)
        self._position = max(self._position, limit - _LONGEST)

    def parts(self, ended: bool = False) -> tuple[ReplyPart, ...]:
        """Return the parts of the text that was read.

        Args:
            ended: Whether the model ended the text itself; then a thought that it did not close is its answer.
        """
        end = len(self._text)
        return (*self._parts, ReplyPart(min(self._last_end, end), end, self._inside and not ended))

    def _is_text(self, marker: str, start: int) -> bool:
        """Return whether the characters of a marker are ordinary text, or data."""
        data = self._shaped and not (self._inside and marker in _PAIR_CLOSINGS)
        return data or (marker in self._markers and start not in self._offsets)

    def _read_marker(self, marker: str, start: int, end: int) -> None:
        """Read one marker: it ends a part and begins another, or is text.

        Its kind decides: part of a header, beginning of a thought, end of a message, wrapper of an answer. What is left
        is the end of a thought. Inside one it counts if it closes that thought, or if what closes it is unknown.
        Outside of one it is text, except in old replies, whose thought may have begun without a marker.
        """
        if marker in _HEADER_PARTS:
            self._read_header(marker, start, end)
        elif marker in _CLOSINGS:
            self._read_opening(marker, start, end)
        elif marker in _MESSAGE_ENDS:
            self._read_message_end(marker, start, end)
        elif marker in _WRAPPERS:
            if self._is_wrapper(marker, start, end):
                self._begin_part(start, end, to_thought=False)
        elif self._inside:
            if self._closing in {None, marker} and not (self._old and self._text[start - 1 : start] == "`"):
                self._begin_part(start, end, to_thought=False)
        elif self._old and not self._seen and marker not in _FIRST_ONLY and not self._is_quoted(start):
            self._inside = True
            self._begin_part(start, end, to_thought=False)

    def _read_header(self, marker: str, start: int, end: int) -> None:
        """Read the header of one of several messages: it shows whether the message is a thought, an answer or a call.

        The header of a call is tried first. Any other begins at this marker (gpt-oss's
        `<|channel|>analysis<|message|>`), or ends with it (Muse Spark's `to=self<|message|>`).
        """
        if self._read_call_header(start):
            return
        header = self._recipient_before(start, end) if marker == "<|message|>" else _CHANNEL.match(self._text, start)
        if header and (self._inside or not self._is_quoted(header.start())):
            self._begin_part(header.start(), header.end(), to_thought=header[1] in _THINKING_HEADERS)
            self._closing = None

    def _read_call_header(self, start: int) -> bool:
        """Read the header of a call if one begins at a marker; return whether one does.

        At the reply's very start it may begin before the marker, with `to=`. The call's text counts from `to=` on, so
        the part begins there.
        """
        first = self._blank_end(0)
        begin = first if self._text.startswith("to=", first) and not self._seen else start
        call = _TO_TOOL.match(self._text, begin)
        if not call or (not self._inside and self._is_quoted(start)):
            return False
        self._begin_part(call.start(), call.start("call"), to_thought=False)
        self._closing = None
        self._call_header = call.end()
        return True

    def _recipient_before(self, start: int, end: int) -> re.Match[str] | None:
        """Return the header that ends with a `<|message|>` and names a recipient; None without one.

        Without `<|start|>` it counts only at the reply's start.
        """
        position = max(self._last_end, start - _LONGEST_HEADER)
        # A regular expression alone would take a hundred times as long.
        if self._text.find("to=", position, start) < 0:
            return None
        header = _RECIPIENT.search(self._text, position, end)
        if header and (header[0].startswith("<|") or self._is_blank(0, header.start())):
            return header
        return None

    def _read_message_end(self, marker: str, start: int, end: int) -> None:
        """Read the end of one of several messages; that of a call belongs to the call."""
        in_call = marker == "<|call|>" and self._call_header
        if not in_call and self._seen and self._closing in {None, marker} and not self._is_quoted(start):
            self._begin_part(start, end, to_thought=False)

    def _read_opening(self, marker: str, start: int, end: int) -> None:
        """Read a marker that begins a thought, if it stands at the start of a line and not in code."""
        if self._inside:
            # The model may repeat what the template wrote.
            if self._is_blank(self._last_end, start):
                repeated = _REPEATED.match(self._text, start)
                self._last_end = repeated.end() if repeated else end
            return
        # The start of the line; a marker far into a line is no opening.
        line = self._text.rfind("\n", max(self._last_end, start - _LONGEST_HEADER), start) + 1 or self._last_end
        is_first = marker not in _FIRST_ONLY or self._is_blank(0, start)
        if is_first and self._is_blank(line, start) and not self._is_quoted(start):
            self._begin_part(line, end, to_thought=True)
            self._closing = _CLOSINGS[marker]

    def _is_wrapper(self, marker: str, start: int, end: int) -> bool:
        """Return whether a marker begins or ends a whole answer: it is first or last there, but for blanks.

        Words such as `<answer>` count only after another marker.
        """
        if self._inside or not (self._seen or marker.startswith("<|")):
            return False
        return self._is_blank(self._last_end, start) or self._is_blank(end, len(self._text))

    def _is_blank(self, start: int, end: int) -> bool:
        """Return whether there are only blanks between two offsets."""
        return start <= end <= self._blank_end(start)

    def _blank_end(self, start: int) -> int:
        """Return where the blanks end that begin at an offset; those that were read before are not read again."""
        result = _BLANK.match(self._text, self._blank_ends.get(start, start))
        assert result
        self._blank_ends[start] = result.end()
        return result.end()

    def _begin_part(self, start: int, end: int, *, to_thought: bool) -> None:
        """End the open part at a marker's start, and begin another behind the marker and its line end."""
        if self.closed >= MOST_PARTS and not self._inside:
            return
        self._read_fences(start)
        self._end_part(start)
        line_end = (_SHAPED_START if self._shaped else _LINE_END).match(self._text, end)
        self._last_end = line_end.end() if line_end else end
        self._seen = True
        self._inside = to_thought

    def _end_part(self, position: int) -> None:
        """End the open part, which begins where the last marker ended; an empty one is left out."""
        if position > self._last_end:
            self._parts.append(ReplyPart(self._last_end, position, self._inside))

    def _is_quoted(self, position: int) -> bool:
        """Return whether a position of the answer is in code."""
        self._read_fences(position)
        return bool(self._fence) or self._text[position - 1 : position] == "`"

    def _read_fences(self, position: int) -> None:
        """Read the code fences in the answer up to a position; thoughts have none.

        A fence stands at the start of a line, or at the start of the part, which may be in the middle of a line.
        """
        if self._inside or position <= self._fences_read:
            return
        start = max(self._fences_read, self._last_end)
        first = _FENCE.match(self._text, start, position) if start == self._last_end else None
        behind = first.end() if first else start
        for fence in filter(None, (first, *_FENCE_IN_LINES.finditer(self._text, behind, position))):
            if not self._fence:
                self._fence = fence[1]
            elif fence[1].startswith(self._fence):
                self._fence = ""
        self._fences_read = position


def unfinished(text: str) -> int:
    """Return the length of a text's end that may be the beginning of a marker or a wrapper.

    Whether a wrapper ends an answer or is a word in it shows only in what follows.
    """
    if len(text) > _LONGEST_HEADER and not any(first in text[-_LONGEST_HEADER:] for first in _FIRST_CHARACTERS):
        return 0
    held = _begun_marker(text)
    end = text[-_LONGEST_HEADER - held : len(text) - held]
    wrapped = _LAST_WRAPPERS.search(end)
    return held + (len(end) - wrapped.start() if wrapped else 0)


def _begun_marker(text: str) -> int:
    """Return the length of a marker's beginning at the end of a text.

    It is a header without its `<|message|>`; or the whole text, if it may begin such a header; or the longest
    beginning of a single marker.
    """
    end = text[-_LONGEST_HEADER:]
    for start in ("<|start|>", "<|channel|>"):
        position = end.rfind(start)
        if position >= 0 and "<|message|>" not in end[position:]:
            return len(end) - position
    if len(text) < _LONGEST_HEADER and re.fullmatch(r"\s*(?:t|to|to=[\w.<|]*)", text):
        return len(text)
    return next((n for n in range(min(_LONGEST, len(text)), 0, -1) if text[-n:] in _PREFIXES), 0)
