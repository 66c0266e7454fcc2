"""The trace of a reply: drafter and log-probability of each token, and every round's tree.

In the database a trace is a `ReplyTrace` as JSON, compressed by zlib. A reply that is continued gets another one after
the first. In exports, a trace is a list of them.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rdchat.inference.api import DRAFTERS, EARLIER_REPLIES, NGRAMS, SHAPE, RoundTree, TokenEvent

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_VERSION = 1
# Replaces a log-probability of minus infinity, which only Python's JSON supports.
_MIN = -1e308
# Limit of a trace after unpacking; it is enough for some 20,000 rounds.
_MAX_BYTES = 64 << 20
_DRAFTERS = {"", *(mode.value for mode in DRAFTERS), EARLIER_REPLIES, NGRAMS, SHAPE}


@dataclass(frozen=True, slots=True)
class TracedToken:
    """One token of a reply.

    Attributes:
        token_id: Id of the token.
        text: Characters that became final with it, as in `TokenEvent`.
        drafter: The drafter that proposed it, one of `_DRAFTERS`; empty for the target's own.
        position: Depth in the draft, from 1; 0 for the target's own.
        log_prob: Its log-probability by the target, before temperature and filters; None where it was not recorded.
        round: Number of its round in the trace, from 1; 0 outside of rounds.
    """

    token_id: int
    text: str
    drafter: str = ""
    position: int = 0
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

    Each token has the number of its round, and each round its first token and their count; `_read` checks that both
    agree.

    Attributes:
        begins_at: Characters of the reply before the first token.
        missing: Characters without tokens, because they were written without a trace.
        tokens: The tokens, in order.
        rounds: The rounds, in order; the last one may still be open.
        version: Version of its form in the database.
    """

    begins_at: int = 0
    missing: int = 0
    tokens: list[TracedToken] = field(default_factory=list)
    rounds: list[TracedRound] = field(default_factory=list)
    version: int = _VERSION
    # Whether further tokens of the last round are to come.
    _in_round: bool = field(default=False, repr=False, compare=False)

    def append_tokens(self, events: Iterable[TokenEvent]) -> None:
        """Append tokens."""
        for event in events:
            number = self._round_of(event)
            log_prob = None if event.log_prob is None else _rounded(event.log_prob)
            self.tokens.append(TracedToken(event.token_id, event.text, event.drafter, event.position, log_prob, number))
            if number:
                self.rounds[-1].count += 1
                if (tree := event.tree) is not None:
                    log_probs = tuple(map(_rounded, tree.log_probs))
                    tree = replace(tree, log_probs=log_probs, correction_log_prob=_rounded(tree.correction_log_prob))
                self.rounds[-1].tree = tree
                self._in_round = event.round is None

    def _round_of(self, event: TokenEvent) -> int:
        """Return the number of the round that a new token belongs to, which it may begin; 0 for none.

        Only the last event of a round has `round`. A token that was not drafted is outside of rounds, unless a round is
        open, or the event has `round`: then it is the only token of a round.
        """
        if not self._in_round:
            if event.position == 0 and event.round is None:
                # This is the first token of a reply, or plain decoding.
                return 0
            self.rounds.append(TracedRound(len(self.tokens)))
        return len(self.rounds)

    def cut_tokens(self, count: int, trailing_text: str = "") -> None:
        """Keep only the first `count` tokens, and give the last one the text that no event carried."""
        del self.tokens[count:]
        while self.rounds and self.rounds[-1].first >= count:
            self.rounds.pop()
        if self.rounds:
            self.rounds[-1].count = min(self.rounds[-1].count, count - self.rounds[-1].first)
        if self.tokens and trailing_text:
            self.tokens[-1] = replace(self.tokens[-1], text=self.tokens[-1].text + trailing_text)

    def join(self, onward: "ReplyTrace") -> None:
        """Append the trace of a continuation, with its rounds numbered on.

        Characters of the reply between the two, which have no tokens, are added to `missing`.
        """
        written = self.missing + sum(len(token.text) for token in self.tokens)
        self.missing += max(0, onward.begins_at - written) + onward.missing
        first = len(self.tokens)
        number = len(self.rounds)
        moved = (replace(each, round=each.round + number) if each.round else each for each in onward.tokens)
        self.tokens += moved if number else onward.tokens
        self.rounds += [replace(each, first=each.first + first) for each in onward.rounds]
        self._in_round = onward._in_round

    def round_of(self, token: int) -> TracedRound | None:
        """Return the round of the token at this index."""
        number = self.tokens[token].round
        return self.rounds[number - 1] if number else None


def _rounded(log_prob: float) -> float:
    """Return a log-probability with three digits, which give the probability to 0.1 %."""
    return max(round(log_prob, 3), _MIN)


def encode(trace: ReplyTrace) -> bytes:
    """Return a trace as a packed stream: 50 ms for 2,000 tokens."""
    return zlib.compress(_adapter().dump_json(trace))


def decode(packed: bytes) -> ReplyTrace | None:
    """Read the streams of one reply; None if they are damaged or of an unknown version."""
    trace = ReplyTrace()
    try:
        for stream in _streams(packed):
            trace.join(_read(stream))
    except (zlib.error, ValueError):
        return None
    return trace


def plain_trace(packed: bytes) -> list[Any] | None:
    """Return the streams of a reply as JSON; None if they are damaged or of an unknown version."""
    return None if decode(packed) is None else [json.loads(stream) for stream in _streams(packed)]


def packed_trace(streams: Any) -> bytes | None:
    """Return a trace in the store's form; None where `streams` is not a trace."""
    try:
        packed = b"".join(encode(_read(json.dumps(stream).encode())) for stream in streams)
    except (TypeError, ValueError):
        return None
    return packed or None


@cache
def _adapter() -> "TypeAdapter[ReplyTrace | None]":
    from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415  a seventh of a second, which no start needs

    # For a dataclass alone pydantic refuses a `config`, so None is allowed too; `_read` refuses it.
    return TypeAdapter(ReplyTrace | None, config=ConfigDict(strict=True, allow_inf_nan=False))


def _streams(packed: bytes) -> Iterator[bytes]:
    """Yield the JSON of each stream; raise ValueError if it is incomplete, or would fill the memory."""
    room = _MAX_BYTES
    while packed and room > 0:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, room)
        if not unpacker.eof:
            raise ValueError("a stream without an end")
        room -= len(text)
        yield text
        packed = unpacker.unused_data


def _read(stream: bytes) -> ReplyTrace:
    """Return the trace in a stream; raise ValueError if it is damaged.

    A stream may come from another program's file, so the types of its fields are not enough: the rounds must lie within
    the tokens, each token must name the round that it lies in, drafters must be known, and log-probabilities possible.
    """
    trace = _adapter().validate_json(stream)
    if trace is None or not trace.tokens or trace.version != _VERSION:
        raise ValueError("not a trace of this version")
    # The number of each token's round, as the rounds have it.
    numbers = [0] * len(trace.tokens)
    for number, each in enumerate(trace.rounds, start=1):
        is_within = 0 <= each.first <= each.first + each.count <= len(numbers)
        if not is_within or not _is_sane(each.tree):
            raise ValueError("no round")
        numbers[each.first : each.first + each.count] = [number] * each.count
    drafters = {each.drafter for each in trace.tokens}
    log_probs = (each.log_prob or 0.0 for each in trace.tokens)
    agree = numbers == [each.round for each in trace.tokens]
    if not agree or drafters - _DRAFTERS or not _can_be(*log_probs):
        raise ValueError("no tokens")
    return trace


def _is_sane(tree: RoundTree | None) -> bool:
    """Return whether the parts of a tree fit together."""
    if tree is None:
        return True
    nodes = len(tree.tokens)
    return (
        nodes == len(tree.parents) == len(tree.drafters) == len(tree.log_probs) == len(tree.texts)
        and all(-1 <= parent < index for index, parent in enumerate(tree.parents))
        and all(0 <= index < nodes for index in tree.path)
        and _DRAFTERS.issuperset(tree.drafters)
        and _can_be(*tree.log_probs, tree.correction_log_prob)
    )


def _can_be(*log_probs: float) -> bool:
    """Return whether numbers can be log-probabilities: exp of a large one overflows."""
    return all(each <= 1 for each in log_probs)
