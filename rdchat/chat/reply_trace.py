"""The trace of a reply: drafter and log-probability of each token, and every round's tree.

In the database a trace is lines of JSON, compressed by zlib. A stream holds one uninterrupted part of a reply: its
first line says where it begins, then comes one line for each round and for each token outside of rounds. A reply that
is continued gets another stream after the first. A line is `[tokens, tree, texts]` with tokens as `[id, text, drafter,
position, log_prob]`; `texts` has the texts of the tree's tokens that no earlier line had. In exports, a trace is a list
of streams, and a stream the list of its lines.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from rdchat.inference.api.events import RoundTree, TokenEvent

_VERSION = 1
# Replaces a log-probability of minus infinity, which only Python's JSON supports.
_MIN = -1e308
# The limit after unpacking; it is enough for some 60,000 rounds.
_MAX_BYTES = 64 << 20
_CODES = {"": "-", "speculative": "s", "drafter": "d", "lookup": "l", "replies": "e", "shape": "f"}
_NAMES = {code: name for name, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class TracedToken:
    """One token of a reply.

    Attributes:
        token_id: Id of the token.
        text: Characters that became final with it, as in `TokenEvent`.
        drafter: The drafter that proposed it, by its name in `_CODES`; empty for the target's own.
        position: Depth in the draft, from 1; 0 for the target's own.
        round: Number of its round in the trace, from 1; 0 outside of rounds.
    """

    token_id: int
    text: str
    drafter: str = ""
    position: int = 0
    # The target's log-probability of it, before temperature and filters; None where it was not recorded.
    log_prob: float | None = None
    round: int = 0


@dataclass(slots=True)
class TracedRound:
    """One round: `count` tokens from index `first` on. The tree comes with its last token, if it was recorded."""

    first: int
    count: int = 0
    tree: RoundTree | None = None


@dataclass(slots=True)
class ReplyTrace:
    """The tokens and rounds of a reply, or of an uninterrupted part of it; grows by appending.

    Attributes:
        begins_at: Characters of the reply before the first token.
        missing: Characters without tokens, because they were written without a trace.
        tokens: The tokens, in order.
        rounds: The rounds, in order; the last one may still be open.
    """

    begins_at: int = 0
    missing: int = 0
    tokens: list[TracedToken] = field(default_factory=list)
    rounds: list[TracedRound] = field(default_factory=list)
    _in_round: bool = field(default=False, repr=False, compare=False)

    def add(self, events: Iterable[TokenEvent]) -> None:
        """Append tokens."""
        for event in events:
            number = self._round_of(event)
            self.tokens.append(
                TracedToken(event.token_id, event.text, event.drafter, event.position, event.log_prob, number)
            )
            if number:
                self.rounds[-1].count += 1
                self.rounds[-1].tree = event.tree
                self._in_round = event.round is None

    def _round_of(self, event: TokenEvent) -> int:
        if not self._in_round:
            if event.position == 0 and event.round is None:
                # This is the first token of a reply, or plain decoding.
                return 0
            self.rounds.append(TracedRound(len(self.tokens)))
        return len(self.rounds)

    def end(self, count: int, trailing_text: str = "") -> None:
        """Keep only the first `count` tokens, and give the last one the text that no event carried."""
        del self.tokens[count:]
        while self.rounds and self.rounds[-1].first >= count:
            self.rounds.pop()
        if self.rounds:
            self.rounds[-1].count = min(self.rounds[-1].count, count - self.rounds[-1].first)
        if self.tokens and trailing_text:
            self.tokens[-1] = replace(self.tokens[-1], text=self.tokens[-1].text + trailing_text)

    def join(self, onward: "ReplyTrace") -> None:
        """Append the trace of a continuation."""
        written = self.missing + sum(len(token.text) for token in self.tokens)
        self.missing += max(0, onward.begins_at - written) + onward.missing
        first, number = len(self.tokens), len(self.rounds)
        moved = (replace(each, round=each.round + number) if each.round else each for each in onward.tokens)
        self.tokens += moved if number else onward.tokens
        self.rounds += [replace(each, first=each.first + first) for each in onward.rounds]
        self._in_round = onward._in_round

    def round_of(self, token: int) -> TracedRound | None:
        """Return the round of the token at this index."""
        number = self.tokens[token].round
        return self.rounds[number - 1] if number else None


def encode(trace: ReplyTrace) -> bytes:
    """Return a trace as a packed stream: 50 ms for 2,000 tokens."""
    texts: dict[int, str] = {}
    lines: list[Any] = [{"version": _VERSION, "begins_at": trace.begins_at}]
    indexes = range(len(trace.tokens))
    for _, group in groupby(indexes, key=lambda index: (number := trace.tokens[index].round, number or index)):
        tokens = [trace.tokens[index] for index in group]
        tree = trace.rounds[tokens[0].round - 1].tree if tokens[0].round else None
        plain = [[t.token_id, t.text, _CODES[t.drafter], t.position, _rounded(t.log_prob)] for t in tokens]
        in_round = 1 if tokens[0].round else 0
        lines.append([plain, _plain_tree(tree) if tree else in_round, _new_texts(tree, texts)])
    return _packed(lines)


def decode(packed: bytes) -> ReplyTrace | None:
    """Read the streams of one reply; None if they are damaged or of an unknown version."""
    trace = ReplyTrace()
    try:
        for stream in _streams(packed):
            trace.join(_read_stream(stream))
    except (zlib.error, ValueError, TypeError, LookupError, RecursionError):
        return None
    return trace if _is_sane(trace) else None


def plain_trace(packed: bytes) -> list[list[Any]] | None:
    """Return the lines of each stream; None if they are damaged or of an unknown version."""
    if decode(packed) is None:
        return None
    return [[json.loads(line, parse_constant=lambda _: _MIN) for line in stream] for stream in _streams(packed)]


def _streams(packed: bytes) -> Iterator[list[str]]:
    """Yield the lines of each stream; raise ValueError if it is incomplete, or would fill the memory."""
    room = _MAX_BYTES
    while packed and room > 0:
        unpacker = zlib.decompressobj()
        lines = unpacker.decompress(packed, room)
        if not unpacker.eof:
            raise ValueError("a stream without an end")
        room -= len(lines)
        yield lines.decode().splitlines()
        packed = unpacker.unused_data


def packed_trace(plain: Any) -> bytes | None:
    """Return a trace in the store's form; None where `plain` is not a trace."""
    if not isinstance(plain, list) or not plain or not all(isinstance(stream, list) and stream for stream in plain):
        return None
    packed = b"".join(map(_packed, plain))
    return packed if decode(packed) is not None else None


def _is_sane(trace: ReplyTrace) -> bool:
    """Return whether all values have the right type: foreign JSON may be anything."""
    written = all(
        type(each.token_id) is int and type(each.text) is str and type(each.position) is int
        and (each.log_prob is None or _is_log_prob(each.log_prob))
        for each in trace.tokens
    )  # fmt: skip
    return written and type(trace.begins_at) is int and all(_is_sane_tree(each.tree) for each in trace.rounds)


def _is_sane_tree(tree: RoundTree | None) -> bool:
    if tree is None:
        return True
    nodes = len(tree.tokens)
    return (
        nodes == len(tree.parents) == len(tree.drafters) == len(tree.log_probs)
        and all(type(parent) is int and -1 <= parent < index for index, parent in enumerate(tree.parents))
        and all(type(index) is int and 0 <= index < nodes for index in tree.path)
        and all(type(text) is str for text in (*tree.texts, tree.correction_text))
        and all(_is_log_prob(each) for each in (*tree.log_probs, tree.correction_log_prob))
    )


def _is_log_prob(number: object) -> bool:
    """Return whether a number can be a log-probability: exp of a large one overflows."""
    return isinstance(number, float | int) and (type(number) is float or abs(number) < 1 << 53) and number <= 1


def _read_stream(lines: list[str]) -> ReplyTrace:
    header = json.loads(lines[0])
    if header["version"] != _VERSION:
        raise ValueError("a newer version wrote this trace")
    trace = ReplyTrace(begins_at=header["begins_at"])
    texts: dict[str, str] = {}
    for line in lines[1:]:
        tokens, tree, new_texts = json.loads(line)
        texts |= new_texts
        if tree:
            read = None if tree == 1 else _read_tree(tree, texts)
            trace.rounds.append(TracedRound(len(trace.tokens), len(tokens), read))
        number = len(trace.rounds) if tree else 0
        trace.tokens += [
            TracedToken(token, text, _NAMES[code], position, log_prob, number)
            for token, text, code, position, log_prob in tokens
        ]
    return trace


def _plain_tree(tree: RoundTree) -> list[Any]:
    drafters = "".join([_CODES[drafter] for drafter in tree.drafters])
    log_probs = [_rounded(log_prob) for log_prob in tree.log_probs]
    correction = [tree.correction, _rounded(tree.correction_log_prob)]
    return [tree.tokens, tree.parents, drafters, log_probs, tree.path, *correction]


def _read_tree(plain: list[Any], texts: dict[str, str]) -> RoundTree:
    tokens, parents, drafters, log_probs, path, correction, correction_log_prob = plain
    return RoundTree(
        tokens=tuple(tokens),
        parents=tuple(parents),
        drafters=tuple([_NAMES[code] for code in drafters]),
        log_probs=tuple(log_probs),
        path=tuple(path),
        correction=correction,
        texts=tuple([texts[str(token)] for token in tokens]),
        correction_text=texts[str(correction)],
        correction_log_prob=correction_log_prob,
    )


def _new_texts(tree: RoundTree | None, known: dict[int, str]) -> dict[int, str]:
    if tree is None:
        return {}
    named = zip((*tree.tokens, tree.correction), (*tree.texts, tree.correction_text), strict=True)
    new = {token: text for token, text in named if token not in known}
    known |= new
    return new


def _rounded(log_prob: float | None) -> float | None:
    # Three digits give the probability to 0.1 %.
    return None if log_prob is None else round(log_prob, 3)


def _packed(lines: list[Any]) -> bytes:
    """Return the packed stream of these lines."""
    return zlib.compress(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
