"""Counters of rounds and replies: plain frozen data. Rates are derived from them where they are shown."""

from dataclasses import dataclass
from math import sqrt

PATH_SEPARATOR = "/"  # between the names of stages

# Stages of the time ledger that are no work of their own; `shown_ledger` tells where they count.
QUEUE = "queue"  # handing work to the device, and waiting until its queue has room
WAIT = "wait"  # for what the device computes
WAIT_WITH_DRAFT = "wait with draft"  # for a target call and a draft that was queued with it
HAND_OVER = "hand over"  # of tokens to who reads the reply
NOT_MEASURED = "not measured"  # what no stage took; a stored ledger of version 0.1 lacks it


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Time spent in one stage.

    Attributes:
        name: Of the stage.
        parent: Path of the stage around it, such as `round/draft`; empty at the top.
        calls: Number of times that it ran.
        total_ms: Of all calls, the stages inside included.
    """

    name: str
    parent: str
    calls: int
    total_ms: float

    @property
    def path(self) -> str:
        """Its place in the tree: the names from the top down to its own, separated by `/`."""
        return f"{self.parent}{PATH_SEPARATOR}{self.name}" if self.parent else self.name


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """Counters of one round.

    Attributes:
        round: Its number, from 1.
        drafted: Depth offered.
        accepted: Drafted tokens accepted.
        emitted: Tokens the round added to the reply.
        verified_nodes: Packed rows, the root included.
    """

    round: int
    drafted: int
    accepted: int
    emitted: int
    verified_nodes: int


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The automatic mode's choice at this moment, and the reason.

    Attributes:
        mode: Name of the mode it chose (`Mode`'s value).
        width, length: Its beams, or 1 and the draft's tokens plus one; 0 in plain decoding.
        tokens_per_call: Expected tokens a target call.
        cost: Expected time of a round, draft included, over that of a plain target call.
        words: A sentence that says why.
    """

    mode: str
    width: int
    length: int
    tokens_per_call: float
    cost: float
    words: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters of a reply, so far or whole. Rates are derived here and stored nowhere.

    Attributes:
        prompt_tokens: Tokens of the whole prompt, cached ones included.
        cached_prompt_tokens: Those that were in the KV cache already.
        generated_tokens: Tokens of the reply: the first one and a final EOS included, what a stop string cuts
            excluded.
        prefill_ms: From the start of prefill until the first token is known, or until it was cancelled.
        ttft_ms: From the request until the first token is known.
        decode_ms: From the first token to the last.
        rounds: Target calls of a drafting mode; 0 in plain decoding.
        drafted: Depth offered, summed over rounds.
        accepted: Drafted tokens accepted, summed over rounds.
        target_calls: Decode calls whose output is used; prefill does not count.
        verified_nodes: Packed rows of all rounds, the roots included, padding excluded.
        host_syncs: Times the host waited for the device while decoding.
        drafted_lengths: Rounds by depth offered: entry n counts those that offered n tokens.
        accepted_lengths: Rounds by accepted length: entry n counts those of which n drafted tokens were accepted.
        peak_memory_bytes: The most memory MLX held during the reply.
        context_tokens: Tokens in the context at this moment.
        ledger: Time by stage.
        plain_step_ms: Measured time of a plain target call at this context; 0 where it was not measured.
        choice: Of the automatic mode; None in other modes.
        plain_error: How far plain steps may lie from `plain_step_ms`, as a share of it; 0 where that is not known.
        dropped_drafts: Drafts that did not count, since the drafter's scores were not finite.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    decode_ms: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    target_calls: int = 0
    verified_nodes: int = 0
    host_syncs: int = 0
    drafted_lengths: tuple[int, ...] = ()
    accepted_lengths: tuple[int, ...] = ()
    peak_memory_bytes: int = 0
    context_tokens: int = 0
    ledger: tuple[LedgerEntry, ...] = ()
    plain_step_ms: float = 0.0
    choice: AutoChoice | None = None
    plain_error: float = 0.0
    dropped_drafts: int = 0

    @property
    def decode_tps(self) -> float | None:
        """Decoded tokens a second: the first token belongs to prefill; None before there are two."""
        if self.generated_tokens < 2 or self.decode_ms <= 0:
            return None
        return (self.generated_tokens - 1) / self.decode_ms * 1000

    @property
    def plain_tps(self) -> float | None:
        """Tokens a second that plain decoding would reach here; None where that was not measured."""
        return 1000 / self.plain_step_ms if self.plain_step_ms else None

    @property
    def speedup(self) -> float | None:
        """How many times as fast as plain decoding this reply is; None where plain decoding was not measured."""
        decode, plain = self.decode_tps, self.plain_tps
        return decode / plain if decode and plain else None

    @property
    def speedup_error(self) -> float:
        """How far `speedup` may lie from the truth, as a share of it.

        The baseline is older than the reply, and each call of a short reply counts for much. No call is cheaper than a
        plain one, so a ratio above the tokens per call is the baseline's error.
        """
        error = self.plain_error * sqrt(1 + 1 / max(self.target_calls, 1))
        if not self.speedup or not self.tokens_per_target_call:
            return error
        return max(error, self.speedup / self.tokens_per_target_call - 1)

    @property
    def prefill_tps(self) -> float | None:
        """Prompt tokens processed a second; cached ones do not count."""
        processed = self.prompt_tokens - self.cached_prompt_tokens
        finished = self.ttft_ms > 0
        return processed / self.prefill_ms * 1000 if finished and self.prefill_ms > 0 and processed > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Of the rounds that offered a token at a draft position, from the first on, the share that accepted it."""
        offered = [sum(self.drafted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        accepted = [sum(self.accepted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        return tuple(a / o for a, o in zip(accepted, offered, strict=True) if o)

    @property
    def tokens_per_target_call(self) -> float | None:
        """Decoded tokens for each target call; None before there are two tokens, as for `decode_tps`."""
        if self.generated_tokens < 2 or not self.target_calls:
            return None
        return (self.generated_tokens - 1) / self.target_calls
