"""The trace of a reply: the drafter and the log-probability of each token, and every round."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rdchat.inference.api.events import RoundTree, TokenEvent


@dataclass(frozen=True, slots=True)
class TracedToken:
    """One token of a reply.

    Attributes:
        token_id: Its id.
        text: Characters that became final with it, as in `TokenEvent`.
        drafter: Who drafted it: `speculative`, `drafter` or `lookup`; empty for the target's own.
        position: Its place in the draft, from 1; 0 for the target's own.
        log_prob: The target's log-probability of it, before temperature and filters; None where it was not recorded.
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
    """One round: `count` tokens from `first` on. Its tree is there from its last token on, where it was recorded."""

    first: int
    count: int = 0
    tree: RoundTree | None = None


@dataclass(slots=True)
class ReplyTrace:
    """The tokens and rounds of a reply, or of the part of it that was written in one go; it grows by appending.

    Attributes:
        begins_at: Characters that the reply had before the first token.
        missing: Characters of it that no token stands for, because they were written without a trace.
        tokens: In order.
        rounds: In order; the last one may still be open.
    """

    begins_at: int = 0
    missing: int = 0
    tokens: list[TracedToken] = field(default_factory=list)
    rounds: list[TracedRound] = field(default_factory=list)
    _in_round: bool = field(default=False, repr=False, compare=False)

    def add(self, events: Iterable[TokenEvent]) -> None:
        """Append tokens as they come."""
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
                return 0  # the first token of a reply, and plain decoding
            self.rounds.append(TracedRound(len(self.tokens)))
        return len(self.rounds)

    def end(self, kept: int, trailing_text: str = "") -> None:
        """Drop all tokens but the first `kept`, and give the last one the text that no event carried."""
        del self.tokens[kept:]
        while self.rounds and self.rounds[-1].first >= kept:
            self.rounds.pop()
        if self.rounds:
            self.rounds[-1].count = min(self.rounds[-1].count, kept - self.rounds[-1].first)
        if self.tokens and trailing_text:
            self.tokens[-1] = replace(self.tokens[-1], text=self.tokens[-1].text + trailing_text)

    def join(self, onward: "ReplyTrace") -> None:
        """Append what was written on."""
        written = self.missing + sum(len(token.text) for token in self.tokens)
        self.missing += max(0, onward.begins_at - written) + onward.missing
        first, number = len(self.tokens), len(self.rounds)
        self.tokens += onward.tokens if not number else [_shifted(token, number) for token in onward.tokens]
        self.rounds += [replace(each, first=each.first + first) for each in onward.rounds]
        self._in_round = onward._in_round

    def round_of(self, token: int) -> TracedRound | None:
        """Return the round of the token at this place."""
        number = self.tokens[token].round
        return self.rounds[number - 1] if number else None


def _shifted(token: TracedToken, rounds: int) -> TracedToken:
    return replace(token, round=token.round + rounds) if token.round else token
