"""The reply that plain steps and rounds fill: its tokens, text and counters, and why it ended.

`ReplyJob` has what a token iterator needs to begin; `Reply` takes its tokens, makes an event of each, and at the end
finds the tool calls.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any

import mlx.core as mx
from mlx_lm.tool_parsers.json_tools import parse_tool_call

from rdchat.files import json_or_none
from rdchat.inference.api import (
    EARLIER_REPLIES,
    NGRAMS,
    AutoChoice,
    FinishReason,
    GenerationRequest,
    HeadKind,
    LikelyToken,
    Mode,
    PartsReader,
    ReplyEnd,
    Stage,
    Statistics,
    Thoughts,
    TokenEvent,
    ToolCall,
    end_of_begun,
)
from rdchat.inference.decoding.detokenizer import Detokenizer
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply_matcher import ReplyMatcher
from rdchat.inference.decoding.tool_calls import Spans, call_marks, find_tool_calls
from rdchat.inference.prompts.template_fitting import CHANNEL_MARKERS
from rdchat.inference.verification import KVCache, LoadedModel
from rdchat.machine import OtherPrograms

# Rows of a call, by the nodes of a draft and the tokens in the cache.
RowsFor = Callable[[int, int], int]
# Number of speed samples, and the shortest time of one.
_SPEEDS = 120
_SPEED_NS = 250_000_000
# Tokens at the end of a prompt in which the start of a thought is looked for.
_MARKER_TOKENS = 16
# Tokens; MLX keeps freed buffers for reuse, which grow with the context.
_FREE_BUFFERS_EVERY = 256


@dataclass(slots=True)
class Clock:
    """Moments of a reply, in nanoseconds of `perf_counter_ns`; 0 where not reached.

    Attributes:
        requested: When the request came.
        prefill_began: When the first part of the prompt was about to be read.
        first_token: When the reply's first token came.
        last_token: When its last token so far came.
        ended: When it was over.
    """

    requested: int = field(default_factory=perf_counter_ns)
    prefill_began: int = 0
    first_token: int = 0
    last_token: int = 0
    ended: int = 0

    def mark_token(self) -> None:
        self.last_token = perf_counter_ns()
        self.first_token = self.first_token or self.last_token

    def leave_out(self, nanoseconds: int) -> None:
        """Leave out a pause that ends now."""
        for name in ("requested", "prefill_began", "first_token", "last_token"):
            if began := getattr(self, name):
                setattr(self, name, began + nanoseconds)


@dataclass(frozen=True, slots=True)
class ReplyJob:
    """The inputs of a token iterator.

    Attributes:
        model: The target.
        cache: Holds a proper prefix of the prompt. Afterwards it holds the prompt and the reply's committed tokens,
            perhaps without the last one.
        prompt: Token ids, at least one.
        request: Sampling, seed and draft settings.
        ledger: Takes the host time.
        clock: A clock that started when the request came.
        mode: The drafting mode that runs.
        mode_reason: Why another mode than the requested one runs; None if it is the same.
        drafter: Path or name of the drafter; None without one.
        kind: Kind of the drafter head; None without one.
        earlier_bytes: Memory of the earlier replies that prompt lookup can use.
        plain_ms: Returns the milliseconds of a plain target call with so many tokens in the cache; 0 if not measured.
        matcher: Keeps the reply within its answer format and its thought's limit; None for any text.
        rows_for: Returns the rows to verify a draft with, if the draft does not say.
        release: Called once, with whether the reply failed, when it is over and its cache is consistent.
        plain_error: Returns the share by which `plain_ms` may be wrong; 0 if unknown.
        from_disk: Tokens in the cache that came from disk.
        mark_prompt: Called while the prompt is read, where `shared` ends and where a later prompt may go on.
        shared: Length of the prompt's beginning that other chats have, too.
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
    earlier_bytes: int = 0
    plain_ms: Callable[[int], float] = lambda _depth: 0.0
    plain_error: Callable[[], float] = lambda: 0.0
    matcher: ReplyMatcher | None = None
    rows_for: RowsFor = lambda nodes, _depth: nodes
    release: Callable[[bool], None] = lambda _failed: None
    from_disk: int = 0
    mark_prompt: Callable[[], None] = lambda: None
    shared: int = 0

    @classmethod
    def fresh(
        cls, model: LoadedModel, prompt: list[int], request: GenerationRequest, cache: KVCache | None = None
    ) -> "ReplyJob":
        """Return a job with a ledger and a clock of its own, and with an empty KV cache if none is given."""
        return cls(model, cache or KVCache(model.network), prompt, request, Ledger(), Clock())


def reply_start(model: LoadedModel, prompt: list[int], request: GenerationRequest) -> int:
    """Return where in a prompt the reply begins: before the tokens of a text that it continues."""
    start = len(prompt)
    missing = len(request.messages[-1].content.encode()) if request.continue_last else 0
    while missing > 0 and start:
        start -= 1
        missing -= len(model.token_data(prompt[start]))
    return start


def thought_end(model: LoadedModel, prompt: list[int]) -> str:
    """Return the marker that ends the thought which a prompt opens for the reply; empty if it opens none."""
    return end_of_begun(model.decode(prompt[-_MARKER_TOKENS:]))


class Reply:
    """The tokens, text and counters of one reply; decides when it ends.

    Args:
        job: Request, model and cache; the cache still holds just the prompt's cached prefix.
        seen: See below; before the first token.
        choice: Returns the automatic mode's present choice; None in other modes.

    Attributes:
        matcher: That of the job; it has all the reply's tokens.
        left_out: A sentence: why a drafter was left out of the rest of the reply; empty where none was.
        seen: What penalties look at before the last token, see `TokenChooser.seen`; None without a penalty.
        trace: Whether events carry the target's log-probabilities, and rounds their trees.
        finish_reason: Why it ended; None before. `add_token` sets it, or `ReplyIterator` where the reply is cancelled.
    """

    def __init__(
        self, job: ReplyJob, seen: mx.array | None = None, choice: Callable[[], AutoChoice | None] = lambda: None
    ) -> None:
        request = job.request
        prompt = job.prompt
        self.request = request
        self._job = job
        # Rounds and plain steps count here; `statistics` adds the rest.
        self.counters = Statistics()
        self.clock = job.clock
        self._choice = choice
        self.left_out = ""
        self.seen = seen
        self.trace = request.draft.trace
        self.matcher = job.matcher
        self.token_ids: list[int] = []
        # For each token, when it came, and the counters then.
        self._taken: list[tuple[int, Statistics]] = []
        self._speeds: deque[float] = deque(maxlen=_SPEEDS)
        # When the last speed was sampled, and the tokens then; before the first sample no moment, and the first token,
        # which came with the prompt.
        self._sampled = 0, 1
        # Milliseconds of a plain step behind the prompt, with which the reply is compared; 0 if not measured. See
        # `statistics`.
        self._baseline = 0.0
        self.finish_reason: FinishReason | None = None
        # What other programs use of the processors, since the first token; None before it.
        self._others: OtherPrograms | None = None
        self._prompt_length = len(prompt)
        self._cached = len(job.cache.tokens)
        self._ledger = job.ledger
        self._end_tokens = job.model.end_tokens
        self._room = job.model.info.context_length - len(prompt)
        # A reply that goes on with a text, or has a shape, keeps the space with which it may begin; see `Detokenizer`.
        is_fresh = request.text is None and not request.continue_last and request.shape is None
        before = None if is_fresh else prompt[-1]
        stop = request.sampling.stop
        # In a shape, the model's own would end the reply before it is whole.
        if request.shape is None:
            stop += job.model.stop
        self._text = Detokenizer(job.model.token_data, stop, before, job.model.prompts.control)
        info = job.model.info
        self._parse = job.model.tokenizer.tool_parser if info.trained_for_tools else parse_tool_call
        if info.tool_markers == CHANNEL_MARKERS:
            self._parse = None
        begun = bool(thought_end(job.model, prompt[: reply_start(job.model, prompt, request)]))
        tools = request.tools
        markers = info.tool_markers
        marks = call_marks(self._parse, markers, tools) if markers else ()
        self._reader = PartsReader.for_request(request, begun, info.token_markers, marks)

    @property
    def room(self) -> int:
        """Tokens that `max_tokens` and the context leave room for after the next one; -1 where there is no next one."""
        return min(self.request.sampling.max_tokens, self._room) - 1 - len(self.token_ids)

    def count(self, **more: int) -> None:
        """Add to counters."""
        sums: dict[str, Any] = {name: getattr(self.counters, name) + number for name, number in more.items()}
        self.counters = replace(self.counters, **sums)

    def count_round(self, drafted: int, nodes: int, waits: int) -> None:
        """Count a round that has accepted nothing yet: the depth that it offered, its nodes and waits."""
        self.count(rounds=1, target_calls=1, host_syncs=waits, drafted=drafted, verified_nodes=nodes)
        counters = self.counters
        self.counters = replace(
            counters,
            drafted_lengths=_changed(counters.drafted_lengths, drafted, 1),
            accepted_lengths=_changed(counters.accepted_lengths, 0, 1),
        )

    def count_accepted(self, position: int, source: str) -> None:
        """Count a drafted token of the last round, before it is taken: the reply may end with it.

        Args:
            position: Its depth in the draft, from 1.
            source: What proposed it.
        """
        self.count(
            accepted=1,
            from_chat=source == Mode.LOOKUP,
            from_replies=source == EARLIER_REPLIES,
            from_phrases=source == NGRAMS,
        )
        without = _changed(self.counters.accepted_lengths, position - 1, -1)
        self.counters = replace(self.counters, accepted_lengths=_changed(without, position, 1))

    def add_token(
        self, token_id: int, log_prob: float | None = None, alternatives: tuple[LikelyToken, ...] = ()
    ) -> TokenEvent:
        """Add one token and return its event; sets `finish_reason` where it is the last.

        Args:
            token_id: Id of the token.
            log_prob: See `TokenEvent`.
            alternatives: See `TokenEvent`.
        """
        self.clock.mark_token()
        self._others = self._others or OtherPrograms()
        if len(self.token_ids) % _FREE_BUFFERS_EVERY == 0:
            mx.clear_cache()
        self.token_ids.append(token_id)
        if self.matcher is not None:
            self.matcher.take(token_id)
        self._sample_speed()
        self._taken.append((self.clock.last_token, self.counters))
        text = ""
        control: list[int] = []
        if token_id in self._end_tokens:
            self.finish_reason = FinishReason.EOS
        else:
            with self._ledger.stage(Stage.DETOKENIZE):
                text = self._text.add_token(token_id, self._may_stop)
            control = self._text.control_offsets(token_id)
            if self._text.stopped:
                # One of the model's own ends it as an end token does.
                is_requested = self._text.stop in self.request.sampling.stop
                self.finish_reason = FinishReason.STOP_STRING if is_requested else FinishReason.EOS
            elif self.room < 0:
                limited = self.request.sampling.max_tokens <= self._room
                self.finish_reason = FinishReason.LENGTH if limited else FinishReason.CONTEXT_FULL
        data = b"" if self.request.top_log_probs is None else self._job.model.token_data(token_id)
        return TokenEvent(
            self.request.request_id,
            len(self.token_ids) - 1,
            token_id,
            text,
            log_prob=log_prob,
            alternatives=alternatives,
            data=data,
            pieces=self._reader.add_text(text, control),
        )

    def _sample_speed(self) -> None:
        """Take a sample once enough decoding time has passed: a single token would make the figure jump."""
        now = self.clock.last_token
        since = self._sampled[0] or self.clock.first_token
        if now - since >= _SPEED_NS:
            tokens = len(self.token_ids)
            self._speeds.append((tokens - self._sampled[1]) / (now - since) * 1e9)
            self._sampled = now, tokens

    def leave_out(self, nanoseconds: int) -> None:
        """Leave a pause that ends now out of all times."""
        self.clock.leave_out(nanoseconds)
        self._ledger.leave_out(nanoseconds)
        self._taken = [(moment + nanoseconds, counters) for moment, counters in self._taken]
        if self._sampled[0]:
            self._sampled = self._sampled[0] + nanoseconds, self._sampled[1]

    def closing_event(self) -> ReplyEnd:
        """Return the closing event; `finish_reason` must be set."""
        assert self.finish_reason is not None
        self.clock.ended = perf_counter_ns()
        trailing = self._text.last_text()
        if self._text.stopped:
            self._cut(self._text.held_tokens)
        self._reader.add_text(trailing)
        # If the reply continues a text (`continue_last`), its format is that of both together, but the event has only
        # what is new.
        all_parts = self._reader.finish_reply(self.finish_reason is FinishReason.EOS)
        own_parts = self._reader.own(all_parts)
        self._check_answer(all_parts.answer)
        calls, spans = self._tool_calls(own_parts)
        return ReplyEnd(
            self.request.request_id,
            self._text.text,
            tuple(self.token_ids),
            trailing,
            self.finish_reason,
            self.statistics(),
            mode=self._job.mode,
            mode_reason=self._job.mode_reason or self.left_out or None,
            drafter=self._job.drafter,
            kind=self._job.kind,
            tool_calls=calls,
            told=own_parts.within(spans),
            stop=self._text.stop if self.finish_reason is FinishReason.STOP_STRING else "",
        )

    def _may_stop(self, text: str, offset: int) -> bool:
        """Return whether a stop string at an offset stands in the answer: not in a thought before it, nor in a call."""
        markers = self._job.model.info.tool_markers
        if self.request.tools and markers is not None:
            begin, end = markers
            call = text.rfind(begin, 0, offset)
            if call >= 0 and (not end or text.find(end, call, offset) < 0):
                return False
        return self._reader.is_answer(text, offset)

    def _tool_calls(self, parts: Thoughts) -> tuple[tuple[ToolCall, ...], Spans]:
        """Return the tool calls in the reply, and the ranges of its text without them."""
        request = self.request
        markers = self._job.model.info.tool_markers
        # The text of an answer with a format is data, and so is that of a raw text.
        if markers is None or request.shape is not None or request.text is not None:
            return (), ((0, len(parts.text)),)
        ended = self.finish_reason is FinishReason.EOS
        return find_tool_calls(parts.text, markers, self._parse, request.tools, answers=parts.spans, ended=ended)

    def _check_answer(self, answer: str) -> None:
        """Check what the grammar of the answer's shape does not enforce; an answer that was cut off is not checked.

        Raises:
            ModelError: If it does not fit.
        """
        shape = self.request.shape
        if shape is not None and shape.unenforced and json_or_none(answer) is not None:
            self._job.model.prompts.process.check_answer(shape, answer)

    def _cut(self, token_count: int) -> None:
        """Drop the tokens that a stop string cuts, and the counts and the time of the calls that made them."""
        del self.token_ids[token_count:]
        self.clock.last_token, self.counters = (
            self._taken[token_count - 1] if token_count else (self.clock.first_token, Statistics())
        )

    def statistics(self) -> Statistics:
        """Return the counters so far, with the times.

        Once the reply is long enough to be compared with plain decoding (`Statistics.settled`), its baseline stays:
        plain steps are timed again while it is written, and the speed of plain decoding that was shown once fell from
        18.6 to 9.6 tokens/s within one reply. What they take now is compared with the baseline only for its error, at
        one depth: a step takes longer with more tokens in the cache, which is no change of the computer's speed. The
        plain step of the statistics is that at the reply's middle, at the baseline's speed.
        """
        clock = self.clock
        context = self._prompt_length + len(self.token_ids)
        statistics = replace(
            self.counters,
            prompt_tokens=self._prompt_length,
            cached_prompt_tokens=self._cached,
            disk_prompt_tokens=self._job.from_disk,
            generated_tokens=len(self.token_ids),
            prefill_ms=_span_ms(clock.prefill_began, clock.first_token or clock.ended),
            ttft_ms=_span_ms(clock.requested, clock.first_token),
            decode_ms=_span_ms(clock.first_token, clock.last_token),
            peak_memory_bytes=mx.get_peak_memory(),
            earlier_bytes=self._job.earlier_bytes,
            context_tokens=context,
            ledger=self._ledger.entries(clock.ended or perf_counter_ns()),
            choice=self._choice(),
            speeds=tuple(self._speeds),
            others_share=self._others.share(now=clock.ended > 0) if self._others else None,
        )
        now_ms = self._job.plain_ms(self._prompt_length)
        if not (self._baseline and statistics.settled):
            self._baseline = now_ms
        drift = now_ms / self._baseline if now_ms else 1.0
        error = (1 + self._job.plain_error()) * max(drift, 1 / drift) - 1
        plain_ms = self._job.plain_ms((self._prompt_length + context) // 2) / drift
        return replace(statistics, plain_step_ms=plain_ms, plain_error=round(error, 4))


def _span_ms(start: int, end: int) -> float:
    return (end - start) / 1e6 if start and end else 0.0


def _changed(histogram: tuple[int, ...], entry: int, more: int) -> tuple[int, ...]:
    """Return a histogram, lengthened if necessary, with `more` added to one entry."""
    counts = [*histogram, *[0] * (entry + 1 - len(histogram))]
    counts[entry] += more
    return tuple(counts)
