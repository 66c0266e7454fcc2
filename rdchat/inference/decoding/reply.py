"""The reply that every token iterator fills: its text, its counters, and why it ended."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter_ns

import mlx.core as mx

from rdchat.inference.api.drafter_facts import HeadKind
from rdchat.inference.api.events import FinishReason, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import AutoChoice, Statistics
from rdchat.inference.api.requests import GenerationRequest, Mode
from rdchat.inference.decoding.detokenizer import Detokenizer
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel

RowsFor = Callable[[int, int], int]  # rows of a call, for the nodes of a draft and the tokens in the cache
_FREE_BUFFERS_EVERY = 256  # tokens; MLX keeps freed buffers for reuse, which grow with the context


@dataclass(slots=True)
class Counters:
    """Plain counts of a reply; rates are derived where they are shown."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    target_calls: int = 0
    verified_nodes: int = 0
    host_syncs: int = 0
    dropped_drafts: int = 0
    drafted_lengths: Counter[int] = field(default_factory=Counter)
    accepted_lengths: Counter[int] = field(default_factory=Counter)

    def copy(self) -> "Counters":
        """Return the counts of this moment."""
        drafted, accepted = self.drafted_lengths.copy(), self.accepted_lengths.copy()
        return replace(self, drafted_lengths=drafted, accepted_lengths=accepted)


@dataclass(slots=True)
class Clock:
    """Moments of a reply, in nanoseconds of `perf_counter_ns`; 0 where not reached."""

    requested: int = field(default_factory=perf_counter_ns)
    prefill_began: int = 0
    first_token: int = 0
    last_token: int = 0
    ended: int = 0

    def mark_token(self) -> None:
        self.last_token = perf_counter_ns()
        self.first_token = self.first_token or self.last_token


@dataclass(frozen=True, slots=True)
class ReplyJob:
    """The inputs of a token iterator.

    Attributes:
        model: The target.
        cache: Holds a proper prefix of the prompt. Afterwards it holds the prompt and the reply's committed tokens,
            the last one perhaps excepted.
        prompt: Token ids, at least one.
        request: Sampling, seed and draft settings.
        ledger: Takes the host time.
        clock: Started when the request came.
        mode: The drafting mode that runs.
        mode_reason: Why it is not the one asked for; None where it is.
        drafter: Path or name of what drafts; None where nothing does.
        kind: Of the head that drafts; None where none does.
        plain_ms: Returns the milliseconds of a plain target call with so many tokens in the cache; 0 if not measured.
        plain_error: Returns how far off these are, as a share; 0 if that is not known.
        rows_for: Returns the rows to verify a draft with that does not say itself.
    """

    model: LoadedModel
    cache: KVCache
    prompt: list[int]
    request: GenerationRequest
    ledger: Ledger
    clock: Clock
    mode: Mode = Mode.OFF
    mode_reason: str | None = None
    drafter: str | None = None
    kind: HeadKind | None = None
    plain_ms: Callable[[int], float] = lambda _depth: 0.0
    plain_error: Callable[[], float] = lambda: 0.0
    rows_for: RowsFor = lambda nodes, _depth: nodes

    @classmethod
    def fresh(
        cls, model: LoadedModel, prompt: list[int], request: GenerationRequest, cache: KVCache | None = None
    ) -> "ReplyJob":
        """Return the job of a reply with a ledger and a clock of its own, and an empty KV cache where none is given."""
        return cls(model, cache or KVCache(model.network), prompt, request, Ledger(), Clock())


class Reply:
    """The tokens, text and counters of one reply; decides when it ends.

    Args:
        job: Request, model and cache; the cache still holds just the prompt's cached prefix.

    Attributes:
        choice: Returns what the automatic mode does now; None in other modes.
        left_out: A sentence that says why a drafter was left out of the rest of the reply; empty where none was.
    """

    def __init__(self, job: ReplyJob) -> None:
        request, prompt = job.request, job.prompt
        self.request = request
        self._job = job
        self.counters = Counters()
        self.clock = job.clock
        self.choice: Callable[[], AutoChoice | None] = lambda: None
        self.left_out = ""
        self.token_ids: list[int] = []
        self._taken: list[tuple[int, Counters]] = []  # per token: when it came, and the counters at that moment
        self.finish_reason: FinishReason | None = None
        self._prompt_length = len(prompt)
        self._cached = len(job.cache.tokens)
        self._ledger = job.ledger
        self._end_tokens = job.model.end_tokens
        self._room = job.model.info.context_length - len(prompt)
        context = prompt[-8:] if request.continue_last else ()
        self._text = Detokenizer(job.model, request.sampling.stop, context, job.model.prompts.control)

    @property
    def last_index(self) -> int:
        """Index of the last token that `max_tokens` and the context leave room for."""
        return min(self.request.sampling.max_tokens, self._room) - 1

    def take(self, token_id: int) -> TokenEvent:
        """Add one token and return its event; sets `finish_reason` where it is the last."""
        self.clock.mark_token()
        if len(self.token_ids) % _FREE_BUFFERS_EVERY == 0:
            mx.clear_cache()
        self.token_ids.append(token_id)
        self._taken.append((self.clock.last_token, self.counters.copy()))
        text = ""
        if token_id in self._end_tokens:
            self.finish_reason = FinishReason.EOS
        else:
            with self._ledger.stage("detokenize"):
                text = self._text.add(token_id)
            if self._text.stopped:
                self.finish_reason = FinishReason.STOP_STRING
            elif len(self.token_ids) > self.last_index:
                limited = self.request.sampling.max_tokens <= self._room
                self.finish_reason = FinishReason.LENGTH if limited else FinishReason.CONTEXT_FULL
        return TokenEvent(self.request.request_id, len(self.token_ids) - 1, token_id, text)

    def end(self) -> ReplyEnd:
        """Return the closing event; `finish_reason` must be set."""
        assert self.finish_reason is not None
        self.clock.ended = perf_counter_ns()
        trailing = self._text.finish()
        if self.finish_reason is not FinishReason.STOP_STRING and self._text.stopped:
            self.finish_reason = FinishReason.STOP_STRING  # completed by characters that were held back
        if self._text.stopped:
            self._cut(self._text.kept_tokens)
        return ReplyEnd(
            self.request.request_id,
            self._text.text,
            tuple(self.token_ids),
            trailing,
            self.finish_reason,
            self.statistics(),
            self._job.mode,
            self._job.mode_reason or self.left_out or None,
            self._job.drafter,
            self._text.control_offsets,
            self._job.kind,
        )

    def _cut(self, kept: int) -> None:
        """Drop the tokens that a stop string cuts, and the counts and the time of the calls that made them."""
        del self.token_ids[kept:]
        self.clock.last_token, self.counters = self._taken[kept - 1] if kept else (self.clock.first_token, Counters())

    def statistics(self) -> Statistics:
        """Return the counters so far."""
        clock, counters = self.clock, self.counters
        context = self._prompt_length + len(self.token_ids)
        return Statistics(
            prompt_tokens=self._prompt_length,
            cached_prompt_tokens=self._cached,
            generated_tokens=len(self.token_ids),
            prefill_ms=_span_ms(clock.prefill_began, clock.first_token or clock.ended),
            ttft_ms=_span_ms(clock.requested, clock.first_token),
            decode_ms=_span_ms(clock.first_token, clock.last_token),
            rounds=counters.rounds,
            drafted=counters.drafted,
            accepted=counters.accepted,
            target_calls=counters.target_calls,
            verified_nodes=counters.verified_nodes,
            host_syncs=counters.host_syncs,
            dropped_drafts=counters.dropped_drafts,
            drafted_lengths=_histogram(counters.drafted_lengths),
            accepted_lengths=_histogram(counters.accepted_lengths),
            peak_memory_bytes=mx.get_peak_memory(),
            context_tokens=context,
            ledger=self._ledger.entries(clock.ended or perf_counter_ns()),
            plain_step_ms=self._job.plain_ms(context),
            plain_error=self._job.plain_error(),
            choice=self.choice(),
        )


def _span_ms(start: int, end: int) -> float:
    return (end - start) / 1e6 if start and end else 0.0


def _histogram(counts: Counter[int]) -> tuple[int, ...]:
    return tuple(counts[n] for n in range(max(counts, default=-1) + 1))
